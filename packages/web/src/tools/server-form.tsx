import { useState } from 'react';
import type { Dictionary } from '../chat/wire.ts';
import { InputField, SelectField, TextField } from '../parts/fields.tsx';
import { FormDialog } from '../parts/form-dialog.tsx';
import { usePage } from '../parts/page-context.tsx';
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
  const change = (part: Partial<ServerDraft>) => setDraft({ ...draft, ...part });
  const isTaken = server === null && taken.includes(draft.name);
  const wrong = wrongLines(draft.secrets);
  const isCommand = draft.transport === 'stdio';
  const isComplete =
    isServerName(draft.name) &&
    !isTaken &&
    wrong.length === 0 &&
    (isCommand ? draft.command.trim() !== '' : /^https?:\/\/./.test(draft.url.trim()));
  return (
    <FormDialog
      title={server === null ? say('tools.add') : `${say('tools.edit')}: ${server.name}`}
      ready={isComplete}
      onSubmit={() => onSave(draft.name, entryOf(draft, server?.entry ?? {}))}
      onClose={onClose}
    >
      {server === null ? (
        <InputField
          label={say('tools.name')}
          note={isTaken ? say('tools.name.taken') : say('tools.name.rule')}
          value={draft.name}
          maxLength={64}
          placeholder="weather"
          aria-invalid={draft.name !== '' && (!isServerName(draft.name) || isTaken)}
          onChange={(text) => change({ name: text.trim() })}
        />
      ) : null}
      <SelectField
        label={say('tools.transport')}
        value={draft.transport}
        options={TRANSPORTS.map((name) => ({ value: name, label: say(`tools.transport.${name}`) }))}
        onChange={(transport) => change({ transport: transport ?? 'stdio' })}
      />
      {isCommand ? (
        <>
          <InputField
            label={say('tools.command')}
            note={say('tools.command.rule')}
            className="mono"
            value={draft.command}
            onChange={(command) => change({ command })}
          />
          <TextField
            label={say('tools.args')}
            className="mono"
            rows={3}
            value={draft.args}
            placeholder={'-y\n@modelcontextprotocol/server-everything'}
            onChange={(args) => change({ args })}
          />
        </>
      ) : (
        <InputField
          label={say('tools.url')}
          type="url"
          value={draft.url}
          placeholder="https://example.org/mcp"
          onChange={(url) => change({ url })}
        />
      )}
      <TextField
        label={isCommand ? say('tools.environment') : say('tools.headers')}
        note={say('tools.secrets.rule')}
        className="mono"
        rows={2}
        value={draft.secrets}
        aria-invalid={wrong.length > 0}
        placeholder={isCommand ? 'API_KEY=$MY_KEY' : 'Authorization=Bearer …'}
        onChange={(secrets) => change({ secrets })}
      />
      <InputField
        label={say('tools.description')}
        value={draft.description}
        maxLength={500}
        onChange={(description) => change({ description })}
      />
    </FormDialog>
  );
}
