import { useCallback, useState } from 'react';
import type { Api } from '../api/api.ts';
import { isDictionary, textOr } from '../chat/wire.ts';
import { Confirm } from '../parts/confirm.tsx';
import { Dialog } from '../parts/dialog.tsx';
import { Icon } from '../parts/icons.tsx';
import { usePage } from '../parts/page-context.tsx';
import { Content, PageFrame, Switch } from '../parts/page-frame.tsx';
import { useLoad, useWork, WorkTrouble } from '../parts/use-work.tsx';
import { HistoryDialog } from './history-dialog.tsx';
import { SecretsDialog } from './secrets-dialog.tsx';
import { installFrom, readSkills, type Skill, sorted } from './skills.ts';

type Asking = { readonly what: 'edit' | 'delete' | 'history' | 'secrets'; readonly skill: Skill };

/** The skills of the user: what there is, what is switched on, and those of their own. */
export default function SkillsPage({ api, newId }: { readonly api: Api; readonly newId: () => string }) {
  const { say, announce } = usePage();
  const { rest } = api;
  const load = useCallback(
    async (signal: AbortSignal) => sorted(readSkills(await rest.get('/skills', signal))),
    [rest],
  );
  const { value, trouble, reload, set } = useLoad(load);
  const work = useWork();
  const [asking, setAsking] = useState<Asking | null>(null);
  const [installed, setInstalled] = useState<string | null>(null);
  const close = () => setAsking(null);
  const toggle = (skill: Skill, enabled: boolean) =>
    work.run(async () => {
      const [now] = readSkills({
        skills: [await rest.send('PUT', `/skills/${encodeURIComponent(skill.name)}`, { enabled })],
      });
      if (now !== undefined && value !== null) set(value.map((other) => (other.name === now.name ? now : other)));
    });
  const install = (file: File) =>
    work.run(async () => {
      setInstalled(null);
      const name = await installFrom(api, newId(), file);
      setInstalled(name);
      announce(say('skills.installed', { name }));
      reload();
    });
  return (
    <PageFrame title={say('page.skills')} about={say('skills.about')}>
      <div className="bar">
        <label className={work.busy ? 'button disabled' : 'button'}>
          <Icon name="plus" /> {say('skills.install')}
          <input
            type="file"
            accept=".skill"
            className="only-heard"
            disabled={work.busy}
            onChange={(event) => {
              const file = event.target.files?.[0];
              if (file !== undefined) install(file);
              event.target.value = '';
            }}
          />
        </label>
        <button
          type="button"
          disabled={work.busy}
          onClick={() => work.run(() => rest.send('POST', '/skills/reload').then(reload))}
        >
          <Icon name="again" /> {say('skills.reload')}
        </button>
      </div>
      <WorkTrouble trouble={work.trouble} />
      {installed === null ? null : <p role="status">{say('skills.installed', { name: installed })}</p>}
      <Content loading={value === null} trouble={trouble} onRetry={reload}>
        {value?.length === 0 ? <p className="empty">{say('skills.none')}</p> : null}
        <ul className="panel rows">
          {value?.map((skill) => (
            <li key={skill.name}>
              <div className="row-text">
                <strong>{skill.name}</strong>{' '}
                <span className="badge">{skill.editable ? say('skills.own') : say('skills.shared')}</span>
                <p className="note">{skill.description}</p>
                {skill.secrets.length === 0 ? null : (
                  <p className="note">
                    {say('skills.secrets', { names: skill.secrets.map((secret) => secret.name).join(', ') })}{' '}
                    <button
                      type="button"
                      className="link"
                      aria-label={`${say('skills.secrets.give')}: ${skill.name}`}
                      onClick={() => setAsking({ what: 'secrets', skill })}
                    >
                      {say('skills.secrets.give')}
                    </button>
                  </p>
                )}
              </div>
              {skill.editable ? (
                <div className="row-actions">
                  <RowButton
                    icon="pencil"
                    label={say('skills.edit')}
                    name={skill.name}
                    onClick={() => setAsking({ what: 'edit', skill })}
                  />
                  <RowButton
                    icon="again"
                    label={say('skills.history')}
                    name={skill.name}
                    onClick={() => setAsking({ what: 'history', skill })}
                  />
                  <RowButton
                    icon="trash"
                    label={say('skills.delete')}
                    name={skill.name}
                    onClick={() => setAsking({ what: 'delete', skill })}
                  />
                </div>
              ) : null}
              <Switch
                label={say('skills.on', { name: skill.name })}
                on={skill.enabled}
                disabled={work.busy}
                onChange={(enabled) => toggle(skill, enabled)}
              />
            </li>
          ))}
        </ul>
      </Content>
      {asking?.what === 'edit' ? (
        <EditDialog
          api={api}
          name={asking.skill.name}
          onClose={close}
          onSaved={() => {
            close();
            reload();
          }}
        />
      ) : null}
      {asking?.what === 'secrets' ? <SecretsDialog rest={rest} name={asking.skill.name} onClose={close} /> : null}
      {asking?.what === 'history' ? (
        <HistoryDialog rest={rest} name={asking.skill.name} onClose={close} onChanged={reload} />
      ) : null}
      {asking?.what === 'delete' ? (
        <Confirm
          title={say('skills.delete.title')}
          action={say('skills.delete')}
          onClose={close}
          onConfirm={async () => {
            await rest.send('DELETE', `/skills/custom/${encodeURIComponent(asking.skill.name)}`);
            reload();
          }}
        >
          <p>{say('skills.delete.text', { name: asking.skill.name })}</p>
        </Confirm>
      ) : null}
    </PageFrame>
  );
}

interface RowButtonProps {
  readonly icon: 'pencil' | 'again' | 'trash';
  readonly label: string;
  readonly name: string;
  readonly onClick: () => void;
}

export function RowButton({ icon, label, name, onClick }: RowButtonProps) {
  return (
    <button type="button" className="quiet square" aria-label={`${label}: ${name}`} title={label} onClick={onClick}>
      <Icon name={icon} />
    </button>
  );
}

interface EditDialogProps {
  readonly api: Api;
  readonly name: string;
  readonly onClose: () => void;
  readonly onSaved: () => void;
}

/** The SKILL.md of a skill of the user's own. */
function EditDialog({ api, name, onClose, onSaved }: EditDialogProps) {
  const { say } = usePage();
  const path = `/skills/custom/${encodeURIComponent(name)}`;
  const load = useCallback(
    async (signal: AbortSignal) => {
      const skill = await api.rest.get(path, signal);
      return textOr(isDictionary(skill) ? skill.content : null, '');
    },
    [api, path],
  );
  const { value, trouble, reload } = useLoad(load);
  const [text, setText] = useState<string | null>(null);
  const work = useWork();
  return (
    <Dialog title={`${name} · SKILL.md`} onClose={onClose} wide>
      <Content loading={value === null} trouble={trouble} onRetry={reload}>
        <textarea
          className="wide-field mono"
          aria-label="SKILL.md"
          rows={20}
          maxLength={524_288}
          value={text ?? value ?? ''}
          onChange={(event) => setText(event.target.value)}
        />
        <WorkTrouble trouble={work.trouble} />
        <div className="dialog-bar">
          <button type="button" onClick={onClose}>
            {say('dialog.cancel')}
          </button>
          <button
            type="button"
            className="primary"
            disabled={work.busy || text === null || text === value}
            onClick={() => work.run(() => api.rest.send('PUT', path, { content: text }).then(onSaved))}
          >
            {say('dialog.save')}
          </button>
        </div>
      </Content>
    </Dialog>
  );
}
