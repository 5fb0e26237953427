import { postgresMissing, redisMissing, verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { checkThread, type Seen, type StormVerdict, type ThreadHistory } from './storm/history.ts';
import { storm } from './storm/storm.ts';
import { answered, asked } from './storm/work.ts';

/** The long version is `npm run chaos -- --minutes 3`. */
const SECONDS = 16;

describe('a storm over several instances', () => {
  test('loses nothing, doubles nothing, and leaves nothing stuck', verifies('RS-01', 'RS-02'), async (ctx) => {
    const missing = await postgresMissing();
    if (missing !== null) ctx.skip(missing);
    const withRedis = (await redisMissing()) === null;
    const result = await storm({ seed: 5, seconds: SECONDS, withRedis, instances: 2, clients: 16, threads: 6 });
    const { lost, doubled, stuck, wrong } = result;
    expect({ lost, doubled, stuck, wrong }, result.offending.join('\n')).toEqual({
      lost: [],
      doubled: [],
      stuck: [],
      wrong: [],
    });
    expect(Object.values(result.runs).reduce((a, b) => a + b, 0)).toBeGreaterThan(5);
  });
});

describe('the checker of storms', () => {
  const question = { id: 'q', type: 'human', content: asked('c1-1') };
  const first = {
    id: 'm1',
    type: 'ai',
    content: 'I begin.',
    tool_calls: [{ name: 'bash', args: { command: 'echo c1-1-1 >> /x; sleep 1' } }],
  };
  const tool = { id: 't1', type: 'tool', content: '(no output)' };
  const last = { id: 'm2', type: 'ai', content: answered('c1-1') };
  const seen: Seen = {
    label: 'c1-1',
    runIds: ['r', 'r'],
    contradictions: [],
    ends: ['success'],
    texts: new Map([
      ['m1', first.content],
      ['m2', last.content],
    ]),
    streamProblems: [],
  };
  const run = {
    run_id: 'r',
    status: 'success',
    acknowledged: true,
    error: null,
    metadata: { label: 'c1-1' },
    created_at: '',
  };
  const message = (body: { id: string; type: string; content: string }) =>
    ({ kind: 'message', ns: '', message: body }) as const;
  const call = { messageId: 'm1', index: 0, toolCallId: null, name: 'bash' } as const;
  const status = (name: 'pending' | 'running' | 'success', terminal = false) =>
    ({ kind: 'run', status: name, attempt: 1, terminal }) as const;
  const bodies = [
    status('pending'),
    status('running'),
    message(question),
    message(first),
    { kind: 'tool-started', attempt: 1, ...call } as const,
    { kind: 'tool-finished', outcome: 'ok', ...call } as const,
    message(tool),
    message(last),
    status('success', true),
  ];
  const numbered = (contents: readonly ThreadHistory['facts'][number]['content'][], runId = 'r') =>
    contents.map((content, index) => ({ seq: index + 1, run_id: runId, content }));
  const good: ThreadHistory = {
    threadId: 't',
    status: 'idle',
    facts: numbered(bodies),
    runs: [run],
    messages: [question, first, tool, last],
    effects: ['c1-1-1'],
    seen: [seen],
  };
  const found = ({ lost, doubled, stuck, wrong }: StormVerdict) => ({
    lost: lost.length > 0,
    doubled: doubled.length > 0,
    stuck: stuck.length > 0,
    wrong: wrong.length > 0,
  });

  test('passes a right history and finds each kind of damage', () => {
    expect(checkThread(good)).toMatchObject({ lost: [], doubled: [], stuck: [], wrong: [], finishedTools: 1 });
    const without = (index: number) => numbered(bodies.filter((_, at) => at !== index));
    const withMore = (at: number, ...more: ThreadHistory['facts'][number]['content'][]) =>
      numbered([...bodies.slice(0, at), ...more, ...bodies.slice(at)]);
    const other = { ...run, run_id: 's', metadata: { label: 'c2-1' } };
    const overlapping = [
      ...good.facts.slice(0, 4),
      { seq: 5, run_id: 's', content: status('running') },
      ...good.facts.slice(4).map((fact) => ({ ...fact, seq: fact.seq + 1 })),
      { seq: 11, run_id: 's', content: status('success', true) },
    ];
    const damages: readonly (readonly [string, keyof ReturnType<typeof found>, Partial<ThreadHistory>])[] = [
      ['a hole in the log', 'wrong', { facts: good.facts.filter(({ seq }) => seq !== 3) }],
      ['a message that no fact told', 'lost', { facts: without(7) }],
      ['a doubled message', 'doubled', { messages: [...good.messages, last] }],
      ['a lost answer', 'lost', { messages: good.messages.slice(0, 3) }],
      ['a lost run', 'lost', { runs: [] }],
      ['two runs for one key', 'doubled', { runs: [run, { ...run, run_id: 'r2' }] }],
      ['two answers under one key', 'doubled', { seen: [{ ...seen, runIds: ['r', 's'] }] }],
      ['a refused repeat', 'wrong', { seen: [{ ...seen, contradictions: ['refused after it was accepted'] }] }],
      ['no end', 'lost', { facts: without(8) }],
      ['two ends', 'doubled', { facts: withMore(9, status('success', true)) }],
      ['work behind the end', 'wrong', { facts: withMore(9, message({ ...tool, id: 't9' })) }],
      ['a receipt without an end', 'wrong', { facts: withMore(4, { kind: 'delivery', receipt: null }) }],
      ['two runs at once', 'doubled', { facts: overlapping, runs: [run, other] }],
      ['a run that does not end', 'stuck', { runs: [{ ...run, status: 'running', acknowledged: false }] }],
      ['a busy thread', 'stuck', { status: 'busy' }],
      ['a tool begun twice', 'doubled', { facts: withMore(5, { kind: 'tool-started', attempt: 1, ...call }) }],
      ['an effect twice', 'doubled', { effects: ['c1-1-1', 'c1-1-1'] }],
      ['an effect lost', 'lost', { effects: [] }],
      ['another end told', 'wrong', { seen: [{ ...seen, ends: ['error'] }] }],
      ['a text streamed wrong', 'wrong', { seen: [{ ...seen, texts: new Map([['m1', 'I beginI begin.']]) }] }],
      ['a failed run', 'wrong', { runs: [{ ...run, status: 'error', error: 'odd' }] }],
      ['a rollback that left messages', 'wrong', { runs: [{ ...run, status: 'error', error: 'Rolled back by user' }] }],
    ];
    for (const [name, kind, damage] of damages)
      expect([name, found(checkThread({ ...good, ...damage }))[kind]]).toEqual([name, true]);
  });
});
