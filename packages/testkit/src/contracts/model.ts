import type { CancelAction, MultitaskStrategy, RunState, TerminalStatus } from '@reindeer/protocol';
import { isTerminal, reduceRun } from '@reindeer/protocol';
import * as fc from 'fast-check';
import { expect, test } from 'vitest';
import { verifies } from '../verifies.ts';
import type { OpenedStores, StoresFactory } from './scene.ts';
import { GRACE, LEASE, Scene, T0 } from './scene.ts';

/** What the model knows of one run: its state as `reduceRun` sees it, and its lease. */
interface ModelRun {
  readonly runId: string;
  readonly reservation: boolean;
  state: RunState;
  owner: string;
  leaseExpiresAt: number;
  /** Every token that ever opened the row, for calls by former holders. */
  readonly tokens: string[];
  /** How many status facts the log must hold. */
  facts: number;
}

interface Model {
  now: number;
  count: number;
  readonly runs: ModelRun[];
}

interface Real {
  readonly scene: Scene;
}

type Command = fc.AsyncCommand<Model, Real>;

/** Runs that may wait. */
const QUEUE = 2;

const OWNERS = ['owner-a', 'owner-b'] as const;

/** Compares every row and the whole history with the model. */
async function compare(model: Model, { scene }: Real): Promise<void> {
  for (const run of model.runs) {
    const row = await scene.a.runs.get(run.runId);
    if (row === null) throw new Error(`The row ${run.runId} is gone.`);
    const { status, attempt, acknowledged, cancelAction } = row;
    expect({ runId: run.runId, status, attempt, acknowledged, cancelAction }).toEqual({
      runId: run.runId,
      status: run.state.status,
      attempt: run.state.attempt,
      acknowledged: run.state.acknowledged,
      cancelAction: run.state.cancelAction,
    });
    expect([row.runId, row.queued]).toEqual([run.runId, run.state.queued]);
    expect(row.owner).toBe(run.state.acknowledged || run.state.queued ? null : run.owner);
  }
  const history = await scene.history();
  for (const run of model.runs)
    expect([run.runId, history.filter((line) => line.startsWith(`${run.runId} `)).length]).toEqual([
      run.runId,
      run.facts,
    ]);
  const holding = model.runs.filter(holds).map((run) => run.runId);
  expect((await scene.b.runs.active('thread')).map((run) => run.runId).sort()).toEqual(holding.sort());
  // S4: whatever happened, at most one row of the thread is active, and none that waits for its turn.
  expect(model.runs.filter((run) => holds(run) && !isTerminal(run.state.status)).length).toBeLessThanOrEqual(1);
}

/** Does the run have the thread? A queued one waits for it. */
const holds = (run: ModelRun): boolean => !run.state.acknowledged && !run.state.queued;

/** The token a command acts with: of the run at `at`, the current one or, with `stale`, a former one. */
function tokenOf(run: ModelRun, stale: boolean): string {
  return stale ? (run.tokens[run.tokens.length - 2] ?? 'never-issued') : (run.state.token ?? '');
}

const at = (model: Model, index: number): ModelRun | undefined =>
  model.runs.length === 0 ? undefined : model.runs[model.runs.length - 1 - (index % Math.min(model.runs.length, 4))];

/** Facts of an end: the delivery receipt and the end itself (RT-03). */
const END = 2;

class Admit implements Command {
  readonly strategy: MultitaskStrategy;
  readonly owner: string;
  readonly leaseMs: number;
  constructor(strategy: MultitaskStrategy, owner: string, leaseMs: number) {
    this.strategy = strategy;
    this.owner = owner;
    this.leaseMs = leaseMs;
  }
  check = () => true;
  toString = () => `admit(${this.strategy}, ${this.owner})`;
  async run(model: Model, real: Real): Promise<void> {
    model.count += 1;
    const input = real.scene.admission({
      runId: `m${model.count}`,
      token: `t${model.count}`,
      owner: this.owner,
      multitaskStrategy: this.strategy,
      now: model.now,
      leaseExpiresAt: model.now + this.leaseMs,
    });
    const holders = model.runs.filter((run) => !run.state.acknowledged);
    const queue = holders.filter((run) => run.state.queued);
    const replaces = this.strategy === 'interrupt' || this.strategy === 'rollback';
    const active = holders.filter((run) => holds(run) && !isTerminal(run.state.status));
    const queued = this.strategy === 'enqueue' && holders.length > 0;
    const blocked = replaces
      ? active.some((run) => run.leaseExpiresAt > model.now && run.owner !== this.owner)
      : queued
        ? queue.length >= QUEUE
        : holders.length > 0;
    const result = await real.scene.a.runs.admit({ ...input, queueLimit: QUEUE });
    expect(result.outcome).toBe(blocked ? 'conflict' : queued ? 'queued' : 'admitted');
    if (blocked) return;
    if (replaces)
      for (const run of [...active, ...queue]) {
        const transition = reduceRun(run.state, { type: 'supersede', action: this.strategy as CancelAction });
        if (transition.outcome !== 'changed') continue;
        run.state = transition.state;
        // Nobody else will report the end of a run that nobody held.
        if (run.state.acknowledged) run.facts += END;
      }
    model.runs.push({
      runId: input.runId,
      reservation: false,
      state: {
        status: 'pending',
        queued,
        token: queued ? null : input.token,
        attempt: 0,
        acknowledged: false,
        cancelAction: null,
      },
      owner: this.owner,
      leaseExpiresAt: input.leaseExpiresAt,
      tokens: queued ? [] : [input.token],
      facts: 1,
    });
  }
}

class Start implements Command {
  readonly index: number;
  readonly stale: boolean;
  constructor(index: number, stale: boolean) {
    this.index = index;
    this.stale = stale;
  }
  check = (model: Readonly<Model>) => model.runs.length > 0;
  toString = () => `start(${this.index}${this.stale ? ', stale' : ''})`;
  async run(model: Model, real: Real): Promise<void> {
    const run = at(model, this.index);
    if (run === undefined) return;
    const token = tokenOf(run, this.stale);
    const result = await real.scene.a.runs.start({
      fence: { runId: run.runId, token },
      checkpointBefore: '',
      now: model.now,
    });
    const transition = reduceRun(run.state, { type: 'start', token });
    if (transition.outcome === 'changed') {
      run.state = transition.state;
      run.facts += 1;
      expect(result.outcome).toBe('started');
    } else if (transition.outcome === 'refused')
      expect(result.outcome).toBe(
        transition.reason === 'fenced' || run.state.acknowledged
          ? 'fenced'
          : transition.reason === 'not_pending'
            ? 'started'
            : 'cancelled',
      );
  }
}

class Finalize implements Command {
  readonly index: number;
  readonly stale: boolean;
  readonly status: TerminalStatus;
  readonly unlessCancelled: boolean;
  constructor(index: number, stale: boolean, status: TerminalStatus, unlessCancelled: boolean) {
    this.index = index;
    this.stale = stale;
    this.status = status;
    this.unlessCancelled = unlessCancelled;
  }
  check = (model: Readonly<Model>) => model.runs.length > 0;
  toString = () => `finalize(${this.index}, ${this.status}${this.stale ? ', stale' : ''}, ${this.unlessCancelled})`;
  async run(model: Model, real: Real): Promise<void> {
    const run = at(model, this.index);
    if (run === undefined) return;
    const token = tokenOf(run, this.stale);
    const { status, unlessCancelled } = this;
    const result = await real.scene.finalize({ runId: run.runId, token }, status, { unlessCancelled, now: model.now });
    const transition = reduceRun(run.state, { type: 'finalize', token, status, unlessCancelled });
    if (transition.outcome === 'changed') {
      expect(result.outcome).toBe('finalized');
      run.state = transition.state;
      run.facts += END;
    } else if (run.state.acknowledged) expect(result.outcome).toBe('terminal');
    else if (transition.outcome === 'refused' && transition.reason === 'fenced') expect(result.outcome).toBe('fenced');
    else expect(result).toEqual({ outcome: 'cancel_requested', action: run.state.cancelAction });
  }
}

class Cancel implements Command {
  readonly index: number;
  readonly action: CancelAction;
  constructor(index: number, action: CancelAction) {
    this.index = index;
    this.action = action;
  }
  check = (model: Readonly<Model>) => model.runs.length > 0;
  toString = () => `cancel(${this.index}, ${this.action})`;
  async run(model: Model, real: Real): Promise<void> {
    const run = at(model, this.index);
    if (run === undefined) return;
    const result = await real.scene.b.runs.requestCancel({ runId: run.runId, action: this.action, now: model.now });
    const transition = reduceRun(run.state, { type: 'cancel', action: this.action });
    if (transition.outcome === 'refused') return expect(result.outcome).toBe('terminal');
    const endsInQueue = run.state.queued;
    run.state = transition.state;
    if (endsInQueue) {
      run.facts += END;
      return expect(result).toMatchObject({ outcome: 'terminal', run: { acknowledged: true, endedAt: model.now } });
    }
    expect(result).toMatchObject({ outcome: 'recorded', action: run.state.cancelAction });
  }
}

class Renew implements Command {
  readonly index: number;
  readonly stale: boolean;
  readonly allowInterrupted: boolean;
  readonly leaseMs: number;
  constructor(index: number, stale: boolean, allowInterrupted: boolean, leaseMs: number) {
    this.index = index;
    this.stale = stale;
    this.allowInterrupted = allowInterrupted;
    this.leaseMs = leaseMs;
  }
  check = (model: Readonly<Model>) => model.runs.length > 0;
  toString = () => `renew(${this.index}${this.stale ? ', stale' : ''}, ${this.allowInterrupted}, ${this.leaseMs})`;
  async run(model: Model, real: Real): Promise<void> {
    const run = at(model, this.index);
    if (run === undefined) return;
    const token = tokenOf(run, this.stale);
    const expiresAt = model.now + this.leaseMs;
    const { allowInterrupted } = this;
    const outcomes = await real.scene.a.runs.renew({
      holders: [{ runId: run.runId, token, expiresAt, allowInterrupted }],
      now: model.now,
    });
    const outcome = outcomes.get(run.runId);
    if (run.state.acknowledged || run.state.token !== token) expect(outcome).toEqual({ outcome: 'lost' });
    else if (run.state.status === 'interrupted' && !allowInterrupted)
      expect(outcome).toEqual({ outcome: 'interrupted' });
    else {
      run.leaseExpiresAt = Math.max(run.leaseExpiresAt, expiresAt);
      expect(outcome).toEqual({
        outcome: 'renewed',
        expiresAt: run.leaseExpiresAt,
        cancelAction: run.state.cancelAction,
      });
    }
  }
}

class Claim implements Command {
  readonly owner: string;
  readonly deadOwner: string | null;
  constructor(owner: string, deadOwner: string | null) {
    this.owner = owner;
    this.deadOwner = deadOwner;
  }
  check = () => true;
  toString = () => `claim(${this.owner}, dead: ${this.deadOwner})`;
  async run(model: Model, real: Real): Promise<void> {
    const tokens = [1, 2, 3, 4, 5, 6].map((n) => `claim-${model.count}-${n}`);
    model.count += 1;
    const claimed = await real.scene.claim({
      owner: this.owner,
      tokens,
      now: model.now,
      deadOwners: this.deadOwner === null ? [] : [this.deadOwner],
    });
    const orphans = model.runs.filter(
      (run) => holds(run) && (run.leaseExpiresAt + GRACE < model.now || run.owner === this.deadOwner),
    );
    expect(claimed.map(({ run }) => run.runId)).toEqual(orphans.slice(0, tokens.length).map((run) => run.runId));
    for (const { run: row, token } of claimed) {
      const run = orphans.find((candidate) => candidate.runId === row.runId);
      if (run === undefined) continue;
      const transition = reduceRun(run.state, { type: 'claim', token });
      if (transition.outcome === 'changed') run.state = transition.state;
      run.owner = this.owner;
      run.leaseExpiresAt = model.now + LEASE;
      run.tokens.push(token);
    }
  }
}

class Take implements Command {
  readonly owner: string;
  constructor(owner: string) {
    this.owner = owner;
  }
  check = () => true;
  toString = () => `take(${this.owner})`;
  async run(model: Model, real: Real): Promise<void> {
    model.count += 1;
    const token = `take-${model.count}`;
    const input = {
      threadId: 'thread',
      owner: this.owner,
      token,
      leaseExpiresAt: model.now + LEASE,
      now: model.now,
    };
    const head = model.runs.find((run) => run.state.queued);
    const isFree = !model.runs.some(holds);
    expect(await real.scene.b.runs.freeQueues(5)).toEqual(isFree && head !== undefined ? ['thread'] : []);
    const taken = await real.scene.b.runs.takeQueued(input);
    expect(taken?.runId ?? null).toBe(isFree ? (head?.runId ?? null) : null);
    if (!isFree || head === undefined) return;
    const transition = reduceRun(head.state, { type: 'take', token });
    if (transition.outcome === 'changed') head.state = transition.state;
    head.owner = this.owner;
    head.leaseExpiresAt = input.leaseExpiresAt;
    head.tokens.push(token);
  }
}

class Wait implements Command {
  readonly milliseconds: number;
  constructor(milliseconds: number) {
    this.milliseconds = milliseconds;
  }
  check = () => true;
  toString = () => `wait(${this.milliseconds})`;
  async run(model: Model): Promise<void> {
    model.now += this.milliseconds;
  }
}

/** Compares with the model after the command. */
class Compared implements Command {
  readonly inner: Command;
  constructor(inner: Command) {
    this.inner = inner;
  }
  check = (model: Readonly<Model>) => this.inner.check(model);
  toString = () => this.inner.toString();
  async run(model: Model, real: Real): Promise<void> {
    await this.inner.run(model, real);
    await compare(model, real);
  }
}

const index = fc.nat({ max: 3 });
const owner = fc.constantFrom(...OWNERS);
const leaseMs = fc.constantFrom(LEASE, LEASE / 2, 1);
const stale = fc.oneof({ weight: 3, arbitrary: fc.constant(false) }, { weight: 1, arbitrary: fc.constant(true) });

const COMMANDS: readonly fc.Arbitrary<Command>[] = [
  fc
    .tuple(fc.constantFrom<MultitaskStrategy>('reject', 'interrupt', 'rollback', 'enqueue', 'enqueue'), owner, leaseMs)
    .map((part) => new Admit(...part)),
  fc.tuple(index, stale).map((part) => new Start(...part)),
  fc
    .tuple(index, stale, fc.constantFrom<TerminalStatus>('success', 'error', 'timeout', 'interrupted'), fc.boolean())
    .map((part) => new Finalize(...part)),
  fc.tuple(index, fc.constantFrom<CancelAction>('interrupt', 'rollback')).map((part) => new Cancel(...part)),
  fc.tuple(index, stale, fc.boolean(), leaseMs).map((part) => new Renew(...part)),
  fc.tuple(owner, fc.constantFrom('owner-a', 'owner-b', null, null)).map((part) => new Claim(...part)),
  owner.map((part) => new Take(part)),
  fc.constantFrom(1, 4000, LEASE + 1, LEASE + GRACE + 1).map((milliseconds) => new Wait(milliseconds)),
];

/**
 * Any sequence of calls, by current and former holders, leaves the store where `reduceRun` says (D2). `runs` sequences are tried;
 * the seed is fixed, a failure prints the shrunk sequence.
 */
export function modelContract(factory: StoresFactory, runs: number): void {
  test(
    'agrees with the state machine after any sequence of calls',
    verifies('RT-01', 'RL-32', 'RL-09', 'RL-17'),
    async () => {
      await fc.assert(
        fc.asyncProperty(
          fc.commands(
            COMMANDS.map((command) => command.map((inner) => new Compared(inner))),
            { size: 'medium', maxCommands: 40 },
          ),
          async (commands) => {
            const opened: OpenedStores = await factory();
            try {
              const real = { scene: new Scene(opened) };
              await fc.asyncModelRun(() => ({ model: { now: T0, count: 0, runs: [] }, real }), commands);
            } finally {
              await opened.close();
            }
          },
        ),
        { numRuns: runs, seed: 20_300_101 },
      );
    },
  );
}
