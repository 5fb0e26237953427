import { useCallback, useState } from 'react';
import type { Features, ModelEntry } from '../api/api.ts';
import type { Rest } from '../api/rest.ts';
import type { Storage } from '../api/token.ts';
import { isDictionary, textOr } from '../chat/wire.ts';
import { usePage } from '../parts/page-context.tsx';
import { PageFrame } from '../parts/page-frame.tsx';
import { useLoad } from '../parts/use-work.tsx';
import { keepTheme, THEMES, type Theme, themeOf } from '../shell/surroundings.ts';
import { ChannelsPanel } from './channels-panel.tsx';
import { ConfigPanel } from './config-panel.tsx';
import { NoticePanel } from './notice-panel.tsx';
import { SandboxPanel } from './sandbox-panel.tsx';

interface SettingsPageProps {
  readonly rest: Rest;
  readonly local: Storage;
  readonly models: readonly ModelEntry[];
  readonly features: Features | null;
}

/** How the page looks; models, sandboxes and version of the server. */
export default function SettingsPage({ rest, local, models, features }: SettingsPageProps) {
  const { say } = usePage();
  const [theme, setTheme] = useState<Theme>(() => themeOf(local));
  const loadInfo = useCallback(
    async (signal: AbortSignal) => {
      const info = await rest.get('/info', signal);
      return textOr(isDictionary(info) ? info.version : null, '');
    },
    [rest],
  );
  const version = useLoad(loadInfo);
  return (
    <PageFrame title={say('page.settings')} about={say('settings.about')}>
      <section className="panel">
        <h2>{say('settings.look')}</h2>
        <fieldset className="options">
          <legend className="only-heard">{say('settings.theme')}</legend>
          {THEMES.map((name) => (
            <button
              key={name}
              type="button"
              className={`theme ${name}`}
              aria-pressed={theme === name}
              onClick={() => {
                keepTheme(local, name);
                setTheme(name);
              }}
            >
              <i aria-hidden="true" /> {say(`settings.theme.${name}`)}
            </button>
          ))}
        </fieldset>
      </section>
      <section className="panel">
        <h2>{say('settings.models')}</h2>
        {models.length === 0 ? <p className="note">{say('settings.models.none')}</p> : null}
        <ul className="rows">
          {models.map((model, index) => (
            <li key={model.name}>
              <div className="row-text">
                <strong>{model.displayName}</strong>
                {model.model === '' || model.model === model.displayName ? null : <code> {model.model}</code>}
                {model.description === '' ? null : <p className="note">{model.description}</p>}
              </div>
              <span className="badges">
                {index === 0 ? <span className="badge">{say('settings.models.first')}</span> : null}
                {model.thinks ? <span className="badge">{say('settings.models.thinks')}</span> : null}
                {model.sees ? <span className="badge">{say('settings.models.sees')}</span> : null}
                {model.demo ? <span className="badge">{say('settings.models.demo')}</span> : null}
              </span>
            </li>
          ))}
        </ul>
        <p className="note">{say('settings.models.how')}</p>
      </section>
      <NoticePanel local={local} />
      <ChannelsPanel rest={rest} />
      <ConfigPanel rest={rest} />
      <SandboxPanel rest={rest} sandbox={features?.sandbox ?? null} />
      <section className="panel">
        <h2>{say('settings.version')}</h2>
        <p>
          {say('settings.version.text', { version: version.value ?? '…' })} ·{' '}
          <a href="/openapi.json" target="_blank" rel="noreferrer">
            {say('settings.api')}
          </a>
        </p>
      </section>
    </PageFrame>
  );
}
