import { type FormEvent, useState } from 'react';
import type { Dictionary } from '../chat/wire.ts';
import { Dialog } from '../parts/dialog.tsx';
import { usePage } from '../parts/page-context.tsx';
import { useWork, WorkTrouble } from '../parts/use-work.tsx';
import {
  draftOf,
  EMPTY_SERVER,
  entryOf,
  isServerName,
  type McpServer,
  type ServerDraft,
  type Transport,
  wrongLines,
} from './mcp.ts';

const TRANSPORTS: readonly Transport[] = ['stdio', 'http', 'sse'];

interface ServerFormProps {
  /** null = a new one. */
  readonly server: McpServer | null;
  /** Names that are taken. */
  readonly taken: readonly string[];
  readonly onClose: () => void;
  readonly onSave: (name: string, entry: Dictionary) => Promise<void>;
}

/** How an MCP server is reached. Secrets are shown as `***`; left so, they stay what they are. */
export function ServerForm({ server, taken, onClose, onSave }: ServerFormProps) {
  const { say } = usePage();
  const [draft, setDraft] = useState<ServerDraft>(server === null ? EMPTY_SERVER : draftOf(server));
  const work = useWork();
  const change = (part: Partial<ServerDraft>) => setDraft({ ...draft, ...part });
  const isTaken = server === null && taken.includes(draft.name);
  const wrong = wrongLines(draft.secrets);
  const isComplete =
    isServerName(draft.name) &&
    !isTaken &&
    wrong.length === 0 &&
    (draft.transport === 'stdio' ? draft.command.trim() !== '' : /^https?:\/\/./.test(draft.url.trim()));
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (isComplete) work.run(() => onSave(draft.name, entryOf(draft, server?.entry ?? {})));
  };
  return (
    <Dialog title={server === null ? say('tools.add') : `${say('tools.edit')}: ${server.name}`} onClose={onClose}>
      <form className="fields" onSubmit={submit}>
        {server === null ? (
          <div className="field">
            <label htmlFor="server-name">{say('tools.name')}</label>
            <input
              id="server-name"
              value={draft.name}
              maxLength={64}
              placeholder="weather"
              aria-invalid={draft.name !== '' && (!isServerName(draft.name) || isTaken)}
              onChange={(event) => change({ name: event.target.value.trim() })}
            />
            <p className="note">{isTaken ? say('tools.name.taken') : say('tools.name.rule')}</p>
          </div>
        ) : null}
        <div className="field">
          <label htmlFor="server-transport">{say('tools.transport')}</label>
          <select
            id="server-transport"
            value={draft.transport}
            onChange={(event) =>
              change({ transport: TRANSPORTS.find((name) => name === event.target.value) ?? 'stdio' })
            }
          >
            {TRANSPORTS.map((name) => (
              <option key={name} value={name}>
                {say(`tools.transport.${name}`)}
              </option>
            ))}
          </select>
        </div>
        {draft.transport === 'stdio' ? (
          <>
            <div className="field">
              <label htmlFor="server-command">{say('tools.command')}</label>
              <input
                id="server-command"
                className="mono"
                value={draft.command}
                onChange={(event) => change({ command: event.target.value })}
              />
              <p className="note">{say('tools.command.rule')}</p>
            </div>
            <div className="field">
              <label htmlFor="server-args">{say('tools.args')}</label>
              <textarea
                id="server-args"
                className="mono"
                rows={3}
                value={draft.args}
                placeholder={'-y\n@modelcontextprotocol/server-everything'}
                onChange={(event) => change({ args: event.target.value })}
              />
            </div>
          </>
        ) : (
          <div className="field">
            <label htmlFor="server-url">{say('tools.url')}</label>
            <input
              id="server-url"
              type="url"
              value={draft.url}
              placeholder="https://example.org/mcp"
              onChange={(event) => change({ url: event.target.value })}
            />
          </div>
        )}
        <div className="field">
          <label htmlFor="server-secrets">
            {draft.transport === 'stdio' ? say('tools.environment') : say('tools.headers')}
          </label>
          <textarea
            id="server-secrets"
            className="mono"
            rows={2}
            value={draft.secrets}
            aria-invalid={wrong.length > 0}
            placeholder={draft.transport === 'stdio' ? 'API_KEY=$MY_KEY' : 'Authorization=Bearer …'}
            onChange={(event) => change({ secrets: event.target.value })}
          />
          <p className="note">{say('tools.secrets.rule')}</p>
        </div>
        <div className="field">
          <label htmlFor="server-description">{say('tools.description')}</label>
          <input
            id="server-description"
            value={draft.description}
            maxLength={500}
            onChange={(event) => change({ description: event.target.value })}
          />
        </div>
        <WorkTrouble trouble={work.trouble} />
        <div className="dialog-bar">
          <button type="button" onClick={onClose}>
            {say('dialog.cancel')}
          </button>
          <button type="submit" className="primary" disabled={work.busy || !isComplete}>
            {say('dialog.save')}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
