import type { MemoryDatabase } from '@reindeer/database';
import type { BatchExecutor, BatchStore, ItemLease, Surroundings } from '@reindeer/protocol';
import type { SeededRandom } from '@reindeer/testkit';
import type { Mutant } from '../frame/world.ts';

export interface BatchTools {
  readonly database: MemoryDatabase;
  readonly random: SeededRandom;
}

export interface BatchMutant extends Mutant {
  /** Replaces the shared store. */
  readonly far?: (store: BatchStore, tools: BatchTools) => BatchStore;
  /** Replaces what one process makes of the store. */
  readonly near?: (store: BatchStore, name: string) => BatchStore;
  /** Replaces how a process runs children. */
  readonly executor?: (executor: BatchExecutor) => BatchExecutor;
  readonly around?: (surroundings: Surroundings) => Surroundings;
}

/** The lease that stands on the row now, whoever asks. */
const holderOf = (database: MemoryDatabase, lease: ItemLease): ItemLease => {
  const { owner, epoch } = database.batchItems.get(lease.itemId)?.state ?? lease;
  return { itemId: lease.itemId, owner: owner ?? lease.owner, epoch };
};

/** The lease of the present holder, for an equal owner of any epoch. */
const anyEpoch = (database: MemoryDatabase, lease: ItemLease): ItemLease => {
  const state = database.batchItems.get(lease.itemId)?.state;
  return state?.owner === lease.owner ? { ...lease, epoch: state.epoch } : lease;
};

const OK = { valid: true, cancelRequested: false, busy: false } as const;

/** The guards of seed 004 and of the service, each taken out. */
export const BATCH_MUTANTS: readonly BatchMutant[] = [
  {
    name: 'finish-without-fence',
    breaks: 'B3',
    far: (store, { database }) => ({
      ...store,
      finish: (input) => store.finish({ ...input, lease: holderOf(database, input.lease) }),
    }),
  },
  {
    name: 'start-without-fence',
    breaks: 'B3',
    far: (store, { database }) => ({
      ...store,
      start: (input) => store.start({ ...input, lease: holderOf(database, input.lease) }),
    }),
  },
  {
    name: 'requeue-without-fence',
    breaks: 'B3',
    far: (store, { database }) => ({
      ...store,
      release: (input) => store.release({ ...input, lease: holderOf(database, input.lease) }),
    }),
  },
  {
    name: 'renewal-without-fence',
    breaks: 'B10',
    far: (store, { database }) => ({
      ...store,
      renew: async (input) => {
        await store.renew({ ...input, leases: input.leases.map((lease) => holderOf(database, lease)) });
        return new Map(input.leases.map(({ itemId }) => [itemId, OK]));
      },
    }),
  },
  {
    name: 'worker-identity-as-fence',
    breaks: 'B3',
    far: (store, { database }) => ({
      ...store,
      start: (input) => store.start({ ...input, lease: anyEpoch(database, input.lease) }),
      finish: (input) => store.finish({ ...input, lease: anyEpoch(database, input.lease) }),
      release: (input) => store.release({ ...input, lease: anyEpoch(database, input.lease) }),
    }),
    near: (store, name) => ({ ...store, claim: (input) => store.claim({ ...input, owner: name.replace(/\d+$/, '') }) }),
  },
  {
    name: 'claims-its-own-items',
    breaks: 'B1',
    near: (store) => ({ ...store, claim: (input) => store.claim({ ...input, exclude: [] }) }),
  },
  {
    name: 'heartbeat-begins-with-the-child',
    breaks: 'B2',
    near: (store) => {
      const begun = new Set<string>();
      return {
        ...store,
        start: async (input) => {
          const answer = await store.start(input);
          if (answer) begun.add(`${input.lease.itemId}#${input.lease.epoch}`);
          return answer;
        },
        renew: async (input) => {
          const leases = input.leases.filter(({ itemId, epoch }) => begun.has(`${itemId}#${epoch}`));
          const answers = new Map(leases.length === 0 ? [] : await store.renew({ ...input, leases }));
          for (const { itemId } of input.leases) if (!answers.has(itemId)) answers.set(itemId, OK);
          return answers;
        },
        // A refused start is not noticed either: the child begins on a lease that nobody kept.
      };
    },
    far: (store) => ({ ...store, start: async (input) => (await store.start(input)) || true }),
  },
  {
    name: 'silence-is-a-yes',
    breaks: 'B2',
    near: (store) => ({
      ...store,
      renew: (input) => store.renew(input).catch(() => new Map(input.leases.map(({ itemId }) => [itemId, OK]))),
    }),
  },
  {
    name: 'recovery-by-an-old-look',
    breaks: 'B2',
    far: (store, { database }) => {
      let look: readonly { readonly itemId: string; readonly epoch: number }[] = [];
      return {
        ...store,
        claim: async (input) => {
          // What an earlier look took for nearly over is recovered, whatever was renewed meanwhile.
          for (const { itemId, epoch } of look) {
            const row = database.batchItems.get(itemId);
            if (row !== undefined && row.state.epoch === epoch && row.leaseExpiresAt !== null)
              row.leaseExpiresAt = input.now;
          }
          look = [...database.batchItems.values()]
            .filter((row) => row.leaseExpiresAt !== null && row.leaseExpiresAt <= input.now + 6_000)
            .map((row) => ({ itemId: row.itemId, epoch: row.state.epoch }));
          return store.claim(input);
        },
      };
    },
  },
  {
    name: 'claim-over-a-pause',
    breaks: 'B7',
    far: (store, { database }) => ({
      ...store,
      claim: async (input) => {
        const paused = [...database.batches.values()].filter(({ batch }) => batch.status === 'paused');
        for (const row of paused) row.batch = { ...row.batch, status: 'running' };
        const answer = await store.claim(input);
        for (const row of paused) if (row.batch.status === 'running') row.batch = { ...row.batch, status: 'paused' };
        return answer;
      },
    }),
  },
  {
    name: 'claim-beyond-the-limit',
    breaks: 'B6',
    far: (store, { database }) => ({
      ...store,
      claim: async (input) => {
        const limits = [...database.batches.values()].map((row) => [row, row.batch.maxRunning] as const);
        for (const [row] of limits) row.batch = { ...row.batch, maxRunning: 99 };
        const answer = await store.claim(input);
        for (const [row, maxRunning] of limits) row.batch = { ...row.batch, maxRunning };
        return answer;
      },
    }),
  },
  {
    name: 'end-over-a-cancel',
    breaks: 'B5',
    far: (store, { database }) => ({
      ...store,
      finish: async (input) => {
        const status = await store.finish(input);
        const row = database.batchItems.get(input.lease.itemId);
        if (status !== null || row === undefined || row.state.status !== 'cancelled') return status;
        row.state = { ...row.state, status: input.succeeded ? 'succeeded' : 'failed' };
        return row.state.status;
      },
    }),
  },
  {
    name: 'attempts-without-end',
    breaks: 'B4',
    far: (store, { database }) => ({
      ...store,
      finish: async (input) => {
        const status = await store.finish(input);
        const row = database.batchItems.get(input.lease.itemId);
        if (status !== 'failed' || row === undefined) return status;
        row.state = { ...row.state, status: 'queued' };
        return 'queued';
      },
    }),
  },
  {
    name: 'status-is-the-end',
    breaks: 'B9',
    // A child that was told to stop counts as ended at once.
    executor: (executor) => ({
      prepare: async (work) => {
        const prepared = await executor.prepare(work);
        const stopped = new Promise<never>((_, reject) => {
          work.signal.addEventListener('abort', () => reject(work.signal.reason), { once: true });
        });
        stopped.catch(() => {});
        return { ...prepared, run: () => Promise.race([prepared.run(), stopped]) };
      },
    }),
  },
];
