import type { MemoryDatabase } from '@reindeer/database';
import type {
  CheckpointStore,
  Clock,
  Fence,
  Log,
  Run,
  RunStore,
  Stores,
  Surroundings,
  ToolJournal,
} from '@reindeer/protocol';
import { DEFAULT_SETTINGS } from '@reindeer/runtime';
import type { SeededRandom } from '@reindeer/testkit';
import type { Mutant } from '../frame/world.ts';

/** What a mutant may use besides the part that it replaces. */
export interface MutantTools {
  readonly database: MemoryDatabase;
  readonly random: SeededRandom;
  /** Something else may happen in between. */
  pause(milliseconds: number): Promise<void>;
}

/** `near` replaces what a process calls (its side of the network), `far` what the database does, `around` its clock. */
export interface RunsMutant extends Mutant {
  readonly near?: (stores: Stores, tools: MutantTools) => Stores;
  readonly far?: (stores: Stores, tools: MutantTools) => Stores;
  /** Replaces what a process is given besides its stores. */
  readonly around?: (surroundings: Surroundings) => Surroundings;
}

const withRuns = (stores: Stores, part: (runs: RunStore) => Partial<RunStore>): Stores => ({
  ...stores,
  runs: { ...bound(stores.runs, RUN_METHODS), ...part(stores.runs) },
});
const withJournal = (stores: Stores, part: (journal: ToolJournal) => Partial<ToolJournal>): Stores => ({
  ...stores,
  journal: { ...bound(stores.journal, JOURNAL_METHODS), ...part(stores.journal) },
});
const withLog = (stores: Stores, part: (log: Log) => Partial<Log>): Stores => ({
  ...stores,
  log: { ...bound(stores.log, LOG_METHODS), ...part(stores.log) },
});
const withCheckpoints = (stores: Stores, part: (checkpoints: CheckpointStore) => Partial<CheckpointStore>): Stores => ({
  ...stores,
  checkpoints: { ...bound(stores.checkpoints, CHECKPOINT_METHODS), ...part(stores.checkpoints) },
});
const withClock = (surroundings: Surroundings, part: (clock: Clock) => Partial<Clock>): Surroundings => {
  const { clock } = surroundings;
  return {
    ...surroundings,
    clock: {
      now: () => clock.now(),
      monotonic: () => clock.monotonic(),
      sleep: (milliseconds, signal) => clock.sleep(milliseconds, signal),
      ...part(clock),
    },
  };
};

type Admitted = Awaited<ReturnType<RunStore['admit']>>;
type Finalized = Awaited<ReturnType<RunStore['finalize']>>;
type Renewal = Parameters<RunStore['renew']>[0];

/** The fence that would hold right now, whoever asks. */
const heldFence = (database: MemoryDatabase, fence: Fence): Fence => ({
  ...fence,
  token: database.runs.get(fence.runId)?.token ?? fence.token,
});

/** Every lease, as if it had been renewed. */
const allRenewed = ({ holders }: Renewal) =>
  new Map(
    holders.map(({ runId, expiresAt }) => [runId, { outcome: 'renewed' as const, expiresAt, cancelAction: null }]),
  );

const withoutInterrupted = (input: Renewal): Renewal => ({
  ...input,
  holders: input.holders.map((holder) => ({ ...holder, allowInterrupted: false })),
});

/** Writes something else into the rows that an admission has replaced. */
function rewriteSuperseded(database: MemoryDatabase, answer: Admitted, part: Partial<Run>): Admitted {
  for (const { runId } of answer.outcome === 'admitted' ? answer.superseded : []) {
    const row = database.runs.get(runId);
    if (row !== undefined) row.run = { ...row.run, ...part };
  }
  return answer;
}

const LOG_METHODS = [
  'epoch',
  'firstSeq',
  'append',
  'read',
  'messages',
  'find',
  'onAppend',
] as const satisfies readonly (keyof Log)[];

const RUN_METHODS = [
  'admit',
  'start',
  'finalize',
  'requestCancel',
  'renew',
  'claimOrphans',
  'takeQueued',
  'freeQueues',
  'get',
  'list',
  'active',
  'release',
  'relinquish',
  'remove',
] as const satisfies readonly (keyof RunStore)[];
const CHECKPOINT_METHODS = [
  'put',
  'putWrites',
  'load',
  'list',
  'rollback',
  'prune',
  'deleteThread',
  'copyThread',
] as const satisfies readonly (keyof CheckpointStore)[];
const JOURNAL_METHODS = ['begin', 'finish', 'retract', 'unfinished'] as const satisfies readonly (keyof ToolJournal)[];

function bound<P extends object, K extends keyof P>(port: P, methods: readonly K[]): Pick<P, K> {
  const part: Partial<Pick<P, K>> = {};
  for (const method of methods) {
    const original = port[method] as unknown as (input: unknown) => unknown;
    part[method] = ((input: unknown) => original.call(port, input)) as unknown as P[K];
  }
  return part as Pick<P, K>;
}

export const RUNS_MUTANTS: readonly RunsMutant[] = [
  {
    name: 'unfenced-finalize',
    breaks: 'S2',
    far: (stores, { database }) =>
      withRuns(stores, (runs) => ({
        finalize: (input) => runs.finalize({ ...input, fence: heldFence(database, input.fence) }),
      })),
  },
  {
    name: 'terminal-overwritten',
    breaks: 'S3',
    far: (stores, { database }) =>
      withRuns(stores, (runs) => ({
        finalize: (input) => {
          const row = database.runs.get(input.fence.runId);
          if (row !== undefined) row.run = { ...row.run, acknowledged: false, status: 'running' };
          return runs.finalize(input);
        },
      })),
  },
  {
    name: 'terminal-fact-apart',
    breaks: 'S3',
    far: (stores, { database, pause, random }) =>
      withRuns(stores, (runs) => ({
        finalize: async (input) => {
          const answer = await runs.finalize(input);
          if (answer.outcome !== 'finalized') return answer;
          const shelf = database.shelf(answer.run.threadId);
          const end = shelf.facts.pop();
          shelf.head -= 1;
          await pause(20 + random.below(400));
          if (end !== undefined) {
            shelf.head += 1;
            shelf.facts.push({ ...end, seq: shelf.head });
          }
          return answer;
        },
      })),
  },
  {
    name: 'scan-then-act-claim',
    breaks: 'RL-17',
    far: (stores, { database, pause, random }) =>
      withRuns(stores, (runs) => ({
        claimOrphans: async (input) => {
          const rows = [...database.runs.values()].filter(({ run }) => !run.acknowledged);
          const orphans = rows.filter(
            ({ run, leaseExpiresAt }) =>
              leaseExpiresAt === null ||
              leaseExpiresAt + input.graceMs < input.now ||
              input.deadOwners.includes(run.owner ?? ''),
          );
          if (orphans.length > 0) await pause(50 + random.below(3_000));
          const ids = new Set(orphans.map(({ run }) => run.runId));
          const others = [...database.runs.keys()].filter((runId) => !ids.has(runId));
          const owners = [...database.runs.values()].map(({ run }) => run.owner ?? '');
          return runs.claimOrphans({ ...input, deadOwners: owners, skipRunIds: [...input.skipRunIds, ...others] });
        },
      })),
  },
  {
    name: 'claim-before-expiry',
    breaks: 'RL-17',
    near: (stores) =>
      withRuns(stores, (runs) => ({
        // Most of the lease is forgotten: a holder right before its next beat looks dead.
        claimOrphans: (input) => runs.claimOrphans({ ...input, graceMs: -10_000 }),
      })),
  },
  {
    name: 'claim-keeps-token',
    breaks: 'S1',
    far: (stores, { database }) =>
      withRuns(stores, (runs) => ({
        claimOrphans: async (input) => {
          const before = new Map([...database.runs].map(([runId, { token }]) => [runId, token]));
          const claimed = await runs.claimOrphans(input);
          return claimed.map(({ run, token }) => {
            const kept = before.get(run.runId) ?? token;
            const row = database.runs.get(run.runId);
            if (row !== undefined) row.token = kept;
            return { run, token: kept };
          });
        },
      })),
  },
  {
    name: 'renewal-error-ignored',
    breaks: 'RL-04',
    near: (stores) =>
      withRuns(stores, (runs) => ({
        renew: (input) => runs.renew(input).catch(() => allRenewed(input)),
      })),
  },
  {
    name: 'cancel-ignored',
    breaks: 'S12',
    near: (stores) =>
      withRuns(stores, (runs) => ({
        finalize: (input) => runs.finalize({ ...input, unlessCancelled: false }),
      })),
  },
  {
    name: 'cancel-not-delivered',
    breaks: 'S11',
    near: (stores) =>
      withRuns(stores, (runs) => ({
        renew: async (input) =>
          new Map(
            [...(await runs.renew(input))].map(([runId, answer]) => [
              runId,
              answer.outcome === 'renewed' ? { ...answer, cancelAction: null } : answer,
            ]),
          ),
      })),
  },
  {
    name: 'cancel-not-recorded',
    breaks: 'S14',
    near: (stores, { database }) =>
      withRuns(stores, (runs) => ({
        requestCancel: async (input) => {
          const { run } = database.runs.get(input.runId) ?? {};
          if (run === undefined) return runs.requestCancel(input);
          return runs.requestCancel(input).catch(() => ({ outcome: 'recorded', action: input.action, run }));
        },
      })),
  },
  {
    name: 'deadline-by-timer-only',
    breaks: 'RL-04',
    // Time is noticed when a timer fires: right after a pause nobody knows yet how late it is.
    around: (surroundings) =>
      withClock(surroundings, (clock) => {
        let noticed = clock.monotonic();
        return {
          monotonic: () => noticed,
          sleep: (milliseconds, signal) =>
            clock.sleep(milliseconds, signal).then(() => {
              noticed = clock.monotonic();
            }),
        };
      }),
  },
  {
    name: 'journal-re-run',
    breaks: 'S9',
    near: (stores) =>
      withJournal(stores, (journal) => ({ begin: (input) => journal.begin({ ...input, again: true }) })),
  },
  {
    name: 'journal-forgets-the-end',
    breaks: 'S9',
    near: (stores) =>
      withJournal(stores, (journal) => ({
        begin: async (input) => {
          const answer = await journal.begin(input);
          return answer.outcome === 'finished' ? { outcome: 'begin' } : answer;
        },
      })),
  },
  {
    name: 'key-ignored',
    breaks: 'S7',
    far: (stores) => withRuns(stores, (runs) => ({ admit: (input) => runs.admit({ ...input, idempotencyKey: null }) })),
  },
  {
    name: 'admission-check-then-act',
    breaks: 'S4',
    far: (stores, { database, pause, random }) =>
      withRuns(stores, (runs) => ({
        admit: async (input) => {
          const rows = database.runsOfThread.get(input.threadId) ?? [];
          if (rows.some(({ run }) => !run.acknowledged)) return runs.admit(input);
          await pause(random.below(400));
          const hidden = database.runsOfThread.get(input.threadId) ?? [];
          database.runsOfThread.delete(input.threadId);
          const answer = await runs.admit(input);
          database.runsOfThread.set(input.threadId, [...hidden, ...(database.runsOfThread.get(input.threadId) ?? [])]);
          return answer;
        },
      })),
  },
  {
    name: 'live-peer-superseded',
    breaks: 'RA-05',
    far: (stores, { database }) =>
      withRuns(stores, (runs) => ({
        admit: async (input) => {
          const holder = (database.runsOfThread.get(input.threadId) ?? []).find(({ run }) => !run.acknowledged);
          const answer = await runs.admit({ ...input, owner: holder?.run.owner ?? input.owner });
          const row = database.runs.get(input.runId);
          if (row !== undefined) row.run = { ...row.run, owner: input.owner };
          return answer;
        },
      })),
  },
  {
    name: 'success-over-superseded',
    breaks: 'S12',
    far: (stores, { database }) =>
      withRuns(stores, (runs) => ({
        finalize: async (input) => {
          const row = database.held(input.fence);
          if (row === null || input.status !== 'success') return runs.finalize(input);
          const { cancelAction } = row.run;
          row.run = { ...row.run, status: 'running', cancelAction: null };
          const answer = await runs.finalize(input);
          row.run = { ...row.run, cancelAction };
          return answer;
        },
      })),
  },
  {
    name: 'queue-not-swept',
    breaks: 'L1',
    near: (stores) => withRuns(stores, () => ({ freeQueues: async () => [] })),
  },
  {
    name: 'turn-out-of-order',
    breaks: 'S15',
    far: (stores, { database }) =>
      withRuns(stores, (runs) => ({
        takeQueued: async (input) => {
          // The newest one, while the others are put aside.
          const queue = (database.runsOfThread.get(input.threadId) ?? []).filter(({ run }) => run.queued).slice(0, -1);
          for (const row of queue) row.run = { ...row.run, queued: false, acknowledged: true };
          const answer = await runs.takeQueued(input);
          for (const row of queue) row.run = { ...row.run, queued: true, acknowledged: false };
          return answer;
        },
      })),
  },
  {
    name: 'prior-not-awaited',
    breaks: 'S8',
    near: (stores) => withRuns(stores, () => ({ active: async () => [] })),
  },
  {
    name: 'checkpoints-unfenced',
    breaks: 'S2',
    far: (stores, { database }) =>
      withCheckpoints(stores, (checkpoints) => ({
        put: (input) =>
          checkpoints.put({ ...input, fence: input.fence === null ? null : heldFence(database, input.fence) }),
      })),
  },
  {
    name: 'head-by-id',
    breaks: 'S8',
    far: (stores, { database }) =>
      withCheckpoints(stores, (checkpoints) => ({
        load: (input) => {
          const rows = [...(database.shelves.get(input.threadId)?.checkpoints.values() ?? [])];
          const ids = rows.map((row) => row.checkpointId);
          return checkpoints.load({ ...input, checkpointId: input.checkpointId ?? ids.sort().at(-1) ?? null });
        },
      })),
  },
  {
    name: 'facts-without-keys',
    breaks: 'S13',
    far: (stores, { database }) =>
      withCheckpoints(stores, (checkpoints) => ({
        put: (input) => {
          for (const { key } of input.facts) database.shelf(input.threadId).keys.delete(key);
          return checkpoints.put(input);
        },
      })),
  },
  {
    name: 'orphans-left-alone',
    breaks: 'L1',
    near: (stores) => withRuns(stores, () => ({ claimOrphans: async () => [] })),
  },
  {
    name: 'reads-skip-a-fact',
    breaks: 'S6',
    far: (stores, { random }) =>
      withLog(stores, (log) => ({
        read: async (input) => {
          const page = await log.read(input);
          if (page.facts.length < 3 || random.chance(0.5)) return page;
          return { ...page, facts: page.facts.filter((_, index) => index !== 1) };
        },
      })),
  },
  {
    name: 'reader-skips-what-follows-its-place',
    breaks: 'L2',
    near: (stores) =>
      withLog(stores, (log) => ({
        read: (input) => log.read({ ...input, afterSeq: input.runId === null ? input.afterSeq : input.afterSeq + 1 }),
      })),
  },
  {
    name: 'every-process-counts-facts-anew',
    breaks: 'L2',
    near: (stores, { random }) => {
      const own = random.uuid().slice(0, 12);
      return withLog(stores, () => ({ epoch: async () => own }));
    },
  },
  {
    name: 'reader-trusts-hints',
    breaks: 'L2',
    // Without a look at the log now and then a lost hint is a lost fact.
    around: (surroundings) =>
      withClock(surroundings, (clock) => {
        const polls = new Set([DEFAULT_SETTINGS.pollRemoteMs, DEFAULT_SETTINGS.pollLocalMs]);
        return { sleep: (milliseconds, signal) => clock.sleep(polls.has(milliseconds) ? 1e9 : milliseconds, signal) };
      }),
  },
  {
    name: 'keys-kept-in-memory',
    breaks: 'S7',
    near: (stores) => {
      const known = new Set<string>();
      return withRuns(stores, (runs) => ({
        admit: async (input) => {
          const { idempotencyKey: key } = input;
          const answer = await runs.admit({ ...input, idempotencyKey: key !== null && known.has(key) ? key : null });
          if (key !== null) known.add(key);
          return answer;
        },
      }));
    },
  },
  {
    name: 'leases-kept-in-memory',
    breaks: 'RL-04',
    near: (stores) => withRuns(stores, () => ({ renew: async (input) => allRenewed(input) })),
  },
  {
    name: 'end-kept-in-memory',
    breaks: 'S17',
    near: (stores, { database }) =>
      withRuns(stores, (runs) => ({
        // The terminal write is acknowledged before it is stored; the store may never hear of it.
        finalize: async (input): Promise<Finalized> => {
          const row = database.held(input.fence);
          if (row === null) return runs.finalize(input);
          void runs.finalize(input).catch(() => undefined);
          return {
            outcome: 'finalized',
            run: { ...row.run, status: input.status, acknowledged: true },
            waiting: false,
          };
        },
      })),
  },
  {
    name: 'end-of-another-taken-for-ours',
    breaks: 'S17',
    near: (stores) =>
      withRuns(stores, (runs) => ({
        finalize: async (input): Promise<Finalized> => {
          const answer = await runs.finalize(input);
          return answer.outcome === 'terminal' ? { outcome: 'finalized', run: answer.run, waiting: false } : answer;
        },
      })),
  },
  {
    name: 'cancel-over-an-end',
    breaks: 'S3',
    far: (stores, { database }) =>
      withRuns(stores, (runs) => ({
        requestCancel: async (input) => {
          const row = database.runs.get(input.runId);
          if (row?.run.acknowledged === true) row.run = { ...row.run, cancelAction: input.action };
          return runs.requestCancel(input);
        },
      })),
  },
  {
    name: 'journal-unfenced',
    breaks: 'S2',
    far: (stores, { database }) =>
      withJournal(stores, (journal) => ({
        begin: (input) => journal.begin({ ...input, fence: heldFence(database, input.fence) }),
      })),
  },
  // The guards of seed 003, one by one.
  {
    name: 'replacement-without-proof',
    breaks: 'S4',
    far: (stores, { database }) =>
      withRuns(stores, (runs) => ({
        // The replaced run learns of it, but its row does not say so.
        admit: async (input) => rewriteSuperseded(database, await runs.admit(input), { status: 'running' }),
      })),
  },
  {
    name: 'superseded-loses-its-authority',
    breaks: 'S16',
    far: (stores) =>
      withRuns(stores, (runs) => ({
        renew: async (input) =>
          new Map(
            [...(await runs.renew(withoutInterrupted(input)))].map(([runId, answer]) => [
              runId,
              answer.outcome === 'interrupted' ? { outcome: 'lost' as const } : answer,
            ]),
          ),
      })),
  },
  {
    name: 'superseded-is-not-renewed',
    breaks: 'S16',
    // Its end must outlast its lease, with nothing else to hinder its holder.
    from: 700,
    near: (stores) =>
      withRuns(stores, (runs) => ({
        renew: (input) => runs.renew(withoutInterrupted(input)),
      })),
  },
  {
    name: 'superseded-is-acknowledged-at-once',
    breaks: 'S3',
    far: (stores, { database }) =>
      withRuns(stores, (runs) => ({
        admit: async (input) => rewriteSuperseded(database, await runs.admit(input), { acknowledged: true }),
      })),
  },
  {
    name: 'rollback-restores-nothing',
    breaks: 'S8',
    far: (stores) => withCheckpoints(stores, () => ({ rollback: async () => ({ outcome: 'ok' }) })),
  },
];
