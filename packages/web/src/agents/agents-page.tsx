import { useCallback, useState } from 'react';
import type { Features, ModelEntry } from '../api/api.ts';
import type { Rest } from '../api/rest.ts';
import { isDictionary, textOr } from '../chat/wire.ts';
import { CodeBlock } from '../parts/code-block.tsx';
import { Confirm } from '../parts/confirm.tsx';
import { InputField } from '../parts/fields.tsx';
import { FormDialog } from '../parts/form-dialog.tsx';
import { Icon } from '../parts/icons.tsx';
import { PlaceLink, usePage } from '../parts/page-context.tsx';
import { Content, PageFrame } from '../parts/page-frame.tsx';
import { useLoad, useWork, WorkTrouble } from '../parts/use-work.tsx';
import { AgentForm } from './agent-form.tsx';
import { type Agent, isName, readAgents } from './agents.ts';

interface AgentsPageProps {
  readonly rest: Rest;
  readonly models: readonly ModelEntry[];
  readonly features: Features | null;
}

/** The custom agents of the user: talked to, made, changed, deleted. */
export default function AgentsPage({ rest, models, features }: AgentsPageProps) {
  const { say } = usePage();
  if (features?.agents === true) return <Managed rest={rest} models={models} />;
  return (
    <PageFrame title={say('page.agents')} about={say('agents.about')}>
      {features === null ? (
        <p className="note">{say('page.loading')}</p>
      ) : (
        <section className="panel">
          <h2>{say('agents.off')}</h2>
          <p>{say('agents.off.how')}</p>
          <CodeBlock>{'agents_api:\n  enabled: true'}</CodeBlock>
        </section>
      )}
    </PageFrame>
  );
}

type Asking = { readonly what: 'create' | 'talk' } | { readonly what: 'edit' | 'delete'; readonly agent: Agent };

function Managed({ rest, models }: { readonly rest: Rest; readonly models: readonly ModelEntry[] }) {
  const { say, go } = usePage();
  const load = useCallback(async (signal: AbortSignal) => readAgents(await rest.get('/agents', signal)), [rest]);
  const { value, trouble, reload } = useLoad(load);
  const [asking, setAsking] = useState<Asking | null>(null);
  const close = () => setAsking(null);
  return (
    <PageFrame title={say('page.agents')} about={say('agents.about')}>
      <div className="bar">
        <button type="button" className="primary" onClick={() => setAsking({ what: 'talk' })}>
          <Icon name="plus" /> {say('agents.byTalking')}
        </button>
        <button type="button" onClick={() => setAsking({ what: 'create' })}>
          <Icon name="pencil" /> {say('agents.byForm')}
        </button>
      </div>
      <Content loading={value === null} trouble={trouble} onRetry={reload}>
        {value?.length === 0 ? <p className="empty">{say('agents.none')}</p> : null}
        <ul className="cards">
          {value?.map((agent) => (
            <li key={agent.name} className="panel">
              <div className="panel-head">
                <h2>
                  <Icon name="agent" /> {agent.name}
                </h2>
                <div className="row-actions">
                  <button
                    type="button"
                    className="quiet square"
                    aria-label={`${say('agents.edit')}: ${agent.name}`}
                    title={say('agents.edit')}
                    onClick={() => setAsking({ what: 'edit', agent })}
                  >
                    <Icon name="pencil" />
                  </button>
                  <button
                    type="button"
                    className="quiet square"
                    aria-label={`${say('agents.delete')}: ${agent.name}`}
                    title={say('agents.delete')}
                    onClick={() => setAsking({ what: 'delete', agent })}
                  >
                    <Icon name="trash" />
                  </button>
                </div>
              </div>
              <p>{agent.description}</p>
              <span className="badges">
                {agent.model === null ? null : <span className="badge">{agent.model}</span>}
                {agent.groups?.map((group) => (
                  <span key={group} className="badge">
                    {group}
                  </span>
                ))}
                {agent.skills === null ? null : (
                  <span className="badge">{say('agents.skills.count', { count: agent.skills.length })}</span>
                )}
              </span>
              <PlaceLink to={{ at: 'new', agent: agent.name, bootstrap: false }} className="button">
                {say('agents.talk', { name: agent.name })}
              </PlaceLink>
            </li>
          ))}
        </ul>
        <UserProfile rest={rest} />
      </Content>
      {asking?.what === 'create' || asking?.what === 'edit' ? (
        <AgentForm
          rest={rest}
          models={models}
          agent={asking.what === 'edit' ? asking.agent : null}
          onClose={close}
          onSaved={() => {
            close();
            reload();
          }}
        />
      ) : null}
      {asking?.what === 'talk' ? (
        <NameDialog
          rest={rest}
          onClose={close}
          onName={(name) => go({ at: 'new', agent: name.toLowerCase(), bootstrap: true })}
        />
      ) : null}
      {asking?.what === 'delete' ? (
        <Confirm
          title={say('agents.delete.title')}
          action={say('agents.delete')}
          onClose={close}
          onConfirm={async () => {
            await rest.send('DELETE', `/agents/${encodeURIComponent(asking.agent.name)}`);
            reload();
          }}
        >
          <p>{say('agents.delete.text', { name: asking.agent.name })}</p>
        </Confirm>
      ) : null}
    </PageFrame>
  );
}

interface NameDialogProps {
  readonly rest: Rest;
  readonly onClose: () => void;
  readonly onName: (name: string) => void;
}

/** The first step of making an agent by talking: a name that is free. */
function NameDialog({ rest, onClose, onName }: NameDialogProps) {
  const { say } = usePage();
  const [name, setName] = useState('');
  const [taken, setTaken] = useState(false);
  const submit = async () => {
    const answer = await rest.get(`/agents/check?name=${encodeURIComponent(name)}`);
    const isFree = isDictionary(answer) && answer.available === true;
    setTaken(!isFree);
    if (isFree) onName(name);
  };
  const wrong = name !== '' && !isName(name);
  return (
    <FormDialog
      title={say('agents.byTalking')}
      action={say('agents.begin')}
      ready={isName(name)}
      onSubmit={submit}
      onClose={onClose}
    >
      <p>{say('agents.byTalking.how')}</p>
      <InputField
        label={say('agents.name')}
        note={say('agents.name.rule')}
        value={name}
        maxLength={64}
        aria-invalid={wrong || taken}
        placeholder="writer"
        onChange={(text) => {
          setName(text.trim());
          setTaken(false);
        }}
      />
      {taken ? (
        <p role="alert" className="trouble">
          {say('agents.name.taken')}
        </p>
      ) : null}
    </FormDialog>
  );
}

/** What the user says of themselves, for all agents. */
function UserProfile({ rest }: { readonly rest: Rest }) {
  const { say } = usePage();
  const load = useCallback(
    async (signal: AbortSignal) => {
      const answer = await rest.get('/user-profile', signal);
      return textOr(isDictionary(answer) ? answer.content : null, '');
    },
    [rest],
  );
  const { value, trouble, reload, set } = useLoad(load);
  const [text, setText] = useState<string | null>(null);
  const work = useWork();
  return (
    <section className="panel">
      <h2>
        <label htmlFor="user-profile">{say('agents.you')}</label>
      </h2>
      <p className="note">{say('agents.you.about')}</p>
      <Content loading={value === null} trouble={trouble} onRetry={reload}>
        <textarea
          id="user-profile"
          className="wide-field"
          rows={4}
          maxLength={65_536}
          value={text ?? value ?? ''}
          onChange={(event) => setText(event.target.value)}
        />
        <WorkTrouble trouble={work.trouble} />
        <button
          type="button"
          disabled={work.busy || text === null || text === value}
          onClick={() =>
            work.run(async () => {
              await rest.send('PUT', '/user-profile', { content: text });
              set(text ?? '');
              setText(null);
            })
          }
        >
          {say('dialog.save')}
        </button>
      </Content>
    </section>
  );
}
