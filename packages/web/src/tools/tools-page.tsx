import { useCallback, useEffect, useState } from 'react';
import type { Rest } from '../api/rest.ts';
import { Confirm } from '../parts/confirm.tsx';
import { Icon } from '../parts/icons.tsx';
import { usePage } from '../parts/page-context.tsx';
import { Content, PageFrame, Switch } from '../parts/page-frame.tsx';
import { useLoad, useWork, WorkTrouble } from '../parts/use-work.tsx';
import { RowButton } from '../skills/skills-page.tsx';
import { isWordKey } from '../words/words.ts';
import { generalProblems, type McpServer, readServers, sectionOf } from './mcp.ts';
import { ServerForm } from './server-form.tsx';

const AGAIN_MS = 1_500;
const TOOLS_SHOWN = 12;

type Asking = { readonly what: 'add' } | { readonly what: 'edit' | 'delete'; readonly server: McpServer };

/** MCP servers: each with its state, its tools, and why it does not work when it does not. */
export default function ToolsPage({ rest }: { readonly rest: Rest }) {
  const { say } = usePage();
  const load = useCallback((signal: AbortSignal) => rest.get('/mcp/config', signal), [rest]);
  const { value, trouble, reload, set } = useLoad(load);
  const work = useWork();
  const [asking, setAsking] = useState<Asking | null>(null);
  const close = () => setAsking(null);
  const servers = readServers(value);
  const isWaiting = servers.some((server) => server.state === 'connecting');
  useEffect(() => {
    if (!isWaiting) return;
    const timer = setInterval(reload, AGAIN_MS);
    return () => clearInterval(timer);
  }, [isWaiting, reload]);
  const write = async (section: object) => {
    set(await rest.send('PUT', '/mcp/config', { mcp_servers: section }));
  };
  return (
    <PageFrame title={say('page.tools')} about={say('tools.about')}>
      <div className="bar">
        <button type="button" className="primary" disabled={value === null} onClick={() => setAsking({ what: 'add' })}>
          <Icon name="plus" /> {say('tools.add')}
        </button>
        <button
          type="button"
          disabled={work.busy || servers.length === 0}
          title={say('tools.test.help')}
          onClick={() => work.run(() => rest.send('POST', '/mcp/cache/reset').then(reload))}
        >
          <Icon name="again" /> {say('tools.test')}
        </button>
      </div>
      <WorkTrouble trouble={work.trouble} />
      {generalProblems(value).map((problem) => (
        <p key={problem} role="alert" className="trouble">
          {problem}
        </p>
      ))}
      <Content loading={value === null} trouble={trouble} onRetry={reload}>
        {servers.length === 0 ? <p className="empty">{say('tools.none')}</p> : null}
        <ul className="cards one">
          {servers.map((server) => (
            <li key={server.name} className="panel">
              <div className="panel-head">
                <h2>
                  <Icon name="plug" /> {server.name}
                </h2>
                <StateBadge state={server.state} />
                <div className="row-actions">
                  <RowButton
                    icon="pencil"
                    label={say('tools.edit')}
                    name={server.name}
                    onClick={() => setAsking({ what: 'edit', server })}
                  />
                  <RowButton
                    icon="trash"
                    label={say('tools.delete')}
                    name={server.name}
                    onClick={() => setAsking({ what: 'delete', server })}
                  />
                </div>
                <Switch
                  label={say('skills.on', { name: server.name })}
                  on={server.enabled}
                  disabled={work.busy}
                  onChange={(enabled) =>
                    work.run(async () =>
                      set(await rest.send('PATCH', '/mcp/config', { server_name: server.name, enabled })),
                    )
                  }
                />
              </div>
              {server.description === '' ? null : <p className="note">{server.description}</p>}
              {server.state === 'failed' && server.reason !== null ? (
                <p role="alert" className="trouble">
                  {server.reason}
                </p>
              ) : null}
              <ToolNames tools={server.tools} />
            </li>
          ))}
        </ul>
      </Content>
      {asking?.what === 'add' || asking?.what === 'edit' ? (
        <ServerForm
          server={asking.what === 'edit' ? asking.server : null}
          taken={servers.map((server) => server.name)}
          onClose={close}
          onSave={async (name, entry) => {
            await write({ ...sectionOf(value), [name]: entry });
            close();
          }}
        />
      ) : null}
      {asking?.what === 'delete' ? (
        <Confirm
          title={say('tools.delete.title')}
          action={say('tools.delete')}
          onClose={close}
          onConfirm={async () => {
            const { [asking.server.name]: _gone, ...others } = sectionOf(value);
            await write(others);
          }}
        >
          <p>{say('tools.delete.text', { name: asking.server.name })}</p>
        </Confirm>
      ) : null}
    </PageFrame>
  );
}

function StateBadge({ state }: { readonly state: string | null }) {
  const { say } = usePage();
  const key = `tools.state.${state ?? 'off'}`;
  return <span className={`badge ${state ?? ''}`}>{isWordKey(key) ? say(key) : state}</span>;
}

function ToolNames({ tools }: { readonly tools: readonly string[] }) {
  const { say } = usePage();
  const [all, setAll] = useState(false);
  if (tools.length === 0) return null;
  return (
    <div className="badges start">
      {(all ? tools : tools.slice(0, TOOLS_SHOWN)).map((tool) => (
        <code key={tool} className="badge">
          {tool}
        </code>
      ))}
      {tools.length > TOOLS_SHOWN && !all ? (
        <button type="button" className="link" onClick={() => setAll(true)}>
          {say('tools.more', { count: tools.length - TOOLS_SHOWN })}
        </button>
      ) : null}
    </div>
  );
}
