import { useCallback, useState } from 'react';
import type { SandboxEntry } from '../api/api.ts';
import type { Rest } from '../api/rest.ts';
import { Confirm } from '../parts/confirm.tsx';
import { PlaceLink, usePage } from '../parts/page-context.tsx';
import { Content } from '../parts/page-frame.tsx';
import { useLoad, useWork, WorkTrouble } from '../parts/use-work.tsx';
import { isWordKey, type Say, sizeText, timeLeft } from '../words/words.ts';
import { readSandboxes, type Sandbox } from './sandboxes.ts';

/** Sandboxes that live between turns, for the operator: what there is, and how to stop it. */
export function SandboxPanel({ rest, sandbox }: { readonly rest: Rest; readonly sandbox: SandboxEntry | null }) {
  const { say } = usePage();
  const load = useCallback(async (signal: AbortSignal) => readSandboxes(await rest.get('/sandboxes', signal)), [rest]);
  const { value, trouble, reload } = useLoad(load);
  const work = useWork();
  const [asking, setAsking] = useState<Sandbox | null>(null);
  const list = value?.sandboxes ?? [];
  return (
    <section className="panel">
      <h2>{say('settings.sandbox')}</h2>
      {sandbox === null ? null : (
        <p>
          {sandbox.canExecute
            ? say('settings.sandbox.kind', { name: sandbox.provider })
            : `${say('settings.sandbox.off')} ${sandbox.reason ?? ''}`}
        </p>
      )}
      <Content loading={value === null} trouble={trouble} onRetry={reload}>
        {list.length === 0 ? (
          <p className="note">{value?.owner === null ? say('settings.sandbox.short') : say('settings.sandbox.none')}</p>
        ) : (
          <>
            {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a wide table must be scrollable with the keyboard */}
            <div className="table" tabIndex={0}>
              <table>
                <thead>
                  <tr>
                    <th>{say('settings.sandbox.thread')}</th>
                    <th>{say('settings.sandbox.state')}</th>
                    <th>{say('settings.sandbox.idle')}</th>
                    <th>{say('settings.sandbox.memory')}</th>
                    <th>
                      <span className="only-heard">{say('settings.sandbox.stop')}</span>
                    </th>
                  </tr>
                </thead>
                <tbody>
                  {list.map((entry) => (
                    <tr key={entry.id}>
                      <td>
                        {entry.threadId === null ? (
                          entry.id
                        ) : (
                          <PlaceLink to={{ at: 'chat', threadId: entry.threadId }}>
                            {entry.threadId.slice(0, 8)}
                          </PlaceLink>
                        )}
                      </td>
                      <td>{stateText(entry.state, say)}</td>
                      <td>{timeLeft(entry.idleMs, say)}</td>
                      <td>{entry.memory === null ? '–' : sizeText(entry.memory)}</td>
                      <td>
                        <button type="button" onClick={() => setAsking(entry)}>
                          {say('settings.sandbox.stop')}
                        </button>
                      </td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
            <WorkTrouble trouble={work.trouble} />
            <button
              type="button"
              disabled={work.busy}
              onClick={() => work.run(() => rest.send('POST', '/sandboxes/prune', {}).then(reload))}
            >
              {say('settings.sandbox.prune')}
            </button>
          </>
        )}
      </Content>
      {asking === null ? null : (
        <Confirm
          title={say('settings.sandbox.question')}
          action={asking.commands > 0 ? say('settings.sandbox.force') : say('settings.sandbox.stop')}
          onClose={() => setAsking(null)}
          onConfirm={async () => {
            const force = asking.state === 'warm' ? '' : '?force=true';
            await rest.send('DELETE', `/sandboxes/${encodeURIComponent(asking.id)}${force}`);
            reload();
          }}
        >
          {asking.state === 'warm' ? <p>{asking.id}</p> : <p>{say('settings.sandbox.inUse')}</p>}
        </Confirm>
      )}
    </section>
  );
}

function stateText(state: string, say: Say): string {
  const key = `settings.sandbox.state.${state}`;
  return isWordKey(key) ? say(key) : state;
}
