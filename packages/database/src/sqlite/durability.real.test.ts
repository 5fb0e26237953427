import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { NO_LOG } from '@reindeer/protocol';
import { leakCheck, testSurroundings, verifies } from '@reindeer/testkit';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Identity } from '../meta.ts';
import { SqliteClient } from './client.ts';
import { type Engine, workerEngine } from './engine.ts';
import { openSqlite, type SqliteStores } from './open.ts';

const CHILD = fileURLToPath(new URL('./durability.child.ts', import.meta.url));
const THREADS = ['a', 'b', 'c', 'd'];

type Line = { readonly opened?: Identity; readonly threadId?: string } & {
  readonly [what in 'admitted' | 'began' | 'appended' | 'finished' | 'ended']?: string;
};

let folder = '';
const children = new Set<ChildProcess>();
const opened = new Set<SqliteStores>();

leakCheck();
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'reindeer-data-'));
});
afterEach(async () => {
  for (const child of children) child.kill('SIGKILL');
  children.clear();
  for (const stores of opened) await stores.close();
  opened.clear();
  await rm(folder, { recursive: true, force: true });
});

const open = async (): Promise<SqliteStores> => {
  const stores = await openSqlite({ folder, surroundings: testSurroundings({ seed: opened.size + 1 }) });
  opened.add(stores);
  return stores;
};

/** Runs the child until `enough(line)`, kills it with SIGKILL, waits for its end. Answers all lines that came. */
async function runUntil(mode: string, enough: (line: Line, count: number) => boolean): Promise<Line[]> {
  const child = spawn(process.execPath, [CHILD, folder, mode], { stdio: ['ignore', 'pipe', 'inherit'] });
  children.add(child);
  const exited = once(child, 'exit');
  const lines: Line[] = [];
  for await (const text of createInterface({ input: child.stdout })) {
    const line = JSON.parse(text) as Line;
    lines.push(line);
    if (enough(line, lines.length)) child.kill('SIGKILL');
  }
  await exited;
  children.delete(child);
  return lines;
}

test('kill -9 at any moment: what was answered is stored, once, and numbers stay', verifies('RE-01'), async () => {
  const acknowledged: Line[] = [];
  let epoch: string | null = null;
  // After an odd number of lines each time, so that the kill falls into different steps.
  for (const count of [7, 40, 93, 158]) {
    const lines = await runUntil('write', (_line, seen) => seen >= count);
    acknowledged.push(...lines);
    const dead = lines[0]?.opened;
    const stores = await open();
    // RL-17 and start-up: the successor knows by name whom it follows.
    expect(stores.identity.instanceId).toBe(dead?.instanceId);
    expect(stores.identity.owner).not.toBe(dead?.owner);
    expect(stores.identity.deadOwners.every((owner) => owner === dead?.owner)).toBe(true);
    epoch ??= stores.identity.epoch;
    expect(await stores.log.epoch()).toBe(epoch);

    const claimed = await stores.runs.claimOrphans({
      owner: stores.identity.owner,
      tokens: ['1', '2', '3', '4', '5'],
      leaseExpiresAt: Date.now() + 60_000,
      graceMs: 3000,
      deadOwners: stores.identity.deadOwners,
      skipRunIds: [],
      now: Date.now(),
    });
    expect(claimed.length).toBeLessThanOrEqual(THREADS.length);
    for (const { run, token } of claimed) {
      const ended = await stores.runs.finalize({
        fence: { runId: run.runId, token },
        status: 'error',
        error: 'killed',
        stopReason: 'orphan_recovered',
        usage: run.usage,
        unlessCancelled: false,
        now: Date.now(),
      });
      expect(ended.outcome).toBe('finalized');
    }

    const facts = new Map<string, string[]>();
    for (const threadId of THREADS) {
      const page = await stores.log.read({ threadId, runId: null, afterSeq: 0, limit: 100_000, maxBytes: 1e9 });
      // Dense: 1, 2, 3, … without holes or repeats.
      expect(page.facts.map((fact) => fact.seq)).toEqual(page.facts.map((_, index) => index + 1));
      facts.set(
        threadId,
        page.facts.map(({ body, runId }) => {
          if (body.kind === 'custom') return String(body.data);
          if (body.kind === 'run') return `${runId} ${body.terminal ? 'ended' : body.status}`;
          return 'messageId' in body ? `${body.messageId} ${body.kind}` : body.kind;
        }),
      );
    }
    const times = (line: Line, text: string) =>
      facts.get(line.threadId ?? '')?.filter((fact) => fact === text).length ?? 0;
    for (const line of acknowledged) {
      if (line.admitted) expect(times(line, `${line.admitted} pending`)).toBe(1);
      if (line.began) expect(times(line, `${line.began} tool-started`)).toBe(1);
      if (line.appended) expect(times(line, line.appended)).toBe(1);
      if (line.finished) expect(times(line, `${line.finished} tool-finished`)).toBe(1);
      if (line.ended) {
        expect(times(line, `${line.ended} ended`)).toBe(1);
        expect(await stores.runs.get(line.ended)).toMatchObject({ status: 'success', acknowledged: true });
      }
    }
    await stores.close();
  }
  expect(acknowledged.length).toBeGreaterThan(200);
});

test('the folder belongs to one process at a time, until that ends, however it ends', async () => {
  let refusal: unknown = null;
  let pid: number | undefined;
  const child = spawn(process.execPath, [CHILD, folder, 'hold'], { stdio: ['ignore', 'pipe', 'inherit'] });
  children.add(child);
  const exited = once(child, 'exit');
  for await (const _line of createInterface({ input: child.stdout })) {
    pid = child.pid;
    refusal = await open().catch((error: unknown) => error);
    child.kill('SIGKILL');
  }
  await exited;
  expect(pid).toBeGreaterThan(0);
  expect(refusal).toMatchObject({
    code: 'data_folder_locked',
    message: expect.stringContaining(`${folder} is in use by another Reindeer (process ${pid})`),
  });
  await open();
});

test(
  'threads that start on one new database at once all find it ready, also when one is ended',
  verifies('PD-02'),
  async () => {
    const file = join(folder, 'new.db');
    const url = new URL('./worker.ts', import.meta.url);
    const stopped = workerEngine(url, { kind: 'serve', file })({ onMessage() {}, onError() {}, onExit() {} });
    const clients = Array.from(
      { length: 5 },
      () => new SqliteClient({ start: workerEngine(url, { kind: 'serve', file }), restartable: true, logger: NO_LOG }),
    );
    const calls = clients.map((client) =>
      client.call('threads.search', {
        userId: 'user',
        metadata: {},
        status: null,
        limit: 1,
        offset: 0,
      }),
    );
    stopped.terminate();
    expect(await Promise.all(calls)).toEqual([[], [], [], [], []]);
    await Promise.all(clients.map((client) => client.close()));
  },
);

test('a thread that ends in the middle of its work is followed by another, which finds whole operations', async () => {
  const file = join(folder, 'data.db');
  const start = workerEngine(new URL('./worker.ts', import.meta.url), { kind: 'serve', file });
  let engine: Engine | null = null;
  const client = new SqliteClient({
    start: (events) => {
      engine = start(events);
      return engine;
    },
    restartable: true,
    logger: NO_LOG,
  });
  const create = (threadId: string) =>
    client.call('threads.create', { threadId, userId: 'user', metadata: {}, now: 1 });
  const known: string[] = [];
  for (let round = 0; round < 3; round += 1) {
    await create(`first-${round}`);
    known.push(`first-${round}`);
    const calls = Array.from({ length: 2000 }, (_, n) => create(`${round}-${n}`));
    await calls[0];
    known.push(`${round}-0`);
    (engine as Engine | null)?.terminate();
    const outcomes = await Promise.allSettled(calls);
    for (const [n, outcome] of outcomes.entries()) {
      if (outcome.status === 'fulfilled') known.push(`${round}-${n}`);
      else expect(outcome.reason).toMatchObject({ code: 'store_unavailable', retryable: true });
    }
    expect(outcomes.some((outcome) => outcome.status === 'rejected')).toBe(true);
  }
  const found = await client.call('threads.search', {
    userId: 'user',
    metadata: {},
    status: null,
    limit: 20_000,
    offset: 0,
  });
  const ids = new Set(found.map((thread) => thread.threadId));
  expect(known.filter((threadId) => !ids.has(threadId))).toEqual([]);
  await client.close();
});
