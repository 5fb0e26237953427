import type { MemoryDatabase } from '@reindeer/database';
import type { Fence, Run, RunStatus } from '@reindeer/protocol';
import { isTerminal } from '@reindeer/protocol';
import type { Chronicle } from '../frame/chronicle.ts';
import type { Incarnation, Request } from '../frame/incarnation.ts';
import type { Received } from './clients.ts';
import type { State } from './graph.ts';
import { asProgram } from './program.ts';

/** One attempt of a run as its graph sees it: what acts on the world. */
export interface ActingAttempt {
  readonly runId: string;
  readonly threadId: string;
  readonly token: string;
  readonly attempt: number;
  readonly incarnation: Incarnation;
  /** The holder was told of a cancel: from then on no effect may start. */
  toldToStop: boolean;
}

/** Answers that mean: the store did, or would have done, what a holder asked. */
const ACCEPTED = new Set([
  'ok',
  'started',
  'cancelled',
  'finalized',
  'cancel_requested',
  'begin',
  'finished',
  'unfinished',
]);

/** Calls that change leases. */
const LEASING = new Set(['takeQueued', 'admit', 'renew', 'claimOrphans', 'relinquish', 'finalize']);

interface Outcome {
  readonly outcome?: string;
}

/**
 * Watches every request at the door of the database, and every effect on the world, and compares with the invariants:
 *
 * S1 an effect is started only by the newest attempt of a run, under the row's token, while the row is not acknowledged
 * S2 no write of a former holder is accepted
 * S3 acknowledged rows never change; an acknowledgement and its fact come together, once
 * S4 at most one active run per thread
 * S6 a thread's facts are numbered densely and upwards; what was read once stays
 * S7 one idempotency key, one run, one payload
 * S8 a rollback removes no other run's checkpoint
 * S9 a finished tool call is never run again, a call that is not repeatable never twice
 * S11 no effect starts after a cancel was answered as stopped, or after its holder was told of it
 * S14 a run whose cancel was accepted is no success
 * S15 a queued run is given its turn in the order of admission, when nothing else of its thread is left
 * RL-04 nothing is begun by a holder whose last confirmed lease has run out
 * RL-17 a claim takes no row whose lease is live at the moment of the write
 * RA-05 a live run of another owner is not superseded
 * S13 what a success did is in the state and in the log, once
 * S16 a run is taken over, or its holder told that it has lost, only where the holder has truly lost it or could not renew (seed 003)
 * S17 the completion of a run is told to its host once, and only when it is stored (seed 003)
 * L2 a reader of a run hears every fact of it once and in order, and then its end
 * S12 a success stands only where no cancel was recorded before
 */
export class Checker {
  readonly #database: MemoryDatabase;
  readonly #chronicle: Chronicle;
  readonly #now: () => number;
  readonly #leaseMs: number;
  readonly #graceMs: number;
  /** Leases as the last write left them. */
  readonly #leases = new Map<string, number | null>();
  /** World time until which a holder may act, by run and token: the time of its request plus the lease. */
  readonly #confirmed = new Map<string, number>();
  readonly #acknowledged = new Map<string, string>();
  readonly #newestAttempt = new Map<string, ActingAttempt>();
  readonly #effects = new Map<string, number>();
  /** Tool calls by name and token. */
  readonly #started = new Set<string>();
  readonly #stopped = new Set<string>();
  readonly #cancelled = new Set<string>();
  readonly #keys = new Map<string, { readonly runId: string; readonly payload: string }>();
  readonly #read = new Map<string, number>();
  readonly #finished = new Map<string, number>();
  readonly #following = new Set<Received>();
  /** Owners and leases right before a claim. */
  #before: ReadonlyMap<string, { readonly owner: string | null; readonly lease: number | null }> = new Map();
  /** Which run wrote a checkpoint. */
  readonly #writers = new Map<string, string>();

  constructor(parts: {
    database: MemoryDatabase;
    chronicle: Chronicle;
    /** World time in milliseconds. */
    now: () => number;
    leaseMs: number;
    graceMs: number;
  }) {
    this.#database = parts.database;
    this.#chronicle = parts.chronicle;
    this.#now = parts.now;
    this.#leaseMs = parts.leaseMs;
    this.#graceMs = parts.graceMs;
  }

  get effects(): ReadonlyMap<string, number> {
    return this.#effects;
  }

  /** Performs a request between a look before and a look after. */
  async observe(request: Request, perform: () => Promise<unknown>): Promise<unknown> {
    const { fence } = (request.input ?? {}) as { fence?: Fence };
    const held = fence === undefined ? true : this.#database.held(fence) !== null;
    if (request.method === 'rollback')
      this.#beforeRollback(request.input as { fence: Fence; threadId: string; checkpointId: string });
    if (request.method === 'claimOrphans')
      this.#before = new Map(
        [...this.#database.runs].map(([runId, row]) => [runId, { owner: row.run.owner, lease: row.leaseExpiresAt }]),
      );
    const answer = await perform();
    const outcome = (answer as Outcome | null)?.outcome;
    this.#chronicle.note(() => describe(request, answer));
    // A late finalize by a former holder is told the end of the run: that is a read.
    if (!held && outcome !== undefined && ACCEPTED.has(outcome) && fence !== undefined)
      this.#chronicle.broken(
        'S2',
        `${request.port}.${request.method} of a former holder of ${fence.runId} was answered "${outcome}"`,
      );
    this.#afterwards(request, answer, fence);
    return answer;
  }

  #afterwards(request: Request, answer: unknown, fence: Fence | undefined): void {
    switch (request.method) {
      case 'admit': {
        const { threadId, owner, now } = request.input as { threadId: string; owner: string; now: number };
        this.#oneActive(threadId);
        const { superseded } = answer as { superseded?: readonly Run[] };
        for (const run of superseded ?? []) {
          const lease = this.#leases.get(run.runId) ?? null;
          if (lease !== null && lease > now && run.owner !== owner)
            this.#chronicle.broken('RA-05', `${run.runId} of ${run.owner} was live and was superseded by ${owner}`);
        }
        break;
      }
      case 'takeQueued': {
        this.#oneActive((request.input as { threadId: string }).threadId);
        const run = answer as Run | null;
        if (run !== null) this.#inTurn(run);
        break;
      }
      case 'claimOrphans':
        this.#claimed(request, answer as readonly { run: Run }[]);
        break;
      case 'renew':
        this.#renewed(request, answer as ReadonlyMap<string, { outcome: string }>);
        break;
      case 'requestCancel':
        this.#row((request.input as { runId: string }).runId);
        break;
      case 'put': {
        const { checkpointId } = request.input as { checkpointId: string };
        if (fence !== undefined && (answer as Outcome).outcome === 'ok') this.#writers.set(checkpointId, fence.runId);
        break;
      }
      case 'read':
        this.#reading(answer as { facts: readonly { threadId: string; seq: number }[] });
        break;
    }
    if (fence !== undefined) this.#row(fence.runId);
    if (LEASING.has(request.method))
      for (const [runId, { leaseExpiresAt }] of this.#database.runs) this.#leases.set(runId, leaseExpiresAt);
  }

  /** RL-17, RL-19: compared with what the row's lease was when the claim wrote, whatever the claimer had read before. */
  #claimed(request: Request, rows: readonly { run: Run }[]): void {
    const { now, deadOwners } = request.input as { now: number; deadOwners: readonly string[] };
    for (const { run } of rows) {
      const lease = this.#leases.get(run.runId) ?? null;
      if (lease !== null && lease + this.#graceMs >= now && deadOwners.length === 0)
        this.#chronicle.broken('RL-17', `${run.runId} was taken over ${lease + this.#graceMs - now} ms too early`);
      this.#fromWhom(run, deadOwners);
      this.#row(run.runId);
    }
  }

  /** S16: nobody who is at work and in reach of the store loses a run, whatever happens to it meanwhile. */
  #fromWhom({ runId, status }: Run, deadOwners: readonly string[]): void {
    const { owner = null, lease = null } = this.#before.get(runId) ?? {};
    if (owner === null || lease === null || deadOwners.length > 0) return;
    if (!this.hindered(owner, this.#now() - 2 * (this.#leaseMs + this.#graceMs)))
      this.#chronicle.broken('S16', `${status} ${runId} was taken from ${owner}, which nothing has hindered`);
  }

  /** S2 for the one call that acts for several holders. */
  #renewed(request: Request, outcomes: ReadonlyMap<string, { outcome: string }>): void {
    const { holders } = request.input as { holders: readonly { runId: string; token: string }[] };
    for (const { runId, token } of holders)
      if (outcomes.get(runId)?.outcome === 'renewed' && this.#database.held({ runId, token }) === null)
        this.#chronicle.broken('S2', `a former holder of ${runId} renewed its lease`);
    for (const { runId, token } of holders)
      if (outcomes.get(runId)?.outcome === 'lost' && this.#database.held({ runId, token }) !== null)
        this.#chronicle.broken('S16', `the holder of ${runId} was told that it has lost it`);
  }

  /** S3: what an acknowledged row says stays, and its end stands in the log exactly once. */
  #row(runId: string): void {
    const row = this.#database.runs.get(runId);
    const known = this.#acknowledged.get(runId);
    if (row === undefined) return;
    if (known !== undefined) {
      if (JSON.stringify(row.run) !== known)
        this.#chronicle.broken('S3', `the acknowledged row of ${runId} changed: ${known} → ${JSON.stringify(row.run)}`);
      return;
    }
    const ends = this.#ends(row.run.threadId, runId);
    if (!row.run.acknowledged) {
      if (ends.length > 0) this.#chronicle.broken('S3', `${runId} has a terminal fact before its acknowledgement`);
      return;
    }
    this.#acknowledged.set(runId, JSON.stringify(row.run));
    if (ends.length !== 1 || ends[0] !== row.run.status)
      this.#chronicle.broken('S3', `${runId} was acknowledged as ${row.run.status}, the log says [${ends.join(', ')}]`);
    // S12 = RL-14: a cancel that was recorded before the terminal write decides it.
    if (row.run.status === 'success' && row.run.cancelAction !== null)
      this.#chronicle.broken('S12', `${runId} was cancelled first and is a success`);
    this.#rolledBack(row.run);
  }

  /** S15: a queued run is given its turn in the order of admission, when nothing else of the thread is left. */
  #inTurn(run: Run): void {
    for (const row of this.#database.runsOfThread.get(run.threadId) ?? []) {
      if (row.run.runId === run.runId) continue;
      const isEarlier = row.order < (this.#database.runs.get(run.runId)?.order ?? 0);
      if (!row.run.acknowledged && (isEarlier || !row.run.queued))
        this.#chronicle.broken('S15', `${run.runId} was given its turn while ${row.run.runId} is not over`);
    }
  }

  #ends(threadId: string, runId: string): readonly RunStatus[] {
    const ends: RunStatus[] = [];
    for (const { runId: of, body } of this.#database.shelves.get(threadId)?.facts ?? [])
      if (of === runId && body.kind === 'run' && body.terminal) ends.push(body.status);
    return ends;
  }

  #oneActive(threadId: string): void {
    const active = (this.#database.runsOfThread.get(threadId) ?? []).filter(
      ({ run }) => !run.queued && !isTerminal(run.status),
    );
    if (active.length > 1)
      this.#chronicle.broken(
        'S4',
        `${threadId} has ${active.length} active runs: ${active.map(({ run }) => run.runId).join(', ')}`,
      );
  }

  /** S8, looked at before anything is removed. */
  #beforeRollback({ fence, threadId, checkpointId }: { fence: Fence; threadId: string; checkpointId: string }): void {
    if (this.#database.held(fence) === null) return;
    const rows = [...(this.#database.shelves.get(threadId)?.checkpoints.values() ?? [])];
    const target = rows.find((row) => row.checkpointId === checkpointId)?.position ?? 0;
    for (const { checkpointId: id, position } of rows) {
      const writer = this.#writers.get(id);
      if (position > target && writer !== undefined && writer !== fence.runId)
        this.#chronicle.broken('S8', `the rollback of ${fence.runId} removes checkpoint ${id} of ${writer}`);
    }
  }

  #rolledBack(run: Run): void {
    if (run.error !== 'Rolled back by user') return;
    for (const { checkpointId } of this.#database.shelves.get(run.threadId)?.checkpoints.values() ?? [])
      if (this.#writers.get(checkpointId) === run.runId)
        this.#chronicle.broken('S8', `${run.runId} was rolled back, and its checkpoint ${checkpointId} is still there`);
  }

  /** S6: everything that a reader gets continues what it got before, without a hole. Pages by run are not dense by nature. */
  #reading({ facts }: { facts: readonly { threadId: string; seq: number }[] }): void {
    let before: number | null = null;
    for (const { threadId, seq } of facts) {
      if (before !== null && seq <= before)
        this.#chronicle.broken('S6', `${threadId} was read out of order: ${before}, ${seq}`);
      before = seq;
    }
  }

  /** A worker begins to act for a run. */
  attemptBegins(attempt: ActingAttempt): void {
    // One that was paused before its first step begins behind a newer one, and is not the newest for that.
    if ((this.#newestAttempt.get(attempt.runId)?.attempt ?? 0) <= attempt.attempt)
      this.#newestAttempt.set(attempt.runId, attempt);
  }

  /** An answer reached a process: what it grants, and what it tells. */
  heard(request: Request, answer: unknown): void {
    const { input, incarnation, sentAt } = request;
    if (request.method === 'admit') {
      const { runId, token } = input as { runId: string; token: string };
      if ((answer as Outcome).outcome === 'admitted') this.#confirm(runId, token, sentAt);
    } else if (request.method === 'takeQueued') {
      const run = answer as Run | null;
      if (run !== null) this.#confirm(run.runId, (input as { token: string }).token, sentAt);
    } else if (request.method === 'claimOrphans') {
      for (const { run, token } of answer as readonly { run: Run; token: string }[])
        this.#confirm(run.runId, token, sentAt);
    } else if (request.method === 'renew') {
      const { holders } = input as { holders: readonly { runId: string; token: string }[] };
      const outcomes = answer as ReadonlyMap<string, { outcome: string; cancelAction?: string | null }>;
      for (const { runId, token } of holders) {
        const outcome = outcomes.get(runId);
        // RL-06: an answer that comes after the deadline confirms nothing.
        if (outcome?.outcome === 'renewed' && this.#now() < (this.#confirmed.get(`${runId}/${token}`) ?? Infinity))
          this.#confirm(runId, token, sentAt);
        const attempt = this.#newestAttempt.get(runId);
        const told = outcome?.cancelAction != null || outcome?.outcome === 'lost';
        if (told && attempt?.incarnation === incarnation && attempt.token === token) attempt.toldToStop = true;
      }
    }
  }

  #confirm(runId: string, token: string, sentAt: number): void {
    const key = `${runId}/${token}`;
    this.#confirmed.set(key, Math.max(this.#confirmed.get(key) ?? 0, sentAt + this.#leaseMs));
  }

  /** A cancel was accepted, and perhaps answered as stopped (D6). */
  cancelled(runId: string, stopped: boolean): void {
    this.#cancelled.add(runId);
    if (stopped) this.#stopped.add(runId);
  }

  /**
   * A holder begins something that costs or shows: a model call, a tool. Also right after a pause, when answers that were on their
   * way before are heard before the timer that watches the deadline. (Between the product's look at the clock and the effect a
   * real process may be stopped as well; the journal bounds what that can do: one start per attempt.)
   */
  act(attempt: ActingAttempt, what: string): void {
    const { runId, token, incarnation } = attempt;
    this.#chronicle.note(() => `${incarnation.name} ${what} of ${runId}, attempt ${attempt.attempt}`);
    if (attempt.toldToStop)
      this.#chronicle.broken('S11', `${what} was begun after the holder of ${runId} was told to stop`);
    if (this.#stopped.has(runId))
      this.#chronicle.broken('S11', `${what} was begun after ${runId} was reported as stopped`);
    const confirmed = this.#confirmed.get(`${runId}/${token}`);
    if (confirmed !== undefined && this.#now() >= confirmed)
      this.#chronicle.broken(
        'RL-04',
        `${what} was begun ${this.#now() - confirmed} ms after the lease of ${runId} had run out`,
      );
    if (this.#newestAttempt.get(runId) !== attempt)
      this.#chronicle.broken('S1', `${what} was begun by an attempt of ${runId} that is not its newest`);
  }

  /** A tool acts on the world: the moment that nothing can undo. */
  effect(
    attempt: ActingAttempt,
    call: { readonly messageId: string; readonly index: number; readonly repeatable: boolean },
  ): void {
    const { runId, token } = attempt;
    const name = `${call.messageId}#${call.index}`;
    this.act(attempt, `tool ${name}`);
    this.#mayAct(attempt, name);
    const count = (this.#effects.get(name) ?? 0) + 1;
    this.#effects.set(name, count);
    if (count > 1 && !call.repeatable)
      this.#chronicle.broken('S9', `${name} is not repeatable and was started ${count} times`);
    if (this.#started.has(`${name}/${token}`))
      this.#chronicle.broken('S9', `${name} was started twice by one attempt of ${runId}`);
    this.#started.add(`${name}/${token}`);
  }

  #mayAct({ runId, threadId, token }: ActingAttempt, name: string): void {
    const row = this.#database.runs.get(runId);
    if (row === undefined || row.token !== token)
      this.#chronicle.broken('S1', `${name} was started by a former holder of ${runId}`);
    else if (row.run.acknowledged) this.#chronicle.broken('S1', `${name} was started after the end of ${runId}`);
    const journal = this.#database.shelves.get(threadId)?.journal.get(name.replace('#', '\n'));
    if (journal === undefined) this.#chronicle.broken('S9', `${name} was started without being journalled`);
    else if (journal.finished !== null) this.#chronicle.broken('S9', `${name} had finished and was started again`);
  }

  /** A resumed run did not find its own state at the head of its thread. Only its holder has a claim to it. */
  lostState({ runId, token }: ActingAttempt, found: string | null): void {
    if (this.#database.held({ runId, token }) !== null)
      this.#chronicle.broken('S8', `${runId} goes on, and the head of its thread is of ${found ?? 'nobody'}`);
  }

  /** S7: every answer to a key names one run and one payload. */
  keyAnswered(key: string, runId: string, payload: string): void {
    const known = this.#keys.get(key);
    if (known === undefined) this.#keys.set(key, { runId, payload });
    else if (known.runId !== runId) this.#chronicle.broken('S7', `the key ${key} gave ${known.runId} and ${runId}`);
    else if (known.payload !== payload) this.#chronicle.broken('S7', `the key ${key} was accepted with two payloads`);
  }

  /** A process says whether anything has hindered it since a world time. */
  hindered: (owner: string, since: number) => boolean = () => true;

  /** S17: the host of a process hears that a run is over. */
  finished(run: Run, by: string): void {
    this.#chronicle.note(() => `${by} tells its host the end of ${run.runId}: ${run.status}`);
    const times = (this.#finished.get(run.runId) ?? 0) + 1;
    this.#finished.set(run.runId, times);
    if (times > 1) this.#chronicle.broken('S17', `the end of ${run.runId} was told ${times} times`);
    if (this.#database.runs.get(run.runId)?.run.acknowledged !== true)
      this.#chronicle.broken('S17', `the end of ${run.runId} was told and is not stored`);
  }

  follows(received: Received): void {
    this.#following.add(received);
  }

  hears({ reader, runId, seqs }: Received, event: string, id: string | null, data: string): void {
    if (event === 'gap') this.#chronicle.broken('L2', `${reader} was told of a gap in ${runId}: ${data}`);
    const seq = Number(/-(\d+)(?:\.\d+)?$/.exec(id ?? '')?.[1] ?? Number.NaN);
    if (event === 'end') {
      const { run } = this.#database.runs.get(runId) ?? {};
      const { status } = JSON.parse(data) as { status: string };
      if (run?.acknowledged !== true || run.status !== status)
        this.#chronicle.broken('L2', `${reader} heard the end of ${runId} as ${status}; the row says ${run?.status}`);
    }
    if (event !== 'messages' && event !== 'custom') return;
    const last = seqs.at(-1) ?? 0;
    if (seq <= last) this.#chronicle.broken('L2', `${reader} heard ${seq} of ${runId} after ${last}`);
    seqs.push(seq);
  }

  followed(received: Received): void {
    this.#following.delete(received);
    const { runId, seqs, reader } = received;
    const threadId = this.#database.runs.get(runId)?.run.threadId ?? '';
    const facts = this.#database.shelf(threadId).facts.filter((fact) => fact.runId === runId);
    // After a rollback messages are taken back and come again: only their order is judged.
    if (facts.some(({ body }) => body.kind === 'message-removed')) return;
    const told = facts.filter(({ body }) => body.kind === 'message' || body.kind === 'custom').map(({ seq }) => seq);
    if (told.join() !== seqs.join())
      this.#chronicle.broken('L2', `${reader} heard [${seqs.join()}] of ${runId}, its facts are [${told.join()}]`);
  }

  /** L2, when everything has come to rest. */
  nobodyReads(): void {
    for (const { reader, runId } of this.#following)
      this.#chronicle.broken('L2', `${reader} still waits for the end of ${runId}`);
  }

  /** S6 for one reader that pages through a thread. */
  readerSaw(reader: string, seqs: readonly number[]): void {
    let last = this.#read.get(reader) ?? 0;
    for (const seq of seqs) {
      if (seq !== last + 1) this.#chronicle.broken('S6', `${reader} read ${seq} after ${last}`);
      last = seq;
    }
    this.#read.set(reader, last);
  }

  /** What successful runs did stands at the head of their thread and in its log, each thing once; rolled back things do not. */
  #nothingLost(threadId: string): void {
    const shelf = this.#database.shelf(threadId);
    const head = [...shelf.checkpoints.values()].sort((a, b) => a.position - b.position).at(-1);
    const json = head === undefined ? undefined : shelf.channels.get(`\nstate\n${head.checkpointId}`);
    const done = json === undefined ? [] : (JSON.parse(json) as State).done;
    if (new Set(done).size !== done.length)
      this.#chronicle.broken('S13', `${threadId} holds something twice: ${done.join(' ')}`);
    const here = new Set(done);
    const told = new Map<string, number>();
    for (const { body } of shelf.facts) {
      if (body.kind === 'message' && 'id' in body.message) count(told, String(body.message.id));
      if (body.kind === 'tool-finished') count(told, `${body.messageId}#${body.index}`);
    }
    for (const { run } of this.#database.runsOfThread.get(threadId) ?? []) {
      if (run.kind !== 'run' || !run.acknowledged) continue;
      const works = worksOf(run);
      if (run.status === 'success')
        for (const work of works) {
          if (!here.has(work))
            this.#chronicle.broken('S13', `${run.runId} is a success, and ${work} is not in the state`);
          if (told.get(work) !== 1)
            this.#chronicle.broken('S13', `${work} stands ${told.get(work) ?? 0} times in the log`);
        }
      if (run.error === 'Rolled back by user')
        for (const work of works)
          if (here.has(work))
            this.#chronicle.broken('S13', `${run.runId} was rolled back, and ${work} is in the state`);
    }
  }

  /** L1: no run waits for a new holder longer than `patience` ms beyond its lease and the grace. `now`: wall clock. */
  nobodyWaits(now: number, patience: number): void {
    for (const [runId, { run, leaseExpiresAt }] of this.#database.runs) {
      const waited = now - (leaseExpiresAt ?? 0) - this.#graceMs;
      // Nobody holds a queued run; whether it is forgotten shows at rest.
      if (!run.acknowledged && !run.queued && waited > patience)
        this.#chronicle.broken('L1', `${runId} has been without a holder for ${waited} ms`);
    }
  }

  /** Once everything has come to rest. */
  atRest(): void {
    for (const [threadId, shelf] of this.#database.shelves) {
      for (const [position, { seq }] of shelf.facts.entries())
        if (seq !== position + 1) this.#chronicle.broken('S6', `${threadId} has fact ${seq} at place ${position + 1}`);
      this.#oneActive(threadId);
      this.#nothingLost(threadId);
    }
    for (const [runId, { run }] of this.#database.runs) {
      this.#row(runId);
      if (run.status === 'success' && this.#cancelled.has(runId))
        this.#chronicle.broken('S14', `the cancel of ${runId} was accepted, and it is a success`);
      if (!run.acknowledged)
        this.#chronicle.broken('L1', `${run.kind} ${runId} of ${run.threadId} is ${run.status} and nobody ends it`);
    }
  }
}

const count = (counts: Map<string, number>, name: string): void => void counts.set(name, (counts.get(name) ?? 0) + 1);

/** What a run whose program came to its end has done, in the order of its checkpoints. */
function worksOf(run: Run): readonly string[] {
  return asProgram(run.request.input).steps.flatMap((step, at) => [
    `${run.runId}.${at}`,
    ...step.tools.map((_, index) => `${run.runId}.${at}#${index}`),
  ]);
}

function describe(request: Request, answer: unknown): string {
  const { incarnation, port, method, input } = request;
  const { fence, runId, threadId } = (input ?? {}) as { fence?: Fence; runId?: string; threadId?: string };
  const about = fence === undefined ? (runId ?? threadId ?? '') : `${fence.runId}/${fence.token.slice(0, 4)}`;
  return `${incarnation.name} ${port}.${method} ${about} (sent ${request.sentAt}) → ${summary(method, answer)}`;
}

function summary(method: string, answer: unknown): string {
  if (answer instanceof Map) return JSON.stringify([...answer]);
  if (method === 'claimOrphans')
    return (answer as readonly { run: Run; token: string }[])
      .map(({ run, token }) => `${run.runId}/${token.slice(0, 4)}`)
      .join(' ');
  return (answer as Outcome | null)?.outcome ?? (Array.isArray(answer) ? `${answer.length} rows` : '');
}
