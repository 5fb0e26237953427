import { type FormEvent, useCallback, useState } from 'react';
import type { Rest } from '../api/rest.ts';
import { Dialog } from '../parts/dialog.tsx';
import { usePage } from '../parts/page-context.tsx';
import { Content } from '../parts/page-frame.tsx';
import { useLoad, useWork, WorkTrouble } from '../parts/use-work.tsx';
import { changesOf, readSecrets, type SecretDraft } from './secrets.ts';

interface SecretsDialogProps {
  readonly rest: Rest;
  readonly name: string;
  readonly onClose: () => void;
}

/** Values for what a skill needs to be given. They are written here and shown nowhere: the server never sends one back. */
export function SecretsDialog({ rest, name, onClose }: SecretsDialogProps) {
  const { say, announce } = usePage();
  const path = `/skills/${encodeURIComponent(name)}/secrets`;
  const load = useCallback(async (signal: AbortSignal) => readSecrets(await rest.get(path, signal)), [rest, path]);
  const { value, trouble, reload } = useLoad(load);
  const [draft, setDraft] = useState<SecretDraft>({});
  const work = useWork();
  const changes = changesOf(draft);
  const isChanged = Object.keys(changes).length > 0;
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (!isChanged) return;
    work.run(async () => {
      await rest.send('PUT', path, { secrets: changes });
      announce(say('skills.secrets.saved'));
      onClose();
    });
  };
  return (
    <Dialog title={`${say('skills.secrets.title')}: ${name}`} onClose={onClose}>
      <Content loading={value === null} trouble={trouble} onRetry={reload}>
        <form className="fields" onSubmit={submit} autoComplete="off">
          <p className="note">{say('skills.secrets.about')}</p>
          {value?.map((secret, index) => {
            const removed = draft[secret.name] === null;
            return (
              <div key={secret.name} className="field">
                <label htmlFor={`secret-${index}`}>
                  {secret.optional ? say('skills.secrets.optional', { name: secret.name }) : secret.name}
                </label>
                <input
                  id={`secret-${index}`}
                  className="mono"
                  type="password"
                  autoComplete="new-password"
                  maxLength={16_384}
                  disabled={removed}
                  value={draft[secret.name] ?? ''}
                  aria-describedby={`secret-${index}-state`}
                  onChange={(event) => setDraft({ ...draft, [secret.name]: event.target.value })}
                />
                <p id={`secret-${index}-state`} className="note">
                  {removed ? say('skills.secrets.removed') : say(`skills.secrets.source.${secret.source}`)}
                </p>
                {secret.source === 'user' ? (
                  <button
                    type="button"
                    className="quiet"
                    aria-pressed={removed}
                    onClick={() => setDraft({ ...draft, [secret.name]: removed ? '' : null })}
                  >
                    {say('skills.secrets.remove', { name: secret.name })}
                  </button>
                ) : null}
              </div>
            );
          })}
          <WorkTrouble trouble={work.trouble} />
          <div className="dialog-bar">
            <button type="button" onClick={onClose}>
              {say('dialog.cancel')}
            </button>
            <button type="submit" className="primary" disabled={work.busy || !isChanged}>
              {say('dialog.save')}
            </button>
          </div>
        </form>
      </Content>
    </Dialog>
  );
}
