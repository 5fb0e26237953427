import type {
  Clock,
  OwnershipStore,
  SandboxBackend,
  SandboxClient,
  SandboxMachine,
  SandboxState,
} from '@reindeer/protocol';
import { reduceSandbox } from '@reindeer/protocol';
import type { MemoryLeases } from '@reindeer/sandbox';
import type { SeededRandom } from '@reindeer/testkit';
import type { Mutant } from '../frame/world.ts';
import type { Engine } from './engine.ts';

/** What a process is given: its client of the ownership store, and of the engine. */
export interface NearParts {
  readonly ownership: OwnershipStore;
  readonly backend: SandboxBackend;
}

export interface NearTools {
  readonly random: SeededRandom;
  readonly engine: Engine;
  /** The process's own clock. */
  readonly clock: Clock;
}

/** `near` replaces what a process calls, `far` what the store does, `machine` the reducer of the lifecycle. */
export interface SandboxMutant extends Mutant {
  /** The tests of seed 001 whose guard is removed. */
  readonly races: string;
  readonly near?: (parts: NearParts, tools: NearTools) => Partial<NearParts>;
  readonly far?: (store: OwnershipStore, leases: MemoryLeases) => OwnershipStore;
  readonly machine?: SandboxMachine;
}

/** A client of the ownership store with some methods replaced. */
const withOwnership = (
  { ownership }: NearParts,
  part: (store: OwnershipStore) => Partial<OwnershipStore>,
): Partial<NearParts> => ({ ownership: replaced(ownership, part(ownership)) });

const replaced = (store: OwnershipStore, part: Partial<OwnershipStore>): OwnershipStore => ({
  ownerId: store.ownerId,
  seesPeers: store.seesPeers,
  take: (id) => store.take(id),
  claim: (id, options) => store.claim(id, options),
  renew: (id) => store.renew(id),
  release: (id) => store.release(id),
  owner: (id) => store.owner(id),
  memory: async () => (await store.memory?.()) ?? '',
  close: () => store.close(),
  ...part,
});

const withBackend = (
  { backend }: NearParts,
  part: (backend: SandboxBackend) => Partial<SandboxBackend>,
): Partial<NearParts> => ({
  backend: {
    report: () => backend.report(),
    create: (input) => backend.create(input),
    ready: (info, options) => backend.ready(info, options),
    stop: (info) => backend.stop(info),
    isAlive: (info) => backend.isAlive(info),
    discover: (id) => backend.discover(id),
    listRunning: async () => (await backend.listRunning?.()) ?? [],
    connect: (info, identity) => backend.connect(info, identity),
    close: () => backend.close(),
    ...part(backend),
  },
});

/** The reducer judges a state that hides something; what it changes is put onto the real one. */
const blind =
  (hidden: (state: SandboxState) => Partial<SandboxState>, types: readonly string[]): SandboxMachine =>
  (state, event) => {
    if (!types.includes(event.type)) return reduceSandbox(state, event);
    const hides = hidden(state);
    const step = reduceSandbox({ ...state, ...hides }, event);
    if (step.outcome === 'refused') return step;
    const kept: Partial<SandboxState> = {};
    const before = state as unknown as Record<string, unknown>;
    const after = step.state as unknown as Record<string, unknown>;
    for (const [key, value] of Object.entries(hides))
      if (after[key] === value) (kept as Record<string, unknown>)[key] = before[key];
    return { outcome: 'changed', state: { ...step.state, ...kept } };
  };

const notReserved = () => ({ reserved: false });

/** Who may establish, keep and destroy: the client's side of the store. */
const OWNERSHIP_MUTANTS: readonly SandboxMutant[] = [
  {
    name: 'stop-without-claim',
    breaks: 'S9',
    races: '23, 24, 52, 55, 58, 59',
    near: (parts) =>
      withOwnership(parts, (store) => ({
        claim: async (id, options) => options?.forDestroy === true || store.claim(id, options),
      })),
  },
  {
    name: 'stop-although-unknown',
    breaks: 'S9',
    races: '28',
    near: (parts) =>
      withOwnership(parts, (store) => ({
        claim: (id, options) =>
          store.claim(id, options).catch((error: unknown) => {
            if (options?.forDestroy === true) return true;
            throw error;
          }),
      })),
  },
  {
    name: 'stop-although-refused',
    breaks: 'S9',
    races: '23, 52, 59, 60',
    near: (parts) =>
      withOwnership(parts, (store) => ({
        claim: async (id, options) => (await store.claim(id, options)) || options?.forDestroy === true,
      })),
  },
  {
    name: 'adopt-although-unknown',
    breaks: 'SB-50',
    races: '29',
    near: (parts) =>
      withOwnership(parts, (store) => ({
        owner: (id) => store.owner(id).catch(() => null),
        claim: (id, options) =>
          store.claim(id, options).catch((error: unknown) => {
            if (options?.forDestroy !== true) return true;
            throw error;
          }),
      })),
  },
  {
    name: 'adopt-what-a-peer-owns',
    breaks: 'SB-50',
    races: '22, 24',
    near: (parts) =>
      withOwnership(parts, (store) => ({
        owner: async (id) => {
          await store.owner(id);
          return null;
        },
        claim: async (id, options) => {
          const granted = await store.claim(id, options);
          return options?.forDestroy === true ? granted : true;
        },
      })),
  },
  {
    name: 'adopt-without-grace',
    breaks: 'S9',
    races: '42, 43',
    near: ({ ownership }) => ({ ownership: { ...replaced(ownership, {}), seesPeers: false } }),
  },
  {
    name: 'adopts-nothing',
    breaks: 'L3',
    races: '16, 17, 18, 25, 43, 62, 63, 64',
    near: (parts) => withBackend(parts, () => ({ listRunning: async () => [] })),
  },
  {
    name: 'handed-out-although-unknown',
    breaks: 'SB-10',
    races: '26, 27, 73',
    near: (parts) => withOwnership(parts, (store) => ({ take: (id) => store.take(id).catch(() => true) })),
  },
  {
    name: 'handed-out-unpublished',
    breaks: 'SB-10',
    races: '26, 27, 40',
    near: (parts) => withOwnership(parts, () => ({ take: async () => true })),
  },
  {
    name: 'handed-out-while-a-peer-stops-it',
    breaks: 'SB-10',
    races: '45, 53, 54, 57',
    near: (parts) => withOwnership(parts, (store) => ({ take: async (id) => (await store.take(id)) || true })),
  },
  {
    name: 'take-unwinds-a-teardown',
    breaks: 'S9',
    races: '45, 53, 54, 57',
    far: (store, leases) =>
      replaced(store, {
        take: async (id) => {
          const value = leases.value(id);
          if (value?.state === 'del') leases.step(id, 'release', value.owner);
          return store.take(id);
        },
      }),
  },
  {
    name: 'take-does-not-steal',
    breaks: 'L1',
    races: '40',
    near: (parts) => withOwnership(parts, (store) => ({ take: (id) => store.claim(id) })),
  },
  {
    name: 'claim-steals',
    breaks: 'S9',
    races: '22, 23, 24, 52, 60',
    far: (store, leases) =>
      replaced(store, {
        claim: async (id, options) => {
          const value = leases.value(id);
          if (value?.state === 'own') leases.step(id, 'release', value.owner);
          return store.claim(id, options);
        },
      }),
  },
];

/** The marker of a stop: held for as long as it takes, and gone with it. */
const TEARDOWN_MUTANTS: readonly SandboxMutant[] = [
  {
    name: 'marker-without-heartbeat',
    breaks: 'S9',
    races: '46, 47, 48',
    near: (parts) => {
      const marked = new Set<string>();
      return withOwnership(parts, (store) => ({
        claim: async (id, options) => {
          if (options?.forDestroy !== true) return store.claim(id, options);
          if (marked.has(id)) return true;
          const granted = await store.claim(id, options);
          if (granted) marked.add(id);
          return granted;
        },
        release: async (id) => {
          marked.delete(id);
          return store.release(id);
        },
      }));
    },
  },
  {
    name: 'marker-released-before-the-stop',
    breaks: 'S9',
    races: '46, 47, 48, 51',
    near: (parts) =>
      withOwnership(parts, (store) => ({
        claim: async (id, options) => {
          const granted = await store.claim(id, options);
          if (granted && options?.forDestroy === true) await store.release(id);
          return granted;
        },
      })),
  },
  {
    name: 'marker-not-released',
    breaks: 'SB-30',
    races: '49, 56',
    near: (parts) => withOwnership(parts, () => ({ release: async () => {} })),
  },
  {
    name: 'marker-written-again-after-its-release',
    breaks: 'SB-30',
    races: '50, 51',
    near: (parts) =>
      withOwnership(parts, (store) => ({
        release: async (id) => {
          await store.release(id);
          await store.claim(id, { forDestroy: true }).catch(() => false);
        },
      })),
  },
  {
    name: 'heartbeat-outlives-its-stop',
    breaks: 'SB-30',
    races: '56',
    near: (parts, { clock }) => {
      const beat = async (store: OwnershipStore, id: string): Promise<void> => {
        for (;;) {
          await store.claim(id, { forDestroy: true }).catch(() => false);
          await clock.sleep(1_000);
        }
      };
      return withOwnership(parts, (store) => ({
        release: async (id) => {
          await store.release(id);
          void beat(store, id);
        },
      }));
    },
  },
  {
    name: 'late-claim-is-believed',
    breaks: 'S9',
    races: '46, 58',
    near: (parts, { clock }) =>
      // The time between question and answer is hidden: the answer to a claim is kept until its marker has gone.
      withOwnership(parts, (store) => ({
        claim: async (id, options) => {
          const granted = await store.claim(id, options);
          if (granted && options?.forDestroy === true) await clock.sleep(130_000);
          return granted;
        },
      })),
  },
];

/** Keeping: fail-open, and only what is somebody else's is let go. */
const RENEWAL_MUTANTS: readonly SandboxMutant[] = [
  {
    name: 'no-renewal',
    breaks: 'SB-47',
    races: '30, 35',
    near: (parts) => withOwnership(parts, () => ({ renew: async () => 'renewed' })),
  },
  {
    name: 'renewal-of-the-first-only',
    breaks: 'SB-47',
    races: '36',
    near: (parts) => {
      let first: string | null = null;
      return withOwnership(parts, (store) => ({
        renew: async (id) => {
          first ??= id;
          return id === first ? store.renew(id) : 'renewed';
        },
      }));
    },
  },
  {
    name: 'unknown-means-lost',
    breaks: 'SB-61',
    races: '31',
    near: (parts) => withOwnership(parts, (store) => ({ renew: (id) => store.renew(id).catch(() => 'lost') })),
  },
  {
    name: 'lapsed-means-lost',
    breaks: 'SB-61',
    races: '41, 42',
    near: (parts) =>
      withOwnership(parts, (store) => ({
        renew: async (id) => {
          const answer = await store.renew(id);
          return answer === 'lapsed' ? 'lost' : answer;
        },
      })),
  },
  {
    name: 'lapsed-and-unanswered-means-lost',
    breaks: 'SB-61',
    races: '32',
    near: (parts) =>
      withOwnership(parts, (store) => ({
        claim: (id, options) =>
          store.claim(id, options).catch((error: unknown) => {
            if (options?.forDestroy !== true) return false;
            throw error;
          }),
      })),
  },
  {
    name: 'lapsed-is-not-claimed-again',
    breaks: 'SB-47',
    races: '41, 42',
    near: (parts) =>
      withOwnership(parts, (store) => ({
        renew: async (id) => {
          const answer = await store.renew(id);
          return answer === 'lapsed' ? 'renewed' : answer;
        },
      })),
  },
  {
    name: 'lost-stops-the-container',
    breaks: 'S9',
    races: '38, 24',
    near: (parts, { engine }) =>
      withOwnership(parts, (store) => ({
        renew: async (id) => {
          const answer = await store.renew(id);
          const info = engine.containers.get(id)?.info;
          if (answer === 'lost' && info !== undefined) await parts.backend.stop(info).catch(() => {});
          return answer;
        },
      })),
  },
  {
    name: 'lost-is-not-heard',
    breaks: 'SB-50',
    races: '38, 40',
    near: (parts) =>
      withOwnership(parts, (store) => ({
        renew: async (id) => {
          const answer = await store.renew(id);
          return answer === 'lost' ? 'renewed' : answer;
        },
      })),
  },
];

/** One instance against itself: the reducer. */
const MACHINE_MUTANTS: readonly SandboxMutant[] = [
  {
    name: 'no-reservation',
    breaks: 'SB-15',
    races: '66, 67, 68, 69, 70, 77, 79, 81',
    machine: (state, event) => {
      if (event.type === 'untrack') return reduceSandbox({ ...state, reserved: true }, event);
      const step = reduceSandbox(state, event);
      return event.type === 'reserve' && step.outcome === 'changed' ? { outcome: 'changed', state } : step;
    },
  },
  {
    name: 'reserved-is-promoted',
    breaks: 'SB-15',
    races: '66, 69, 70, 79, 81',
    machine: (state, event) =>
      event.type === 'promote' || event.type === 'track'
        ? blind(notReserved, ['promote', 'track'])(state, event)
        : reduceSandbox(state, event),
  },
  {
    name: 'reserved-is-forgotten',
    breaks: 'SB-61',
    races: '37',
    machine: blind(notReserved, ['forget']),
  },
  {
    name: 'reserved-twice',
    breaks: 'SB-37',
    races: '77, 78',
    machine: blind(notReserved, ['reserve']),
  },
  {
    name: 'reservation-stays',
    breaks: 'L1',
    races: '78',
    machine: (state, event) =>
      event.type === 'teardown-ended' ? { outcome: 'changed', state } : reduceSandbox(state, event),
  },
  {
    name: 'idle-is-not-asked-again',
    breaks: 'S9',
    races: '67, 74',
    machine: (state, event) =>
      event.type === 'reserve' && event.condition.kind === 'idle' && state.phase === 'active' && !state.reserved
        ? { outcome: 'changed', state: { ...state, reserved: true } }
        : reduceSandbox(state, event),
  },
  {
    name: 'expired-is-not-asked-again',
    breaks: 'S9',
    races: '66, 84',
    machine: (state, event) =>
      event.type === 'reserve' && event.condition.kind === 'expired' && state.phase !== 'absent' && !state.reserved
        ? { outcome: 'changed', state: { ...state, reserved: true } }
        : reduceSandbox(state, event),
  },
  {
    name: 'eviction-takes-what-is-used',
    breaks: 'S9',
    from: 1540,
    races: '52, 66',
    machine: (state, event) =>
      event.type === 'reserve' && event.condition.kind === 'warm' && state.phase !== 'absent' && !state.reserved
        ? { outcome: 'changed', state: { ...state, reserved: true } }
        : reduceSandbox(state, event),
  },
  {
    name: 'commands-are-no-use',
    breaks: 'S9',
    races: '67, 74',
    machine: blind(() => ({ commands: 0 }), ['reserve']),
  },
  {
    name: 'use-is-not-noted',
    breaks: 'S9',
    races: '67, 74',
    machine: (state, event) => {
      const step = reduceSandbox(state, event);
      if (!['touch', 'command-began', 'command-ended', 'promote'].includes(event.type) || step.outcome === 'refused')
        return step;
      return { outcome: 'changed', state: { ...step.state, activeAt: state.activeAt, commands: 0 } };
    },
  },
  {
    name: 'lost-verdict-of-an-older-epoch',
    breaks: 'SB-61',
    races: '71, 72',
    machine: (state, event) => reduceSandbox(state, event.type === 'forget' ? { ...event, epoch: null } : event),
  },
  {
    name: 'lost-verdict-during-a-takeover',
    breaks: 'SB-61',
    races: '75, 76, 82',
    machine: blind(() => ({ publishing: 0 }), ['forget']),
  },
  {
    name: 'warm-stays-warm-when-registered',
    breaks: 'SB-10',
    races: '83, 84',
    machine: (state, event) => {
      const step = reduceSandbox(state, event);
      if (event.type !== 'track' || state.phase !== 'warm' || step.outcome === 'refused') return step;
      return { outcome: 'changed', state: { ...step.state, phase: 'warm' } };
    },
  },
  {
    name: 'warm-entry-outlives-its-stop',
    breaks: 'L4',
    races: '80',
    machine: (state, event) =>
      event.type === 'untrack' && state.phase === 'warm' ? { outcome: 'changed', state } : reduceSandbox(state, event),
  },
  {
    name: 'grace-is-not-reset',
    breaks: 'S9',
    races: '44',
    machine: (state, event) => {
      if (event.type !== 'seen' || state.phase !== 'absent') return reduceSandbox(state, event);
      return {
        outcome: 'changed',
        state: {
          ...state,
          unownedSince: state.unownedSince ?? event.now,
          unowned: event.info,
          unownedIn: event.memory,
        },
      };
    },
  },
  {
    // An owner comes between two looks of a peer whose grace is nearly over, and the store forgets it before the second: rare.
    name: 'forgotten-is-not-noticed',
    breaks: 'S9',
    from: 6944,
    races: '42, 44',
    near: (parts) =>
      withOwnership(parts, (store) => ({
        memory: async () => 'always the same',
        claim: (id, options) => store.claim(id, { forDestroy: options?.forDestroy === true }),
      })),
  },
  {
    name: 'adoption-expires-at-once',
    breaks: 'S9',
    races: '16, 63',
    machine: (state, event) => reduceSandbox(state, event.type === 'adopt' ? { ...event, now: -1e9 } : event),
  },
  {
    name: 'parked-is-forgotten-by-time',
    breaks: 'L3',
    races: '64',
    machine: (state, event) => reduceSandbox(state, event.type === 'park' ? { ...event, now: 1e12 } : event),
  },
  {
    name: 'clients-stay-open',
    breaks: 'L4',
    races: '39, 73',
    near: (parts) =>
      withBackend(parts, (backend) => ({
        connect: (info, identity) => {
          const client = backend.connect(info, identity);
          const { id, canExecute, pathStyle } = client;
          const open = { id, canExecute, pathStyle, exec: client.exec.bind(client), close: async () => {} };
          return Object.defineProperty(open as SandboxClient, 'files', { get: () => client.files });
        },
      })),
  },
];

export const SANDBOX_MUTANTS: readonly SandboxMutant[] = [
  ...OWNERSHIP_MUTANTS,
  ...TEARDOWN_MUTANTS,
  ...RENEWAL_MUTANTS,
  ...MACHINE_MUTANTS,
];
