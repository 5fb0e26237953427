import type { Log, Run, Stores } from '@reindeer/protocol';
import { ReindeerError } from '@reindeer/protocol';
import { type Deferred, deferred, flush, verifies, withFaults } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import type { Script } from './scripted-graph.ts';
import { collect, human, messagesOf, USER, type World, world } from './world.ts';

/**
 * Seed 003, every case: who may finalize a run that a newer one replaces, on any run store. The clock stands still and is moved by hand;
 * the store works in its own time, and between two movements everything that it was asked is answered.
 */

const LEASE = 12_000;
const BEAT = 4_000;
const THREAD = { threadId: 'thread-1', userId: USER };

/** A log that keeps nothing: "without an event store". For this suite only. */
const NULL_LOG: Log = {
  epoch: async () => 'none',
  read: async () => ({ facts: [], head: 0, prunedThrough: 0 }),
  firstSeq: async () => null,
  append: async () => ({ outcome: 'ok', head: 0 }),
  messages: async () => ({ facts: [], head: 0, prunedThrough: 0 }),
  find: async () => ({ found: [], complete: true }),
  onAppend: () => () => undefined,
};

/** The stores, with what they were asked and have not answered yet. */
function counted(stores: Stores): { readonly stores: Stores; readonly settled: () => Promise<void> } {
  let asked = 0;
  const count = <P extends object>(port: P): P =>
    new Proxy(port, {
      get(target, property, receiver) {
        const value: unknown = Reflect.get(target, property, receiver);
        if (typeof value !== 'function' || property === 'onAppend') return value;
        return async (...input: readonly unknown[]) => {
          asked += 1;
          try {
            return await (value as (...input: readonly unknown[]) => unknown).apply(target, [...input]);
          } finally {
            asked -= 1;
          }
        };
      },
    });
  return {
    // Write by write, as far as the suite goes.
    stores: {
      ...writeByWrite(stores),
      threads: count(stores.threads),
      runs: count(stores.runs),
      log: count(stores.log),
      journal: count(stores.journal),
      checkpoints: count(stores.checkpoints),
      batches: count(stores.batches),
      close: () => stores.close(),
    },
    settled: async () => {
      do await flush();
      while (asked > 0);
    },
  };
}

function writeByWrite({ attempts: _together, ...stores }: Stores): Stores {
  return stores;
}

/** A model that answers once `answer` is there. `deaf`: it does not hear that its run is to stop, as a tool body may not. */
function blocked(deaf: boolean): {
  readonly script: Script;
  readonly started: Deferred<void>;
  readonly answer: Deferred<string>;
  readonly reason: () => unknown;
} {
  const started = deferred();
  const answer = deferred<string>();
  let first: AbortSignal | null = null;
  const model: Script['model'] = async (_messages, context) => {
    first ??= context.signal;
    started.resolve();
    if (deaf) return { text: await answer.promise };
    const aborted = new Promise<never>((_, reject) => {
      context.signal.addEventListener('abort', () => reject(context.signal.reason), { once: true });
    });
    return { text: await Promise.race([answer.promise, aborted]) };
  };
  return { script: { model }, started, answer, reason: () => first?.reason };
}

interface Scene {
  readonly w: World;
  /** The run that the test is about, at work. */
  readonly run: Run;
  /** Lets time pass, beat by beat. */
  readonly pass: (milliseconds: number) => Promise<void>;
  readonly settled: () => Promise<void>;
  readonly finished: Run[];
  readonly node: ReturnType<typeof blocked>;
  /** `allowInterrupted` of each renewal of the run. */
  readonly renewals: boolean[];
  readonly hold: { renewal?: Held; rollback?: Held; error?: Held | undefined };
  readonly broken: { renewals: boolean };
  /** Would a peer get the run now, without any grace? */
  readonly claimed: () => Promise<number>;
  readonly end: () => Promise<void>;
}

interface Held {
  readonly entered: Deferred<void>;
  readonly release: Deferred<void>;
}
const held = (): Held => ({ entered: deferred(), release: deferred() });

async function scene(open: () => Promise<Stores>, options: { withLog: boolean; deaf?: boolean }): Promise<Scene> {
  const opened = await open();
  const { stores, settled } = counted(opened);
  const node = blocked(options.deaf ?? false);
  const finished: Run[] = [];
  const renewals: boolean[] = [];
  const hold: Scene['hold'] = {};
  const broken = { renewals: false };
  let runId = '';
  const w = world({
    opened: options.withLog ? stores : { ...stores, log: NULL_LOG },
    script: node.script,
    settings: { leaseMs: LEASE, beatMs: BEAT, graceMs: 0, sweepMs: 1_000_000 },
    hooks: { onFinished: (run) => void finished.push(run) },
    stores: (inner) =>
      withFaults(inner, ({ method, input }) => {
        if (method === 'renew') {
          const { holders } = input as Parameters<Stores['runs']['renew']>[0];
          const own = holders.find((holder) => holder.runId === runId);
          if (own !== undefined) renewals.push(own.allowInterrupted);
          if (broken.renewals) return 'fail-before';
          return own !== undefined && renewals.length === 1 ? heldAt(hold.renewal, 'before') : null;
        }
        if (method === 'rollback') return heldAt(hold.rollback, 'before');
        const ends = method === 'finalize' && (input as Parameters<Stores['runs']['finalize']>[0]);
        if (ends && ends.fence.runId === runId && ends.status === 'error') return heldAt(hold.error, 'after');
        return null;
      }),
  });
  const { clock } = w.surroundings;
  await w.runtime.threads.create({ ...THREAD, metadata: {}, ifExists: 'raise' });
  const update = { ...THREAD, values: { messages: [human('before', 'm0')] }, checkpointId: null, asNode: 'model' };
  expect(await w.runtime.threads.updateState(update)).toMatchObject({ outcome: 'updated' });
  await w.runtime.start();
  const run = await w.admitted({ request: { input: { messages: [human('cancelled input')] } } });
  runId = run.runId;
  await node.started.promise;
  await settled();
  return {
    w,
    run,
    settled,
    finished,
    node,
    renewals,
    hold,
    broken,
    pass: async (milliseconds) => {
      for (let left = milliseconds; left > 0; left -= 1_000) {
        await clock.advance(Math.min(left, 1_000));
        await settled();
      }
    },
    claimed: async () => {
      const taken = await opened.runs.claimOrphans({
        owner: 'peer',
        tokens: ['p1', 'p2'],
        leaseExpiresAt: clock.now() + LEASE,
        graceMs: 0,
        deadOwners: [],
        skipRunIds: [],
        now: clock.now(),
      });
      return taken.length;
    },
    end: async () => {
      for (const one of Object.values(hold)) one?.release.resolve();
      node.answer.resolve('done');
      const stopped = w.runtime.stop({ drainMs: 20_000, hardMs: 40_000 });
      let over = false;
      void stopped.finally(() => {
        over = true;
      });
      while (!over) {
        await clock.advance(1_000);
        await settled();
      }
      await opened.close();
    },
  };
}

const heldAt = (one: Held | undefined, when: 'before' | 'after') => {
  if (one === undefined) return null;
  if (when === 'after') {
    // What was asked is stored; only its answer is late.
    const delayAfter = {
      // biome-ignore lint/suspicious/noThenProperty: awaited behind the store's answer, which is the moment to tell
      then: (done: (value?: undefined) => void, failed: (reason: unknown) => void) => {
        one.entered.resolve();
        one.release.promise.then(() => done(), failed);
      },
    } as unknown as Promise<void>;
    return { delayAfter };
  }
  one.entered.resolve();
  return { delayBefore: one.release.promise };
};

interface Case {
  readonly action: 'interrupt' | 'rollback';
  readonly hostStops?: boolean;
  readonly staleRenewal?: boolean;
  /** Beyond the seed: the answer to the terminal write does not come at all. */
  readonly lostAnswer?: boolean;
}
const CASES: readonly Case[] = [
  { action: 'interrupt' },
  { action: 'rollback' },
  { action: 'rollback', hostStops: true },
  { action: 'rollback', staleRenewal: true },
  { action: 'rollback', lostAnswer: true },
];

/** @param open opens a fresh, empty database; the suite closes it. */
export function finalizationAuthority(name: string, open: () => Promise<Stores>): void {
  describe.each([true, false])(`the authority to finalize, on ${name}, with an event store: %s`, (withLog) => {
    test.each(CASES)(
      'a replaced run keeps it to its acknowledgement: %o',
      verifies('SEED-003-01', 'RB-01', 'RT-27'),
      async ({ action, hostStops = false, staleRenewal = false, lostAnswer = false }) => {
        const s = await scene(open, { withLog });
        const { w, run, hold } = s;
        try {
          const ends = collect(w.read(run, { modes: ['updates'] }));
          if (staleRenewal) {
            hold.renewal = held();
            await w.surroundings.clock.advance(BEAT);
            await hold.renewal.entered.promise;
          }
          if (action === 'rollback') {
            hold.rollback = held();
            hold.error = held();
          }
          const result = await w.create({ multitaskStrategy: action });
          // Proof of the terminal write: a row that the store answered, of the transaction that admitted the replacement.
          const replaced = { runId: run.runId, status: 'interrupted', error: 'Cancelled by newer run' };
          expect(result).toMatchObject({
            outcome: 'admitted',
            run: { status: 'pending' },
            superseded: [{ ...replaced, acknowledged: false, owner: 'local' }],
          });
          if (action === 'rollback') await duringRollback(s, replaced, { hostStops, staleRenewal, lostAnswer });
          await s.pass(1);
          await s.settled();
          const end =
            action === 'rollback'
              ? { status: 'error', error: 'Rolled back by user' }
              : { status: 'interrupted', error: 'Cancelled by newer run' };
          const row = await w.stores.runs.get(run.runId);
          expect(row).toMatchObject({ ...end, acknowledged: true, owner: null });
          // The completion hook once, with the acknowledged row; the end of the stream once.
          expect(s.finished.filter(({ runId }) => runId === run.runId)).toEqual([row]);
          await s.pass(6_000);
          expect((await ends).filter(({ event }) => event === 'end')).toHaveLength(1);
          if (action === 'rollback') expect((await messagesOf(w))[0]).toBe('before');
          // No lease of it is left, and none of its renewals was asked behind its end.
          const renewed = s.renewals.length;
          await s.pass(2 * BEAT);
          expect(s.renewals.length).toBe(renewed);
        } finally {
          await s.end();
        }
      },
    );
  });

  describe(`a fenced worker, on ${name}`, () => {
    test.each(['its lease ran out', 'a peer has the row'])(
      'begins no rollback, although one was asked for: %s',
      verifies('SEED-003-02', 'RL-08'),
      async (how) => {
        const s = await scene(open, { withLog: true, deaf: true });
        const { w, run } = s;
        try {
          const before = await w.runtime.threads.state({ ...THREAD, checkpointId: null, subgraphs: false });
          expect(await w.cancel(run, 'rollback')).toMatchObject({ outcome: 'accepted', stopped: false });
          if (how === 'its lease ran out') {
            s.broken.renewals = true;
            await s.pass(LEASE + 1);
          } else expect(await claimedFromTheDead(s)).toBe(1);
          const row = await w.stores.runs.get(run.runId);
          const facts = { threadId: THREAD.threadId, runId: null, afterSeq: 0, limit: 500, maxBytes: 1e9 };
          const log = await w.stores.log.read(facts);
          s.node.answer.resolve('too late');
          await s.pass(10_000);
          expect(await w.runtime.threads.state({ ...THREAD, checkpointId: null, subgraphs: false })).toEqual(before);
          expect(await w.stores.runs.get(run.runId)).toEqual(row);
          expect(await w.stores.log.read(facts)).toEqual(log);
          expect(s.finished).toEqual([]);
          expect(w.runtime.stats()).toMatchObject({ held: 0, leases: 0 });
        } finally {
          await s.end();
        }
      },
    );
  });
}

/** From the admission of the replacement to the answer of the rollback's terminal write. */
async function duringRollback(
  s: Scene,
  replaced: object,
  { hostStops, staleRenewal, lostAnswer }: Record<'hostStops' | 'staleRenewal' | 'lostAnswer', boolean>,
): Promise<void> {
  const { w, run, hold } = s;
  await hold.rollback?.entered.promise;
  const atWork = async () => {
    expect(await w.stores.runs.get(run.runId)).toMatchObject({ ...replaced, acknowledged: false, owner: 'local' });
    // Its record is the one that holds the thread: the replacement waits behind it.
    expect(w.runtime.stats().held).toBe(2);
    expect(s.finished).toEqual([]);
  };
  await atWork();
  if (staleRenewal) {
    expect(s.renewals).toEqual([false]);
    hold.renewal?.release.resolve();
    await s.settled();
    expect(s.renewals).toEqual([false, true]);
    await atWork();
  }
  // Far beyond the lease with which it was admitted.
  await s.pass(3 * LEASE);
  expect(s.renewals.slice(staleRenewal ? 1 : 0)).not.toContain(false);
  expect(await s.claimed()).toBe(0);
  await atWork();
  hold.rollback?.release.resolve();
  await hold.error?.entered.promise;
  // The end is stored and its answer is not there: a renewal that meets the ended row does not fence the one who wrote it.
  expect(await w.stores.runs.get(run.runId)).toMatchObject({ status: 'error', acknowledged: true });
  expect(s.finished).toEqual([]);
  const stops: Promise<unknown>[] = [];
  let stopped = 0;
  if (hostStops)
    for (const hardMs of [60_000, 0]) {
      stops.push(w.runtime.stop({ drainMs: 0, hardMs }).finally(() => (stopped += 1)));
      await s.pass(1);
    }
  await s.pass(BEAT);
  expect(s.finished.filter(({ runId }) => runId === run.runId)).toEqual([]);
  expect(stopped).toBe(0);
  if (lostAnswer) hold.error?.release.reject(new ReindeerError('store_unavailable', 'The answer was lost.'));
  hold.error?.release.resolve();
  hold.error = undefined;
  // A terminal write whose answer was lost is asked for once more.
  if (lostAnswer) await s.pass(1_000);
  await s.settled();
  if (!hostStops) return;
  await s.pass(2_000);
  // The stop waited for the acknowledgement, whoever called it how often; the run was told the first reason, and kept it.
  expect(await Promise.all(stops)).toEqual([{ unfinished: [] }, { unfinished: [] }]);
  expect(s.node.reason()).toMatchObject({ code: 'aborted', detail: { stop: 'superseded' } });
}

/** A peer that knows that the holder's process has ended takes the row. */
async function claimedFromTheDead({ w }: Scene): Promise<number> {
  const { clock } = w.surroundings;
  const claimed = await w.stores.runs.claimOrphans({
    owner: 'peer',
    tokens: ['peer-token'],
    leaseExpiresAt: clock.now() + 100 * LEASE,
    graceMs: 0,
    deadOwners: ['local'],
    skipRunIds: [],
    now: clock.now(),
  });
  return claimed.length;
}
