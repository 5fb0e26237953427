import type { MemoryDatabase } from '@reindeer/database';
import {
  type BatchStore,
  type ClaimedItem,
  type FinishItem,
  type ItemLease,
  isItemHeld,
  isItemOver,
} from '@reindeer/protocol';
import type { Chronicle } from '../frame/chronicle.ts';
import type { Incarnation, Request } from '../frame/incarnation.ts';

type Row = NonNullable<ReturnType<MemoryDatabase['batchItems']['get']>>;

/** The items at one moment; rows are replaced at every change, never edited. */
type Picture = ReadonlyMap<string, Pick<Row, 'state'>>;

/** One child of an item, as the world sees it: from its first act to its last. */
export interface LiveChild {
  readonly itemId: string;
  readonly epoch: number;
  readonly incarnation: Incarnation;
  readonly begunAt: number;
  /** It was told to stop. */
  stopped: boolean;
}

/** Half of the most that clocks may differ. */
export const CLOCK_MS = 500;

/**
 * What must hold, as seen at the door of the store and by the children themselves:
 *
 * B1  two attempts of one item are never alive in one process (BT-22)
 * B2  a second one begins in another process only when the first was told to stop, or its process stood still (BT-22, BT-25)
 * B3  a write by anybody but the present holder changes nothing (BT-08, BT-24)
 * B4  attempts stay within their limit (BT-05, BT-10)
 * B5  an item that is over stays as it is, but for a retry of a failed one; so does a cancelled batch (BT-09, BT-13, BT-14)
 * B6  never more items held than the batch allows (BT-04)
 * B7  a paused batch grants nothing (BT-12)
 * B8  the result of a success is what the child of that very attempt answered
 * B10 the child of a cancelled item is told to stop before its last lease could have run out (BT-25, seed 004)
 * B9  an item waits again, or is over, only when the child of its attempt has ended, unless its lease ran out or it was cancelled (BT-21)
 */
export class BatchChecker {
  readonly #database: MemoryDatabase;
  readonly #chronicle: Chronicle;
  readonly #now: () => number;
  readonly #after: (milliseconds: number, run: () => void) => void;
  readonly #live = new Set<LiveChild>();
  readonly #answers = new Map<string, string>();
  begun = 0;

  constructor(parts: {
    database: MemoryDatabase;
    chronicle: Chronicle;
    now: () => number;
    after: (milliseconds: number, run: () => void) => void;
  }) {
    this.#database = parts.database;
    this.#chronicle = parts.chronicle;
    this.#now = parts.now;
    this.#after = parts.after;
  }

  get live(): number {
    return this.#live.size;
  }

  begin(itemId: string, epoch: number, incarnation: Incarnation, signal: AbortSignal): LiveChild {
    for (const other of this.#live) {
      if (other.itemId !== itemId) continue;
      if (other.incarnation === incarnation)
        this.#chronicle.broken(
          'B1',
          `${incarnation.name} began ${itemId}#${epoch} while its #${other.epoch} was alive`,
        );
      else if (!other.stopped && !other.incarnation.pausedSince(other.begunAt))
        this.#chronicle.broken(
          'B2',
          `${incarnation.name} began ${itemId}#${epoch} while ${other.incarnation.name} worked on #${other.epoch} undisturbed`,
        );
    }
    this.begun += 1;
    const child: LiveChild = { itemId, epoch, incarnation, begunAt: this.#now(), stopped: signal.aborted };
    signal.addEventListener('abort', () => {
      child.stopped = true;
    });
    this.#live.add(child);
    this.#chronicle.note(() => `${incarnation.name} child ${itemId}#${epoch} begins`);
    return child;
  }

  end(child: LiveChild, answer: string): void {
    this.#answers.set(`${child.itemId}#${child.epoch}`, answer);
    this.#live.delete(child);
    this.#chronicle.note(() => `${child.incarnation.name} child ${child.itemId}#${child.epoch} ends: ${answer}`);
  }

  /** A process died, and its children with it. */
  died(incarnation: Incarnation): void {
    for (const child of this.#live) if (child.incarnation === incarnation) this.#live.delete(child);
  }

  /** Performs a request on the store and compares what it changed with what it may change. */
  async observe(request: Request, perform: () => Promise<unknown>): Promise<unknown> {
    const before = this.#picture();
    const paused = this.#paused();
    const answer = await perform();
    const { method, incarnation } = request;
    this.#chronicle.note(
      () => `${incarnation.name} ${method} ${JSON.stringify(request.input).slice(0, 160)} → ${said(answer)}`,
    );
    this.#holds(before, method, request.input as never, paused);
    if (method === 'claim') this.#claimed(before, (answer as { items: readonly ClaimedItem[] }).items);
    return answer;
  }

  /** What a client did to the store itself. */
  async control<T>(what: string, perform: () => Promise<T>): Promise<T> {
    const before = this.#picture();
    const answer = await perform();
    this.#chronicle.note(() => `client ${what} → ${said(answer)}`);
    this.#holds(before, what.split(' ')[0] ?? '', {} as never, new Set());
    return answer;
  }

  /** A cancel was recorded: whoever works on what is cancelled hears of it in time, unless its process stood still. */
  cancelled(isCancelled: (itemId: string) => boolean, withinMs: number): void {
    const since = this.#now();
    const told = [...this.#live].filter((child) => !child.stopped && isCancelled(child.itemId));
    this.#after(withinMs, () => {
      for (const child of told)
        if (this.#live.has(child) && !child.stopped && !child.incarnation.pausedSince(since))
          this.#chronicle.broken(
            'B10',
            `${child.incarnation.name} works on ${child.itemId}, which was cancelled long ago`,
          );
    });
  }

  /** At the end: everything is over and nobody holds anything. */
  atRest(): void {
    for (const { batch } of this.#database.batches.values())
      if (batch.endedAt === null) this.#chronicle.broken('L1', `${batch.batchId} is ${batch.status} for ever`);
    for (const row of this.#database.batchItems.values()) {
      if (!isItemOver(row.state.status)) this.#chronicle.broken('L1', `${row.itemId} is ${row.state.status} for ever`);
      if (row.leaseExpiresAt !== null) this.#chronicle.broken('L2', `${row.itemId} is over and still leased`);
    }
  }

  #picture(): Picture {
    return new Map([...this.#database.batchItems.values()].map((row) => [row.itemId, { state: row.state }]));
  }

  #paused(): ReadonlySet<string> {
    return new Set(
      [...this.#database.batches.values()]
        .filter(({ batch }) => batch.status === 'paused')
        .map(({ batch }) => batch.batchId),
    );
  }

  #holds(
    before: Picture,
    method: string,
    input: { readonly lease?: ItemLease } & Partial<FinishItem>,
    paused: ReadonlySet<string>,
  ): void {
    const held = new Map<string, number>();
    for (const row of this.#database.batchItems.values()) {
      const was = before.get(row.itemId);
      const { state, itemId, batchId } = row;
      if (isItemHeld(state.status)) held.set(batchId, (held.get(batchId) ?? 0) + 1);
      if (was === undefined || was.state === state) continue;
      const change = `${method} made ${itemId} ${was.state.status} → ${state.status}`;
      if (isItemOver(was.state.status) && !(method === 'retryItem' && was.state.status === 'failed'))
        this.#chronicle.broken('B5', change);
      const limit = this.#database.batches.get(batchId)?.batch.maxAttempts ?? 0;
      if (state.attempt > limit) this.#chronicle.broken('B4', `${change}, attempt ${state.attempt} of ${limit}`);
      if (state.status === 'leased' && was.state.status !== 'leased' && paused.has(batchId))
        this.#chronicle.broken('B7', change);
      const { lease } = input;
      if (lease?.itemId === itemId && (was.state.owner !== lease.owner || was.state.epoch !== lease.epoch))
        this.#chronicle.broken('B3', `${change} for an owner of #${lease.epoch}, and #${was.state.epoch} holds it`);
      if (state.status === 'succeeded') {
        const answer = this.#answers.get(`${itemId}#${state.epoch}`);
        if (answer === undefined || row.details.result !== answer)
          this.#chronicle.broken('B8', `${change} with "${row.details.result}", and its child answered "${answer}"`);
      }
      if ((method === 'finish' || method === 'release') && lease?.itemId === itemId && isItemHeld(was.state.status))
        for (const child of this.#live)
          if (child.itemId === itemId && child.epoch === lease.epoch)
            this.#chronicle.broken('B9', `${change} while its child is alive`);
    }
    for (const [batchId, count] of held) {
      const most = this.#database.batches.get(batchId)?.batch.maxRunning ?? 0;
      if (count > most) this.#chronicle.broken('B6', `${batchId} has ${count} items at work, and may have ${most}`);
    }
  }

  /** A claim takes what waits, and what nobody has renewed in time. */
  #claimed(before: Picture, items: readonly ClaimedItem[]): void {
    for (const { lease } of items) {
      const was = before.get(lease.itemId);
      if (was !== undefined && isItemOver(was.state.status))
        this.#chronicle.broken('B5', `${lease.itemId} was ${was.state.status} and was claimed`);
    }
  }
}

function said(answer: unknown): string {
  if (answer instanceof Map) return JSON.stringify([...answer.entries()]).slice(0, 160);
  if (typeof answer === 'object' && answer !== null && 'items' in answer) {
    const { items } = answer as Awaited<ReturnType<BatchStore['claim']>>;
    return items.map(({ lease, attempt }) => `${lease.itemId}#${lease.epoch} (${attempt})`).join(', ') || 'nothing';
  }
  return (JSON.stringify(answer) ?? 'nothing').slice(0, 120);
}
