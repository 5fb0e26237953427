import { useCallback } from 'react';
import type { Rest } from '../api/rest.ts';
import { isDictionary, listOf, textOr } from '../chat/wire.ts';
import { usePage } from '../parts/page-context.tsx';
import { Content } from '../parts/page-frame.tsx';
import { useLoad, useWork, WorkTrouble } from '../parts/use-work.tsx';

/** Which configuration counts: what waits for a restart, and why a changed file cannot be used. */
export function ConfigPanel({ rest }: { readonly rest: Rest }) {
  const { say } = usePage();
  const load = useCallback(async (signal: AbortSignal) => readConfig(await rest.get('/config', signal)), [rest]);
  const { value, trouble, reload } = useLoad(load);
  const work = useWork();
  return (
    <section className="panel">
      <h2>{say('settings.config')}</h2>
      <Content loading={value === null} trouble={trouble} onRetry={reload}>
        {value === null ? null : (
          <p className="note">{value.file === null ? say('settings.config.none') : <code>{value.file}</code>}</p>
        )}
        {value?.fault == null ? null : (
          <p role="alert" className="trouble plain">
            {say('settings.config.fault')} {value.fault}
          </p>
        )}
        {value !== null && value.fault === null && value.restart.length === 0 ? (
          <p>{say('settings.config.counts')}</p>
        ) : null}
        {value === null || value.restart.length === 0 ? null : (
          <>
            <p>{say('settings.config.restart')}</p>
            <ul className="follows">
              {value.restart.map(({ key, reason }) => (
                <li key={key}>
                  <code>{key}</code> {reason}
                </li>
              ))}
            </ul>
          </>
        )}
        <WorkTrouble trouble={work.trouble} />
        <button
          type="button"
          disabled={work.busy}
          onClick={() => work.run(() => rest.send('POST', '/config/reload').then(reload))}
        >
          {say('settings.config.reload')}
        </button>
      </Content>
    </section>
  );
}

function readConfig(value: unknown) {
  const state = isDictionary(value) ? value : {};
  return {
    file: textOr(state.file, null),
    fault: textOr(state.fault, null),
    restart: listOf(state.restart)
      .filter(isDictionary)
      .map((entry) => ({ key: textOr(entry.key, ''), reason: textOr(entry.reason, '') })),
  };
}
