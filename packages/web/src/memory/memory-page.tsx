import { useCallback, useEffect, useState } from 'react';
import type { Rest } from '../api/rest.ts';
import { ApiError } from '../api/trouble.ts';
import { isDictionary, listOf, textOr } from '../chat/wire.ts';
import { Confirm } from '../parts/confirm.tsx';
import { Icon } from '../parts/icons.tsx';
import { usePage } from '../parts/page-context.tsx';
import { Content, PageFrame } from '../parts/page-frame.tsx';
import { saveFile } from '../parts/save-file.ts';
import { useLoad, useWork, WorkTrouble } from '../parts/use-work.tsx';
import { isWordKey, timeText } from '../words/words.ts';
import { FactDialog } from './fact-dialog.tsx';
import {
  categoriesOf,
  type Fact,
  followsFrom,
  listed,
  type MemoryDocument,
  readFacts,
  readMemory,
  readStatus,
} from './memory.ts';

const SEARCH_AFTER_MS = 250;

type Asking =
  | { readonly what: 'add' }
  | { readonly what: 'clear' }
  | { readonly what: 'edit'; readonly fact: Fact }
  | { readonly what: 'forget'; readonly fact: Fact }
  | { readonly what: 'import'; readonly document: unknown; readonly facts: number };

/** What is remembered of the user: facts and summaries; seen, searched, corrected, forgotten, taken along. */
export default function MemoryPage({ rest }: { readonly rest: Rest }) {
  const { say, language, announce } = usePage();
  // Facts are kept for each agent; summaries are shared.
  const [agent, setAgent] = useState('');
  const agents = useLoad(useCallback((signal: AbortSignal) => agentNames(rest, signal), [rest]));
  const query = agent === '' ? '' : `?agent_name=${encodeURIComponent(agent)}`;
  const load = useCallback(
    async (signal: AbortSignal) => {
      const [document, status] = await Promise.all([
        rest.get(`/memory${query}`, signal),
        rest.get(`/memory/status${query}`, signal),
      ]);
      return { document: readMemory(document), status: readStatus(status) };
    },
    [rest, query],
  );
  const { value, trouble, reload } = useLoad(load);
  const [asking, setAsking] = useState<Asking | null>(null);
  const [category, setCategory] = useState('');
  const [text, setText] = useState('');
  const found = useSearch(rest, text, query);
  const work = useWork();
  const close = () => setAsking(null);
  const facts = value?.document.facts ?? [];
  const shown = listed(found.facts ?? facts, category);
  const takeFile = (file: File) =>
    work.run(async () => {
      const document = parse(await file.text());
      if (!isDictionary(document)) throw new ApiError(0, { kind: 'input', detail: say('memory.import.bad') });
      setAsking({ what: 'import', document, facts: readMemory(document).facts.length });
    });
  return (
    <PageFrame title={say('page.memory')} about={say('memory.about')}>
      <Content loading={value === null} trouble={trouble} onRetry={reload}>
        {value === null ? null : (
          <p className={value.status.learns ? 'banner round' : 'banner round warn'} role="status">
            {value.status.learns
              ? say('memory.learns', { model: value.status.model ?? '' })
              : `${value.status.enabled ? say('memory.learnsNot') : say('memory.off')} ${value.status.enabled ? (value.status.reason ?? '') : ''}`}
            {value.status.pending > 0 ? ` ${say('memory.pending', { count: value.status.pending })}` : ''}
          </p>
        )}
        {(agents.value ?? []).length === 0 ? null : (
          <label className="inline-field">
            {say('memory.agent')}
            <select value={agent} onChange={(event) => setAgent(event.target.value)}>
              <option value="">{say('memory.agent.default')}</option>
              {agents.value?.map((name) => (
                <option key={name} value={name}>
                  {name}
                </option>
              ))}
            </select>
          </label>
        )}
        <section className="panel" aria-labelledby="facts">
          <div className="panel-head">
            <h2 id="facts">{say('memory.facts', { count: facts.length })}</h2>
            <button type="button" className="primary" onClick={() => setAsking({ what: 'add' })}>
              <Icon name="plus" /> {say('memory.add')}
            </button>
          </div>
          <div className="filter">
            <input
              type="search"
              value={text}
              aria-label={say('memory.search')}
              placeholder={say('memory.search')}
              onChange={(event) => setText(event.target.value)}
            />
            <select
              aria-label={say('memory.category')}
              value={category}
              onChange={(event) => setCategory(event.target.value)}
            >
              <option value="">{say('memory.category.all')}</option>
              {categoriesOf(facts).map((name) => (
                <option key={name} value={name}>
                  {categoryText(name, say)}
                </option>
              ))}
            </select>
          </div>
          <WorkTrouble trouble={found.trouble} />
          {shown.length === 0 ? (
            <p className="note">{facts.length === 0 ? say('memory.none') : say('memory.notFound')}</p>
          ) : null}
          <ul className="rows">
            {shown.map((fact) => (
              <li key={fact.id}>
                <div className="row-text">
                  <p>{fact.content}</p>
                  <p className="note">
                    {categoryText(fact.category, say)} ·{' '}
                    {say('memory.sure', { percent: Math.round(fact.confidence * 100) })}
                    {fact.createdAt === null ? '' : ` · ${timeText(fact.createdAt, language)}`}
                  </p>
                </div>
                <div className="row-actions">
                  <button
                    type="button"
                    className="quiet square"
                    aria-label={`${say('memory.edit')}: ${fact.content}`}
                    title={say('memory.edit')}
                    onClick={() => setAsking({ what: 'edit', fact })}
                  >
                    <Icon name="pencil" />
                  </button>
                  <button
                    type="button"
                    className="quiet square"
                    aria-label={`${say('memory.forget')}: ${fact.content}`}
                    title={say('memory.forget')}
                    onClick={() => setAsking({ what: 'forget', fact })}
                  >
                    <Icon name="trash" />
                  </button>
                </div>
              </li>
            ))}
          </ul>
        </section>
        {value === null ? null : <Summaries document={value.document} />}
        <section className="panel">
          <h2>{say('memory.all')}</h2>
          <WorkTrouble trouble={work.trouble} />
          <div className="bar">
            <button
              type="button"
              disabled={work.busy}
              onClick={() =>
                work.run(async () =>
                  saveFile(JSON.stringify(await rest.get(`/memory/export${query}`), null, 2), 'memory.json'),
                )
              }
            >
              <Icon name="save" /> {say('memory.export')}
            </button>
            <label className="button">
              <Icon name="file" /> {say('memory.import')}
              <input
                type="file"
                accept="application/json,.json"
                className="only-heard"
                onChange={(event) => {
                  const file = event.target.files?.[0];
                  if (file !== undefined) takeFile(file);
                  event.target.value = '';
                }}
              />
            </label>
            <button type="button" className="danger" onClick={() => setAsking({ what: 'clear' })}>
              <Icon name="trash" /> {say('memory.clear')}
            </button>
          </div>
        </section>
      </Content>
      {asking?.what === 'add' || asking?.what === 'edit' ? (
        <FactDialog
          fact={asking.what === 'edit' ? asking.fact : null}
          onClose={close}
          onSave={async (input) => {
            if (asking.what === 'add') await rest.send('POST', `/memory/facts${query}`, input);
            else
              await rest.send('PATCH', `/memory/facts/${encodeURIComponent(asking.fact.id)}${query}`, {
                ...input,
                revision: asking.fact.revision,
              });
            close();
            reload();
          }}
        />
      ) : null}
      {asking?.what === 'forget' ? (
        <Confirm
          title={say('memory.forget.title')}
          action={say('memory.forget')}
          onClose={close}
          onConfirm={async () => {
            await rest.send('DELETE', `/memory/facts/${encodeURIComponent(asking.fact.id)}${query}`);
            announce(say('memory.forgotten'));
            setText('');
            reload();
          }}
        >
          <p>“{asking.fact.content}”</p>
          <WhatFollows document={value?.document ?? null} fact={asking.fact} />
        </Confirm>
      ) : null}
      {asking?.what === 'clear' ? (
        <Confirm
          title={say('memory.clear.title')}
          action={say('memory.clear')}
          onClose={close}
          onConfirm={async () => {
            await rest.send('DELETE', `/memory${query}`);
            reload();
          }}
        >
          <p>{say('memory.clear.text')}</p>
        </Confirm>
      ) : null}
      {asking?.what === 'import' ? (
        <Confirm
          title={say('memory.import.title')}
          action={say('memory.import')}
          onClose={close}
          onConfirm={async () => {
            await rest.send('POST', `/memory/import${query}`, asking.document);
            reload();
          }}
        >
          <p>{say('memory.import.text', { count: asking.facts })}</p>
        </Confirm>
      ) : null}
    </PageFrame>
  );
}

/** Assistants that are no graph of their own are the user's agents. */
async function agentNames(rest: Rest, signal: AbortSignal): Promise<readonly string[]> {
  const found = await rest.send('POST', '/assistants/search', { limit: 200 });
  signal.throwIfAborted();
  return listOf(found)
    .filter(isDictionary)
    .filter((entry) => isDictionary(entry.metadata) && entry.metadata.created_by === 'user')
    .map((entry) => textOr(entry.assistant_id, ''))
    .filter((name) => name !== '');
}

/** Before a fact goes: the sentences of the summaries that go with it. */
function WhatFollows({ document, fact }: { readonly document: MemoryDocument | null; readonly fact: Fact }) {
  const { say } = usePage();
  const statements = document === null ? [] : followsFrom(document, fact.id);
  if (statements.length === 0) return <p className="note">{say('memory.forget.alone')}</p>;
  return (
    <>
      <p>{say('memory.forget.follows')}</p>
      <ul className="follows">
        {statements.map((statement) => (
          <li key={statement.text}>{statement.text}</li>
        ))}
      </ul>
    </>
  );
}

function Summaries({ document }: { readonly document: MemoryDocument }) {
  const { say } = usePage();
  return (
    <section className="panel">
      <h2>{say('memory.summaries')}</h2>
      {document.sections.length === 0 ? <p className="note">{say('memory.summaries.none')}</p> : null}
      {document.sections.map((section) => (
        <div key={section.name}>
          <h3>{say(`memory.section.${section.name}`)}</h3>
          <p>{section.statements.map(({ text }) => text).join(' ')}</p>
        </div>
      ))}
    </section>
  );
}

function categoryText(name: string, say: ReturnType<typeof usePage>['say']): string {
  const key = `memory.category.${name}`;
  return isWordKey(key) ? say(key) : name;
}

/** Asks the server, which knows words of all languages; null = nothing is searched for. */
function useSearch(rest: Rest, text: string, query: string) {
  const [facts, setFacts] = useState<readonly Fact[] | null>(null);
  const { run, trouble } = useWork();
  useEffect(() => {
    const wanted = text.trim();
    if (wanted === '') {
      setFacts(null);
      return;
    }
    const leave = new AbortController();
    const timer = setTimeout(
      () =>
        run(async () => {
          const more = query === '' ? '' : `&${query.slice(1)}`;
          const found = await rest
            .get(`/memory/search?limit=100&query=${encodeURIComponent(wanted.slice(0, 1_000))}${more}`, leave.signal)
            .catch((error: unknown) => {
              if (leave.signal.aborted) return null;
              throw error;
            });
          if (found !== null) setFacts(readFacts((found as { facts?: unknown }).facts));
        }),
      SEARCH_AFTER_MS,
    );
    return () => {
      clearTimeout(timer);
      leave.abort();
    };
  }, [rest, text, query, run]);
  return { facts, trouble };
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
