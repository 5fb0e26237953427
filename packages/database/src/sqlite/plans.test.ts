import { DatabaseSync } from 'node:sqlite';
import { type Admission, NO_BATCH_USAGE, NO_USAGE } from '@reindeer/protocol';
import {
  channelMessage,
  channelProgress,
  checkpointPut,
  makeAdmission,
  memoryChange,
  memoryFact,
  newBatch,
  newSchedule,
  packed,
  WORK,
} from '@reindeer/testkit';
import { afterEach, expect, test } from 'vitest';
import {
  bindParameters,
  compileStatement,
  createDialect,
  type Script,
  type Statement,
  type Tx,
  transactionOver,
} from '../executor.ts';
import { scripts } from '../scripts.ts';
import { applyMigrations } from './migrate.ts';

/**
 * No statement may read a whole table: what is quick with ten rows must be quick with a million. Runs every kind of call against a
 * transaction that asks SQLite for the plan of each statement.
 */
const db = new DatabaseSync(':memory:');
applyMigrations(db);
const dialect = createDialect('sqlite');
const other = createDialect('postgres');
const plans = new Map<Statement<never, unknown>, { sql: string; plan: string[] }>();

function prepare<P extends object>(statement: Statement<P, unknown>, params: P) {
  const compiled = compileStatement(statement, dialect);
  const values = bindParameters(compiled, params);
  // Every statement is written for both databases, and finds its parameters on each.
  bindParameters(compileStatement(statement, other), params);
  const plan = db
    .prepare(`explain query plan ${compiled.sql}`)
    .all(...values)
    .map((row) => String(row.detail));
  plans.set(statement as Statement<never, unknown>, { sql: compiled.sql, plan });
  return { prepared: db.prepare(compiled.sql), values };
}
const connection: Omit<Tx, 'memory'> = {
  all: async (statement, params) => {
    const { prepared, values } = prepare(statement, params);
    return prepared.all(...values) as never;
  },
  first: async (statement, params) => {
    const { prepared, values } = prepare(statement, params);
    return prepared.get(...values) as never;
  },
  run: async (statement, params) => {
    const { prepared, values } = prepare(statement, params);
    return Number(prepared.run(...values).changes);
  },
  send: (statement, params, then) => {
    const { prepared, values } = prepare(statement, params);
    if (then === undefined) prepared.run(...values);
    else then(prepared.get(...values) as never);
  },
  appended: () => {},
  serial: true,
};
const called = new Set<string>();
function call<I, O>(script: Script<I, O>, input: I): Promise<O> {
  called.add(script.name);
  return script.run(transactionOver(connection), input);
}

const admission = (runId: string, part: Partial<Admission> = {}): Admission =>
  makeAdmission({ runId, multitaskStrategy: 'interrupt', idempotencyKey: `key-${runId}`, ...part });
const fenceOf = (runId: string) => ({ runId, token: `token-${runId}` });
const ended = (runId: string) =>
  ({
    fence: fenceOf(runId),
    status: 'interrupted',
    error: null,
    stopReason: null,
    usage: NO_USAGE,
    unlessCancelled: false,
    now: 1,
  }) as const;

afterEach(() => {
  db.close();
});

test('no statement of a call reads a whole table', async () => {
  const own = { threadId: 'thread', userId: 'user' };
  await call(scripts['threads.create'], { ...own, metadata: { a: 1 }, now: 1 });
  await call(scripts['runs.admit'], admission('r1'));
  await call(scripts['runs.admit'], admission('r1'));
  await call(scripts['runs.admit'], admission('r2'));
  const fence = fenceOf('r2');
  await call(scripts['runs.start'], { fence, checkpointBefore: '', now: 1 });
  await call(scripts['runs.start'], { fence, checkpointBefore: '', now: 1 });
  const holders = [{ ...fence, expiresAt: 20, allowInterrupted: false }];
  await call(scripts['runs.renew'], { holders });
  await call(scripts['runs.renewOne'], { holder: { ...fence, expiresAt: 30, allowInterrupted: false } });
  await call(scripts['log.append'], { ...own, fence, facts: checkpointPut(fence, 'c1').facts, now: 1 });
  const key = { threadId: 'thread', messageId: 'm', index: 0 };
  const begin = { fence, key, toolCallId: null, name: 'tool', attempt: 1, again: true, now: 1 };
  await call(scripts['journal.begin'], begin);
  db.exec("update tool_calls set token = 'earlier'");
  await call(scripts['journal.begin'], begin);
  await call(scripts['journal.unfinished'], own);
  await call(scripts['journal.retract'], { fence, key });
  await call(scripts['journal.begin'], begin);
  const body = '{"type":"human","id":"m","content":"x"}';
  const hash = 'A'.repeat(22);
  const result = { json: `{"$m":"${hash}"}`, messages: [{ hash, id: 'm', body }] };
  await call(scripts['journal.finish'], { fence, key, outcome: 'ok', result, now: 1 });
  await call(scripts['journal.finish'], { fence, key, outcome: 'ok', result, now: 1 });
  const facts = [{ key: 'm', body: { kind: 'message', ns: '', message: { $m: hash } } }] as const;
  await call(scripts['log.append'], { ...own, fence, facts, now: 1 });
  for (const runId of [null, 'r2']) {
    await call(scripts['log.read'], { ...own, runId, afterSeq: 0, limit: 10, maxBytes: 1000 });
    await call(scripts['log.messages'], { ...own, runId, before: null, after: null, limit: 10 });
    await call(scripts['log.messages'], { ...own, runId, before: null, after: 0, limit: 10 });
  }
  await call(scripts['log.find'], { ...own, words: ['x'], most: 1, limit: 10, maxBytes: 1000 });
  await call(scripts['log.firstSeq'], { ...own, runId: 'r2' });
  await call(scripts['checkpoints.put'], checkpointPut(fence, '1ef4f797-8335-6428-8001-8a1503f9b875'));
  await call(scripts['checkpoints.put'], {
    ...checkpointPut(fence, '1ef4f797-8335-6428-8002-8a1503f9b875'),
    parentId: '1ef4f797-8335-6428-8001-8a1503f9b875',
  });
  await call(scripts['checkpoints.putWrites'], {
    fence,
    threadId: 'thread',
    ns: '',
    checkpointId: '1ef4f797-8335-6428-8002-8a1503f9b875',
    taskId: '51f07a47-b2f4-5a8e-9f0a-0d3f9a8c2f11',
    taskPath: '',
    replace: false,
    writes: [{ index: 0, channel: 'text', type: 'json', value: packed('x') }],
    facts: [],
    now: 1,
  });
  await call(scripts['checkpoints.load'], { threadId: 'thread', ns: '', checkpointId: null });
  await call(scripts['checkpoints.load'], {
    threadId: 'thread',
    ns: '',
    checkpointId: '1ef4f797-8335-6428-8001-8a1503f9b875',
  });
  await call(scripts['runs.requestCancel'], { runId: 'r2', action: 'interrupt', now: 1 });
  const claim = { owner: 'peer', tokens: ['t'], leaseExpiresAt: 99, graceMs: 1, deadOwners: [], skipRunIds: ['r1'] };
  await call(scripts['runs.claimOrphans'], { ...claim, now: 1 });
  await call(scripts['runs.relinquish'], fenceOf('r2'));
  await call(scripts['runs.takeQueued'], { ...own, owner: 'me', token: 'turn', leaseExpiresAt: 9, now: 1 });
  await call(scripts['runs.freeQueues'], { limit: 10 });
  await call(scripts['runs.active'], own);
  await call(scripts['runs.list'], { ...own, status: null, limit: 10, offset: 0 });
  await call(scripts['runs.get'], { runId: 'r2' });
  await call(scripts['threads.get'], own);
  for (const status of [null, 'idle'] as const)
    await call(scripts['threads.search'], { userId: 'user', metadata: { a: 1 }, status, limit: 10, offset: 0 });
  await call(scripts['threads.update'], { ...own, metadata: { b: 2 }, touch: true, now: 1 });
  await call(scripts['threads.copy'], { fromThreadId: 'thread', toThreadId: 'copy', userId: 'user', now: 1 });
  const batch = { batchId: 'batch', userId: 'user', threadId: 'thread' };
  const create = (batchId: string, count: number) =>
    call(scripts['batches.create'], { ...newBatch({ ...batch, batchId, count, maxRunning: 9, maxAttempts: 1 }) });
  await create('batch', 6);
  const claiming = { owner: 'o', leaseMs: 10, limit: 9, exclude: ['none'] };
  const { items } = await call(scripts['batches.claim'], { ...claiming, now: 1 });
  const leases = items.map((item) => item.lease);
  await call(scripts['batches.renew'], {
    leases: [...leases, { itemId: 'none', owner: 'o', epoch: 1 }],
    leaseMs: 10,
    now: 2,
  });
  const [one, two, three] = leases;
  if (one === undefined || two === undefined || three === undefined) throw new Error('Too few items.');
  await call(scripts['batches.start'], { leases: [one, { ...two, epoch: 9 }], now: 2 });
  const outcome = { stopReason: null, modelName: null, usage: NO_BATCH_USAGE, now: 3 };
  const failure = { succeeded: false, error: 'no', notBefore: 0, ...outcome } as const;
  await call(scripts['batches.finish'], { items: [{ lease: one, ...failure }] });
  await call(scripts['batches.release'], { lease: two, error: 'full', notBefore: 0, now: 3 });
  await call(scripts['batches.cancelItem'], { ...batch, itemId: three.itemId, now: 3 });
  await call(scripts['batches.retryItem'], { ...batch, itemId: one.itemId, now: 3 });
  await call(scripts['batches.pause'], { ...batch, now: 3 });
  await call(scripts['batches.resume'], { ...batch, now: 3 });
  await call(scripts['batches.forfeit'], { prefix: 'o', now: 3 });
  await call(scripts['batches.claim'], { ...claiming, now: 50 });
  for (const status of [null, 'failed'] as const)
    await call(scripts['batches.items'], { ...batch, status, offset: 0, limit: 10, results: true });
  await call(scripts['batches.get'], batch);
  for (const threadId of [null, 'thread']) await call(scripts['batches.list'], { userId: 'user', threadId, limit: 5 });
  await create('ended', 1);
  const last = await call(scripts['batches.claim'], { ...claiming, now: 51 });
  for (const { lease } of last.items) await call(scripts['batches.finish'], { items: [{ lease, ...failure }] });
  await call(scripts['batches.cancel'], { ...batch, now: 60 });
  await call(scripts['batches.claimEnded'], { owner: 'o', leaseMs: 10, limit: 5, now: 61 });
  await call(scripts['batches.leftThreads'], { before: 61, after: '', limit: 5 });
  await call(scripts['batches.told'], { batchId: 'batch', ends: 1 });
  await call(scripts['batches.filed'], { batchId: 'batch', owner: 'o', ends: 1 });
  await call(scripts['batches.postpone'], { batchId: 'batch', owner: 'o', ends: 1, until: 70 });
  await call(scripts['batches.reported'], { batchId: 'batch', owner: 'o', ends: 1 });
  const memories = { userId: 'user', agent: '_default' };
  const fact = memoryFact('fact');
  const change = memoryChange({ put: [fact], sections: { topOfMind: [{ text: 'x', sources: ['fact'] }] } });
  await call(scripts['memory.change'], { ...memories, change, now: 1 });
  await call(scripts['memory.change'], { ...memories, change: memoryChange({ remove: ['fact'] }), now: 1 });
  await call(scripts['memory.read'], memories);
  await call(scripts['memory.audit'], memories);
  const conversation = { ...memories, threadId: 'thread', leaving: false, signals: [], maxPending: 9, maxMessages: 9 };
  await call(scripts['memory.enqueue'], { ...conversation, messages: [], dueAt: 1, now: 1 });
  const claimCapture = async (token: string) => {
    const [right] = await call(scripts['memory.claim'], { tokens: [token], leaseUntil: 9, now: 1 });
    if (right === undefined) throw new Error('Nothing was claimed.');
    return right;
  };
  await call(scripts['memory.postpone'], { right: await claimCapture('t1'), dueAt: 1, failed: true });
  const right = await claimCapture('t2');
  await call(scripts['memory.enqueue'], { ...conversation, messages: [], dueAt: 1, now: 1 });
  for (const change of [memoryChange(), null])
    await call(scripts['memory.settle'], {
      right: change === null ? await claimCapture('t3') : right,
      change,
      watermark: null,
      maxWatermarks: 0,
      now: 2,
    });
  for (const userId of ['user', null]) await call(scripts['memory.pending'], { userId });
  await call(scripts['memory.clear'], { userId: 'user', now: 3 });
  const schedule = newSchedule({ userId: 'user', scheduleId: 'schedule', nextRunAt: 1 });
  await call(scripts['schedules.create'], { schedule, limit: 9 });
  await call(scripts['schedules.update'], { ...schedule, edit: { title: 'x' }, now: 1 });
  await call(scripts['schedules.due'], { now: 1, limit: 5 });
  await call(scripts['schedules.nextDue'], {});
  const taking = (revision: number, occurrenceId: string) =>
    call(scripts['schedules.take'], {
      scheduleId: 'schedule',
      revision,
      nextRunAt: 2,
      occurrence: { occurrenceId, threadId: 'thread', work: WORK, scheduledFor: 1, trigger: 'scheduled' },
      owner: 'o',
      leaseMs: 1,
      maxOpen: 2,
      keep: 2,
      now: 1,
    });
  await taking(2, 'o1');
  await taking(3, 'o2');
  await call(scripts['schedules.takeOver'], { owner: 'p', leaseMs: 1, limit: 5, now: 2 });
  await call(scripts['schedules.launched'], { occurrenceId: 'o1', owner: 'p', runId: 'x', threadId: 'thread', now: 2 });
  await call(scripts['schedules.settle'], { now: 3, limit: 5 });
  await taking(5, 'o3');
  const failed = { occurrenceId: 'o3', owner: 'o', error: 'no', broken: true, now: 3 };
  await call(scripts['schedules.notLaunched'], failed);
  const listing = { userId: 'user', limit: 5, offset: 0 };
  for (const threadId of [null, 'thread']) await call(scripts['schedules.list'], { ...listing, threadId });
  await call(scripts['schedules.get'], { scheduleId: 'schedule', userId: 'user' });
  await call(scripts['schedules.occurrences'], { ...listing, scheduleId: 'schedule' });
  await call(scripts['schedules.remove'], { scheduleId: 'schedule', userId: 'user' });
  const listening = { channel: 'telegram:1', token: 't' };
  await call(scripts['channels.acquire'], { ...listening, owner: 'o', leaseMs: 9, graceMs: 0, now: 1 });
  await call(scripts['channels.acquire'], { ...listening, owner: 'p', leaseMs: 9, graceMs: 0, now: 1 });
  await call(scripts['channels.renew'], { fence: listening, leaseMs: 9, now: 1 });
  const message = channelMessage();
  await call(scripts['channels.receive'], { fence: listening, messages: [message], limit: 9, now: 1 });
  const [entry] = await call(scripts['channels.due'], { channel: listening.channel, limit: 9, now: 1 });
  const at = { fence: listening, key: entry?.key ?? 0, now: 2 };
  const code = { provider: 'telegram', codeHash: 'h' };
  await call(scripts['channels.issueCode'], { ...code, userId: 'user', expiresAt: 9, limit: 5, now: 1 });
  const account = { provider: 'telegram', workspaceId: '', externalId: '7' };
  const connection = { ...account, connectionId: 'c', externalName: 'Ann' };
  for (const codeHash of ['h', 'other']) await call(scripts['channels.redeem'], { ...at, codeHash, connection });
  await call(scripts['channels.connectionOf'], account);
  await call(scripts['channels.connections'], { userId: 'user' });
  const chat = { channel: listening.channel, chatId: 'x', topic: '', userId: 'user' };
  for (const fresh of [false, true])
    await call(scripts['channels.converse'], {
      fence: listening,
      conversation: chat,
      threadId: 'thread',
      fresh,
      now: 1,
    });
  await call(scripts['channels.threadOf'], chat);
  for (const state of ['running', 'done'] as const)
    await call(scripts['channels.progress'], { ...at, progress: channelProgress({ state }) });
  await call(scripts['channels.forget'], { channel: listening.channel, before: 9 });
  await call(scripts['channels.disconnect'], { userId: 'user', connectionId: 'c' });
  await call(scripts['channels.release'], listening);
  await call(scripts['runs.finalize'], ended('r1'));
  await call(scripts['runs.finalize'], ended('r2'));
  await call(scripts['runs.remove'], { runId: 'r1', userId: 'user' });
  await call(scripts['runs.admit'], admission('r3', { kind: 'artifact_write', multitaskStrategy: 'reject' }));
  await call(scripts['runs.release'], fenceOf('r3'));
  await call(scripts['runs.admit'], admission('r4', { kind: 'delete', multitaskStrategy: 'reject' }));
  await call(scripts['threads.delete'], { ...own, fence: fenceOf('r4') });

  const missed = Object.keys(scripts).filter(
    (name) => /^(runs|threads|log|journal|batches|memory|schedules|channels)\./.test(name) && !called.has(name),
  );
  expect(missed).toEqual([]);
  const bad: string[] = [];
  // Scans that are meant: parameters that are lists, a covering walk of the few unacknowledged runs, one row of a constant, a bounded part of a range.
  for (const { sql, plan } of plans.values())
    for (const line of plan)
      if (
        /^SCAN (?!json_each|wanted|has|CONSTANT|h\b|x\b|\(subquery)/.test(line) &&
        !line.includes('runs_unacknowledged')
      )
        bad.push(`${line}: ${sql}`);
  expect(bad).toEqual([]);
  // The cost of an admission does not grow with the number of runs that a thread has had.
  const byThread = [...plans.values()].filter(({ sql }) =>
    /"acknowledged" = \? order by "runs"."admission"$/.test(sql),
  );
  expect(byThread.length).toBeGreaterThan(0);
  for (const { plan } of byThread) expect(plan.join()).toContain('runs_unacknowledged_by_thread (thread_id=?)');
  expect(plans.size).toBeGreaterThan(40);
});
