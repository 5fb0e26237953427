import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { NO_LOG } from '@reindeer/protocol';
import { systemSurroundings } from '@reindeer/runtime';
import { type Script, type ScriptRequest, startScriptedProvider } from '@reindeer/scripted';
import { verifies } from '@reindeer/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createAgents } from './agents.ts';
import { compose } from './compose.ts';
import { loadConfig } from './config/load.ts';
import { resolveSettings } from './config/settings.ts';
import { EVENT_TYPES } from './http/run-events.ts';
import { Lifecycle } from './life/lifecycle.ts';
import { resourcesOf } from './resources.ts';

/** A whole server in this process, a model of a script, files in its own folders: what happened is told by its API. */

type Row = Record<string, unknown>;
interface Message {
  readonly id: string;
  readonly type: string;
  readonly content: unknown;
}

const OUT = '/mnt/user-data/outputs';
const usage = { inputTokens: 100, outputTokens: 10 };
const write = (path: string, content: string) => ({ name: 'write_file', args: { description: 'd', path, content } });
const present = (path: string) => ({ name: 'present_files', args: { filepaths: [path] } });

/** What the newest words of the user ask for, and how many answers there were since. */
function newest(request: ScriptRequest): { readonly words: string; readonly step: number } {
  const at = request.messages.findLastIndex((message) => message.role === 'user' && message.written === true);
  const last = at === -1 ? request.messages.findIndex((message) => message.role === 'user') : at;
  const step = request.messages.slice(last).filter((message) => message.role === 'assistant').length;
  return { words: request.messages[last]?.text ?? '', step };
}

const script: Script = (request) => {
  const { words, step } = newest(request);
  if (words.includes('look it up')) return { text: 'Looked up.', usage: { inputTokens: 7, outputTokens: 3 } };
  if (words.includes('deliver')) {
    if (step === 0) return { toolCalls: [write(`${OUT}/report.md`, '# Report\n')], usage };
    if (step === 1 && words.includes('asking'))
      return {
        toolCalls: [
          { name: 'ask_clarification', args: { question: 'Which one?', clarification_type: 'approach_choice' } },
        ],
        usage,
      };
    if (step === 1 && words.includes('properly')) return { toolCalls: [present(`${OUT}/report.md`)], usage };
  }
  if (words.includes('delegate') && step === 0)
    return {
      toolCalls: [
        { name: 'task', args: { description: 'look', prompt: 'look it up', subagent_type: 'general-purpose' } },
      ],
      usage,
    };
  if (words.includes('fail')) return { fault: { kind: 'status', status: 400, message: 'odd' } };
  return { text: `Answer to: ${words}`, usage };
};

let folder: string;
let base: string;
const stops: (() => Promise<unknown>)[] = [];
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'reindeer-history-'));
  stops.push(() => rm(folder, { recursive: true, force: true }));
  const provider = await startScriptedProvider({ script });
  stops.push(() => provider.close());
  await writeFile(
    join(folder, 'config.yaml'),
    `memory: {enabled: false}\nread_before_write: {enabled: false}\nmodels:\n  - name: scripted\n    use: openai\n    model: scripted\n    api_key: none\n    base_url: ${provider.openAiUrl}\n`,
  );
  const surroundings = systemSurroundings({ logger: NO_LOG });
  const lifecycle = new Lifecycle({ clock: surroundings.clock, logger: NO_LOG });
  stops.push(() => lifecycle.stop());
  const settings = resolveSettings(
    await loadConfig({ cwd: folder, environment: { REINDEER_HOME: join(folder, 'data') } }),
    { port: 0 },
  );
  const composed = await compose({
    settings,
    surroundings,
    lifecycle,
    resources: resourcesOf(new URL('./main.ts', import.meta.url).href),
    version: '0.0.0',
    variables: { PATH: process.env.PATH },
    agents: createAgents,
    serve: true,
  });
  base = `http://127.0.0.1:${composed.server?.port}/api`;
}, 60_000);
afterAll(async () => {
  for (const stop of stops.reverse()) await stop();
}, 60_000);

async function call<T = Row>(method: string, path: string, body?: object): Promise<{ status: number; body: T }> {
  const response = await fetch(`${base}${path}`, {
    method,
    ...(body === undefined ? {} : { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }),
  });
  return { status: response.status, body: (await response.json()) as T };
}
const get = async <T = Row>(path: string): Promise<T> => (await call<T>('GET', path)).body;

const newThread = async (): Promise<string> => String((await call('POST', '/threads', {})).body.thread_id);

/** Runs to its end. */
async function run(thread: string, part: object): Promise<Row> {
  const created = await call('POST', `/threads/${thread}/runs`, { assistant_id: 'lead_agent', ...part });
  expect([created.status, created.body.code]).toEqual([200, undefined]);
  const path = `/threads/${thread}/runs/${String(created.body.run_id)}`;
  await call('GET', `${path}/join`);
  return await get(path);
}
const say = (thread: string, text: string, part: object = {}): Promise<Row> =>
  run(thread, { input: { messages: [{ role: 'user', content: text }] }, ...part });
const messagesOf = async (thread: string): Promise<Message[]> =>
  (await get<{ values: { messages: Message[] } }>(`/threads/${thread}/state`)).values.messages.filter(
    ({ type, content }) => type !== 'system' && typeof content === 'string' && !content.includes('system-reminder'),
  );
const eventsOf = (thread: string, of: Row, query = ''): Promise<Row[]> =>
  get<Row[]>(`/threads/${thread}/runs/${String(of.run_id)}/events?${query}`);

describe('events of runs', () => {
  test(
    'changes and delivery of a run that presents its file, and of one that does not',
    verifies('FILE-4', 'FILE-4b', 'RT-05', 'RE-10', 'OBS-4'),
    async () => {
      const thread = await newThread();
      const good = await say(thread, 'deliver properly');
      expect([good.status, good.error]).toEqual(['success', null]);
      const changes = await get<{ available: boolean; summary: Row; files: Row[] }>(
        `/threads/${thread}/runs/${String(good.run_id)}/workspace-changes?include_diff=true`,
      );
      expect(changes).toMatchObject({ available: true, summary: { created: 1, additions: 1 } });
      expect(changes.files).toMatchObject([
        { path: `${OUT}/report.md`, status: 'created', diff: '@@ -0,0 +1,1 @@\n+# Report\n' },
      ]);
      const events = await eventsOf(thread, good);
      for (const event of events)
        expect(Object.keys(event).sort()).toEqual(
          ['thread_id', 'run_id', 'seq', 'event_type', 'category', 'content', 'metadata', 'created_at'].sort(),
        );
      for (const { event_type: type } of events)
        expect(String(type).startsWith('middleware:') || String(type) in EVENT_TYPES).toBe(true);
      const types = events.map((event) => event.event_type);
      expect(types[0]).toBe('run.start');
      expect(types.slice(-3)).toEqual(['workspace_changes', 'run.delivery', 'run.end']);
      expect(events.at(-2)?.content).toMatchObject({
        presented_paths: [`${OUT}/report.md`],
        by_tool: { present_files: 1 },
        stage: 'presented',
        satisfied: true,
      });
      // No arguments of tools in the events about tools.
      expect(JSON.stringify(events.filter((event) => event.category === 'tool'))).not.toContain('# Report');
      const bad = await say(await newThread(), 'deliver');
      expect(bad).toMatchObject({ status: 'error', stop_reason: 'delivery_incomplete' });
      // Who ends with a question has not delivered yet, and need not have.
      const asks = await newThread();
      const asking = await say(asks, 'deliver, asking first');
      expect([asking.status, asking.error]).toEqual(['success', null]);
      const [receipt] = await eventsOf(asks, asking, 'event_types=run.delivery');
      expect(receipt?.content).toMatchObject({ satisfied: false, stage: 'not_started' });
    },
  );

  test('pages and types are filtered before the limit, not after', verifies('RE-10'), async () => {
    const thread = await newThread();
    const done = await say(thread, 'deliver properly');
    const all = await eventsOf(thread, done, 'event_types=llm.ai.response,run.end');
    expect(all.map((event) => event.event_type)).toEqual([
      'llm.ai.response',
      'llm.ai.response',
      'llm.ai.response',
      'run.end',
    ]);
    const [, second] = all;
    expect(await eventsOf(thread, done, 'event_types=llm.ai.response,run.end&limit=2')).toEqual(all.slice(0, 2));
    expect(
      await eventsOf(thread, done, `event_types=llm.ai.response,run.end&limit=2&after_seq=${String(second?.seq)}`),
    ).toEqual(all.slice(2));
  });

  test(
    'a sub-agent is told by its events, its tokens count once, for it',
    verifies('API-11', 'OBS-1', 'OBS-5', 'MW-20'),
    async () => {
      const thread = await newThread();
      const done = await say(thread, 'delegate', { context: { subagent_enabled: true } });
      expect([done.status, done.error]).toEqual(['success', null]);
      const events = await eventsOf(thread, done, 'event_types=subagent.start,subagent.step,subagent.end');
      expect(events.map((event) => event.event_type)).toEqual(['subagent.start', 'subagent.step', 'subagent.end']);
      const { task_id: id } = (events[0]?.metadata ?? {}) as Row;
      expect(id).toEqual(expect.any(String));
      // Everything that the card shows: what it was asked, its steps, its result.
      expect(await eventsOf(thread, done, `task_id=${String(id)}`)).toEqual(events);
      expect(events[0]?.content).toMatchObject({ type: 'task_started', description: 'look' });
      expect(events[1]?.content).toMatchObject({ message: { type: 'ai', content: 'Looked up.' } });
      expect(events[2]?.content).toMatchObject({ type: 'task_completed', result: 'Looked up.' });
      expect(done).toMatchObject({ lead_agent_tokens: 220, subagent_tokens: 10, total_tokens: 230 });
      type Page = { data: Row[]; next_before_seq: number | null };
      const whole = (await get<Page>(`/threads/${thread}/messages/page`)).data;
      const dispatch = whole.find((row) => JSON.stringify(row.metadata).includes('subagent_dispatch'));
      expect(dispatch?.metadata).toMatchObject({
        token_usage_attribution: { version: 1, subagent_usage: [{ usage: { total_tokens: 10 } }] },
      });
      const cut = await get<Page>(`/threads/${thread}/messages/page?limit=1&before_seq=${Number(dispatch?.seq) + 1}`);
      expect(cut.data).toEqual([dispatch]);
      expect(await get(`/threads/${thread}/token-usage`)).toMatchObject({
        total_tokens: 230,
        total_input_tokens: 207,
        total_runs: 1,
        by_model: { scripted: { tokens: 230, runs: 1 } },
        by_caller: { lead_agent: 220, subagent: 10, middleware: 0 },
      });
    },
  );
});

describe('messages of a thread', () => {
  test('pages are full, in order, without replaced answers, with feedback', verifies('API-09', 'API-10'), async () => {
    const thread = await newThread();
    await say(thread, 'one');
    const second = await say(thread, 'two');
    const answer = (await messagesOf(thread)).at(-1);
    const prepared = await call('POST', `/threads/${thread}/runs/regenerate/prepare`, { message_id: answer?.id });
    expect(prepared.status).toBe(200);
    const { input, checkpoint, metadata } = prepared.body;
    const again = await run(thread, { input, checkpoint, metadata });
    expect(again.status).toBe('success');
    // The state holds the new answer in the place of the old one.
    const texts = (await messagesOf(thread)).map(({ content }) => content);
    expect(texts.filter((text) => text === 'Answer to: two')).toHaveLength(1);
    const path = `/threads/${thread}/runs/${String(again.run_id)}/feedback`;
    expect((await call('PUT', path, { rating: 2 })).status).toBe(400);
    const first = await call('PUT', path, { rating: 1 });
    const changed = await call('PUT', path, { rating: -1, comment: 'too short' });
    expect(changed.body).toMatchObject({ feedback_id: first.body.feedback_id, rating: -1 });
    expect(await get(`${path}/stats`)).toMatchObject({ total: 1, positive: 0, negative: 1 });

    type Page = { data: Row[]; has_more: boolean; next_before_seq: number | null };
    const whole = await get<Page>(`/threads/${thread}/messages/page?limit=200`);
    const seqs = whole.data.map((row) => Number(row.seq));
    expect(seqs).toEqual([...seqs].sort((a, b) => a - b));
    expect(whole.data.some((row) => row.run_id === second.run_id)).toBe(false);
    expect(whole.data.at(-1)).toMatchObject({ feedback: { rating: -1, comment: 'too short' } });
    expect([whole.has_more, whole.next_before_seq]).toEqual([false, null]);
    // Page by page of one: every page full, together the whole.
    const collected: Row[] = [];
    let before: number | null = null;
    do {
      const page: Page = await get<Page>(
        `/threads/${thread}/messages/page?limit=1${before === null ? '' : `&before_seq=${before}`}`,
      );
      if (page.has_more) expect(page.data).toHaveLength(1);
      collected.unshift(...page.data);
      before = page.next_before_seq;
    } while (before !== null);
    expect(collected).toEqual(whole.data);
    expect((await call('GET', `/threads/${thread}/messages/page?after_seq=1`)).status).toBe(422);
    expect((await call('DELETE', path)).status).toBe(200);
    expect((await call('DELETE', path)).status).toBe(404);
  });

  test(
    'the first turn can be edited; an edit that fails leaves everything as it was',
    verifies('API-10', 'RB-12'),
    async () => {
      const thread = await newThread();
      await say(thread, 'one');
      const question = (await messagesOf(thread)).find(({ type }) => type === 'human');
      const prepare = async (text: string): Promise<Row> => {
        const answer = await call('POST', `/threads/${thread}/runs/edit-regenerate/prepare`, {
          human_message_id: question?.id,
          replacement_text: text,
        });
        expect(answer.status).toBe(200);
        const { input, checkpoint, metadata } = answer.body;
        return await run(thread, { input, checkpoint, metadata });
      };
      const before = await messagesOf(thread);
      expect((await prepare('fail please')).status).toBe('error');
      expect(await messagesOf(thread)).toEqual(before);
      expect((await prepare('better')).status).toBe('success');
      expect((await messagesOf(thread)).map(({ content }) => content)).toEqual(['better', 'Answer to: better']);
      expect((await call('POST', `/threads/${thread}/runs/regenerate/prepare`, { message_id: 'nothing' })).status).toBe(
        404,
      );
    },
  );

  test(
    '34: an answer that a branch has inherited is made again, and what was said before it stays',
    verifies('API-10'),
    async () => {
      const thread = await newThread();
      await say(thread, 'one');
      await say(thread, 'two');
      const source = await messagesOf(thread);
      const made = await call('POST', `/threads/${thread}/branches`, { message_id: source.at(-1)?.id });
      const branch = String(made.body.thread_id);
      const inherited = await messagesOf(branch);
      const prepared = await call('POST', `/threads/${branch}/runs/regenerate/prepare`, {
        message_id: inherited.at(-1)?.id,
      });
      expect(prepared.status).toBe(200);
      const { input, checkpoint, metadata } = prepared.body;
      expect((await run(branch, { input, checkpoint, metadata })).status).toBe('success');
      const after = await messagesOf(branch);
      expect(after.map(({ content }) => content)).toEqual(['one', 'Answer to: one', 'two', 'Answer to: two']);
      expect(after.slice(0, 3).map(({ id }) => id)).toEqual(inherited.slice(0, 3).map(({ id }) => id));
      expect(after.at(-1)?.id).not.toBe(inherited.at(-1)?.id);
      // The pages hold all that the branch has inherited, without the answer that was replaced.
      const { data } = await get<{ data: Row[] }>(`/threads/${branch}/messages/page`);
      expect(data.map(({ content }) => (content as Message).id)).toEqual(after.map(({ id }) => id));
      expect(await messagesOf(thread)).toEqual(source);
      // What somebody wrote into the state is no turn: nothing between it and the last turn may be lost.
      const values = { messages: [{ type: 'human', id: 'written', content: 'three' }] };
      expect((await call('POST', `/threads/${thread}/state`, { values, as_node: 'tools' })).status).toBe(200);
      const written = { human_message_id: 'written', replacement_text: 'four' };
      expect((await call('POST', `/threads/${thread}/runs/edit-regenerate/prepare`, written)).status).toBe(409);
      // An earlier turn can be branched off, and edited, as well.
      const older = await call('POST', `/threads/${branch}/branches`, { message_id: after[1]?.id });
      const texts = async (of: unknown) => (await messagesOf(String(of))).map(({ content }) => content);
      expect(await texts(older.body.thread_id)).toEqual(['one', 'Answer to: one']);
      const edit = await call('POST', `/threads/${String(older.body.thread_id)}/runs/edit-regenerate/prepare`, {
        human_message_id: after[0]?.id,
        replacement_text: 'better',
      });
      const { input: words, checkpoint: from, metadata: of } = edit.body;
      expect((await run(String(older.body.thread_id), { input: words, checkpoint: from, metadata: of })).status).toBe(
        'success',
      );
      expect(await texts(older.body.thread_id)).toEqual(['better', 'Answer to: better']);
    },
  );

  test(
    'a turn that was answered again is answered again and changed from the same state',
    verifies('API-10'),
    async () => {
      const thread = await newThread();
      await say(thread, 'one');
      await say(thread, 'two');
      const replay = async (how: string, body: object): Promise<void> => {
        const { input, checkpoint, metadata } = (await call('POST', `/threads/${thread}/runs/${how}/prepare`, body))
          .body;
        expect((await run(thread, { input, checkpoint, metadata })).status).toBe('success');
      };
      for (const text of ['three', 'four']) {
        await replay('regenerate', { message_id: (await messagesOf(thread)).at(-1)?.id });
        const question = (await messagesOf(thread)).findLast(({ type }) => type === 'human');
        await replay('edit-regenerate', { human_message_id: question?.id, replacement_text: text });
        expect((await messagesOf(thread)).map(({ content }) => content)).toEqual([
          'one',
          'Answer to: one',
          text,
          `Answer to: ${text}`,
        ]);
      }
    },
  );

  test('a branch has the messages up to its turn, and files of its own', verifies('API-10'), async () => {
    const thread = await newThread();
    await say(thread, 'one');
    const first = (await messagesOf(thread)).at(-1);
    await say(thread, 'deliver properly');
    const last = (await messagesOf(thread)).at(-1);
    const branch = async (id: string | undefined, title?: string): Promise<Row> =>
      (await call('POST', `/threads/${thread}/branches`, { message_id: id, ...(title === undefined ? {} : { title }) }))
        .body;
    const old = await branch(first?.id, 'Older');
    expect(old).toMatchObject({
      parent_thread_id: thread,
      workspace_clone_mode: 'skipped_historical_turn',
      history_seed_mode: 'seeded',
    });
    expect((await messagesOf(String(old.thread_id))).map(({ content }) => content)).toEqual(['one', 'Answer to: one']);
    // The title is asked for, not the parent's: where chats are listed, and in the state that its runs go on from.
    const { values } = await get<{ values: Row }>(`/threads/${String(old.thread_id)}/state`);
    expect(values.title).toBe('Older');
    expect(await get<Row>(`/threads/${String(old.thread_id)}`)).toMatchObject({ values: { title: 'Older' } });
    const fresh = await branch(last?.id);
    expect(fresh.workspace_clone_mode).toBe('current_thread_best_effort');
    const file = (of: unknown) => fetch(`${base}/threads/${String(of)}/artifacts/mnt/user-data/outputs/report.md`);
    expect(await (await file(fresh.thread_id)).text()).toBe('# Report\n');
    expect((await file(old.thread_id)).status).toBe(404);
    // It goes on by itself, and the source stays.
    expect((await say(String(old.thread_id), 'three')).status).toBe('success');
    const { data: rows } = await get<{ data: Row[] }>(`/threads/${String(old.thread_id)}/messages/page`);
    expect(rows.map(({ inherited }) => inherited)).toEqual([true, true, false, false]);
    expect((await messagesOf(thread)).at(-1)?.id).toBe(last?.id);
    const page = await get<{ data: Row[] }>(`/threads/${String(fresh.thread_id)}/messages/page`);
    expect(page.data.length).toBeGreaterThanOrEqual(4);
  });
});
