import type {
  Fact,
  FactBody,
  FramePosition,
  GraphFactory,
  Log,
  Run,
  StreamEvent,
  StreamItem,
  Surroundings,
  WireMessage,
} from '@reindeer/protocol';
import { comparePositions, formatCursor, resolveCursor } from '@reindeer/protocol';
import { retry } from '../common/retry.ts';
import { Sleeper } from '../common/waiting.ts';
import type { TokenFrame, TokenSource } from './frames.ts';
import {
  type Knowledge,
  MessageProjection,
  type Modes,
  type Projected,
  projectEnd,
  projectFact,
  withId,
} from './projection.ts';
import { Pulse } from './pulse.ts';
import type { RunStreams, Seat } from './streams.ts';
import type { ValuesCache } from './values-text.ts';

export interface ReaderParts {
  readonly epoch: () => Promise<string>;
  readonly log: Log;
  readonly surroundings: Surroundings;
  readonly streams: RunStreams;
  readonly values: ValuesCache;
  /** A graph that reads checkpoints, for the `checkpoints` mode. */
  readonly stateOf: (run: Run, checkpointId: string) => Promise<string | null>;
  readonly factoryOf: (run: Run) => GraphFactory | null;
}

export interface ReaderInput {
  readonly run: Run;
  readonly lastEventId: string | null;
  readonly modes: Modes;
  readonly heartbeatMs: number;
  readonly signal: AbortSignal;
}

/** The id of the message that a fact brings. Readers get whole messages, never references. */
function idOfMessage(body: FactBody): string | null {
  if (body.kind !== 'message' || !('type' in body.message)) return null;
  return body.message.id ?? null;
}

/** Events of frames, shared by all readers of a run (the frame objects are). */
const identified = new WeakMap<TokenFrame, { readonly epoch: string; readonly events: readonly StreamEvent[] }>();

const PATIENCE = { tries: 4, backoffMs: 250 };

/** Messages of which a resuming client is assumed to have everything. */
const ASSUMED = 500;

/**
 * One reader of one run's stream: from its cursor to the end, in the order of the log, tokens in between. Pulled: while the consumer
 * does not ask, nothing is read and nothing piles up; a reader that fell behind re-reads the log (RS-21).
 *
 * Position: the last fact or token frame that was delivered; everything at or before it was (RS-01, RS-02). Only the last event of a
 * position carries its id, so a connection that breaks in between repeats the position instead of losing a part of it.
 */
export class StreamReader {
  readonly #parts: ReaderParts;
  readonly #input: ReaderInput;
  readonly #messages: MessageProjection;
  readonly #modes: Modes;
  readonly #subgraphs: boolean;
  #epoch = '';
  #position: FramePosition = { seq: 0, n: 0 };
  /** The log is known to hold nothing of the run between the position and here. */
  #through = 0;
  #ahead: Fact[] = [];
  /** Message facts up to here may be of messages that the client has in part, nobody knows how much. */
  #doubtful = 0;
  /** Where a client resumes in the middle of messages. */
  #resumed: FramePosition | null = null;
  /** Version of the feed at which the run was last known not to have ended. */
  #notEndedAt = -1;

  constructor(parts: ReaderParts, input: ReaderInput) {
    this.#parts = parts;
    this.#input = input;
    this.#modes = input.modes;
    this.#subgraphs = input.run.request.streamSubgraphs;
    this.#messages = new MessageProjection(input.run, input.modes, this.#subgraphs);
  }

  async *read(): AsyncGenerator<StreamItem> {
    const { runId, threadId } = this.#input.run;
    const { streams } = this.#parts;
    const start = await this.#begin();
    const over = AbortSignal.any([this.#input.signal, streams.over]);
    if (over.aborted) return;
    const seat = streams.join(runId, threadId, this.#position.seq);
    try {
      this.#recall(seat.hub());
      yield { id: null, event: 'metadata', data: JSON.stringify({ run_id: runId, thread_id: threadId }) };
      if (start !== null) yield start;
      yield* this.#follow(seat, over);
    } finally {
      seat.leave();
    }
  }

  async #begin(): Promise<StreamItem | null> {
    const { log } = this.#parts;
    const { run, lastEventId } = this.#input;
    const { threadId, runId } = run;
    const opening = lastEventId === null ? this.#parts.streams.opening(runId) : null;
    const beginning = opening ?? log.read({ threadId, runId, afterSeq: 0, limit: 1, maxBytes: 1 });
    const [epoch, page] = await Promise.all([this.#parts.epoch(), beginning]);
    this.#epoch = epoch;
    // Every run begins with its `pending` fact; one that begins otherwise has lost its beginning to pruning.
    const [head] = page.facts;
    const whole =
      head === undefined ? page.prunedThrough === 0 : head.body.kind === 'run' && head.body.status === 'pending';
    const first = whole ? (head?.seq ?? page.head + 1) : Math.min(head?.seq ?? page.head, page.prunedThrough);
    const begin = resolveCursor(lastEventId, {
      epoch: this.#epoch,
      head: page.head,
      prunedThrough: page.prunedThrough,
      firstSeqOfRun: first,
    });
    if (begin.from === 'start') {
      this.#place({ seq: first - 1, n: 0 });
      return null;
    }
    if (begin.from === 'after') {
      await this.#resume({ seq: begin.seq, n: begin.frame }, first, page.head);
      return null;
    }
    // A gap is told before anything is replayed (RS-03), never cancels the run (RS-15), and what follows it starts messages over.
    this.#place({ seq: Math.max(first - 1, page.prunedThrough), n: 0 });
    this.#doubtful = Number.MAX_SAFE_INTEGER;
    const id = (seq: number) => formatCursor({ epoch: this.#epoch, seq, frame: 0 });
    const data = {
      code: 'stream_replay_gap',
      run_id: runId,
      requested_event_id: lastEventId,
      earliest_available_event_id: id(this.#position.seq + 1),
      latest_available_event_id: id(Math.max(page.head, this.#position.seq)),
      recovery: 'reload_durable_state',
    };
    return { id: null, event: 'gap', data: JSON.stringify(data) };
  }

  /** Goes on after a position: what the client has of messages is told by the log, and by the hub for those being written. */
  async #resume(at: FramePosition, first: number, head: number): Promise<void> {
    if (at.seq < first - 1) {
      this.#place({ seq: first - 1, n: 0 });
      return;
    }
    this.#place(at);
    if (!this.#messages.wanted) return;
    const { threadId, runId } = this.#input.run;
    const { log } = this.#parts;
    const had = await log.messages({ threadId, runId, before: at.seq + 1, after: null, limit: ASSUMED });
    for (const { body } of had.facts) {
      const id = idOfMessage(body);
      if (id !== null) this.#messages.assume(id);
    }
    if (at.n > 0) {
      this.#resumed = at;
      this.#doubtful = head;
    }
  }

  /** The client has tokens of the messages that had begun where it resumes. */
  #recall(hub: TokenSource | null): void {
    if (this.#resumed === null || hub === null) return;
    for (const id of hub.begunBy(this.#resumed)) if (!this.#messages.begun(id)) this.#messages.begin(id);
  }

  #place(position: FramePosition): void {
    this.#position = position;
    this.#through = position.seq;
  }

  async *#follow(seat: Seat, over: AbortSignal): AsyncGenerator<StreamItem> {
    const sleeper = new Sleeper();
    const pulse = new Pulse(this.#parts.surroundings.clock, this.#input.heartbeatMs, sleeper.wake);
    const unlisten = seat.feed.bell.listen(sleeper.wake);
    // Asking a signal that stands for several others costs more than the rest of a step.
    let ended = over.aborted;
    const onOver = () => {
      ended = true;
      // Also where the consumer pulls no more, so that this generator never comes to its end.
      pulse.stop();
      seat.leave();
      sleeper.wake();
    };
    over.addEventListener('abort', onOver, { once: true });
    try {
      while (!ended) {
        sleeper.doze();
        const live = this.#live(seat);
        const step = live === undefined ? await this.#step(seat) : live;
        if (step === null) {
          if (pulse.isDue()) yield 'heartbeat';
          else await sleeper.wait();
          continue;
        }
        for (const item of step) {
          if (ended) return;
          yield item;
          pulse.delay();
          if (item.event === 'end') return;
        }
      }
    } finally {
      pulse.stop();
      unlisten();
      over.removeEventListener('abort', onOver);
    }
  }

  /**
   * The next tokens of a run that works here, for a reader that has everything else: by far the most steps of a live stream, and none
   * of them needs to wait for anything. Null = there are none yet; undefined = the long way finds out.
   */
  #live(seat: Seat): readonly StreamEvent[] | null | undefined {
    const hub = seat.hub();
    if (hub === null || hub.closed || !hub.punctual || this.#ahead.length > 0) return undefined;
    const read = seat.feed.ready(this.#position.seq);
    if (read === null || !read.exhausted) return undefined;
    this.#through = Math.max(this.#through, read.through);
    return this.#tokens(hub, this.#through);
  }

  /** The events of the next position; null when there is none yet. */
  async #step(seat: Seat): Promise<readonly StreamEvent[] | null> {
    if (this.#ahead.length === 0) {
      const read = await this.#patiently(() => seat.feed.after(this.#position.seq));
      this.#ahead = [...read.facts];
      if (read.facts.length === 0) this.#through = Math.max(this.#through, read.through);
      if (this.#ahead.length === 0 && read.exhausted && this.#notEndedAt !== read.version) {
        const end = await this.#end(seat, read.version);
        if (end !== null) return end;
      }
    }
    const hub = seat.hub();
    const fact = this.#ahead[0];
    // What was written before the fact stands before it: pending tokens become frames now.
    if (fact !== undefined) hub?.noteHead(fact.seq);
    const known = fact === undefined ? this.#through : fact.seq - 1;
    const tokens = hub === null ? null : this.#tokens(hub, known);
    if (tokens !== null) return tokens;
    if (fact === undefined) return null;
    this.#ahead.shift();
    const position = { seq: fact.seq, n: 0 };
    const events = await this.#project(fact, hub);
    this.#position = position;
    this.#through = fact.seq;
    return this.#identify(events, position);
  }

  /** The frame behind the position; null when there is none before the facts that are not known yet. */
  #tokens(hub: TokenSource, through: number): readonly StreamEvent[] | null {
    const delivery = this.#messages.wanted ? hub.next(this.#position, through) : null;
    if (delivery === null || delivery.frame.position.seq > through) return null;
    const { frame, startOver } = delivery;
    this.#position = frame.position;
    if (this.#isComing(frame.messageId)) return [];
    const events = this.#messages.tokens(frame, startOver);
    // One event per chunk says nothing but the frame: all readers share it, and so what is made of it.
    const shared = !startOver && events.length === frame.chunks.length && !this.#modes.has('messages');
    const known = shared ? identified.get(frame) : undefined;
    if (known?.epoch === this.#epoch) return known.events;
    const made = this.#identify(events, frame.position);
    if (shared) identified.set(frame, { epoch: this.#epoch, events: made });
    return made;
  }

  /** A store that cannot answer is asked again; the fourth failure in a row ends the stream with its error (RS-12). */
  #patiently<T>(ask: () => Promise<T>): Promise<T> {
    const gone = () => this.#input.signal.aborted || this.#parts.streams.over.aborted;
    return retry(this.#parts.surroundings.clock, PATIENCE, ask, gone);
  }

  /** None of this message was sent, and it stands whole a little further in the log: its tokens are not needed. */
  #isComing(messageId: string): boolean {
    if (this.#messages.begun(messageId)) return false;
    return this.#ahead.some(({ body }) => idOfMessage(body) === messageId);
  }

  /** The end of a run whose terminal fact is not ahead: delivered before, pruned, or the row is gone (RS-06, RS-17). */
  async #end(seat: Seat, version: number): Promise<readonly StreamEvent[] | null> {
    if (seat.hub()?.closed === false) return null;
    const { threadId, runId } = this.#input.run;
    const run = await this.#patiently(() => seat.row(version));
    if (run !== null && !run.acknowledged) {
      this.#notEndedAt = version;
      return null;
    }
    const next = { threadId, runId, afterSeq: this.#position.seq, limit: 1, maxBytes: 1 };
    const page = await this.#patiently(() => this.#parts.log.read(next));
    if (page.facts.length > 0) {
      seat.feed.hint();
      return null;
    }
    return projectEnd({ runId, status: (run ?? this.#input.run).status })
      .filter(({ event }) => event === 'end')
      .map((event) => withId(event, null));
  }

  async #project(fact: Fact, hub: TokenSource | null): Promise<readonly Projected[]> {
    const { body } = fact;
    const { run } = this.#input;
    switch (body.kind) {
      case 'run':
        if (body.terminal) return projectEnd({ runId: run.runId, status: body.status, error: body.error ?? null });
        // A new attempt writes anew what the one before it did not finish.
        return body.status === 'running' ? this.#messages.abandoned() : [];
      case 'message': {
        const { message } = body;
        return 'type' in message
          ? this.#messages.finished(message, body.ns, this.#knowledgeOf(fact, message, hub))
          : [];
      }
      case 'message-removed':
        return this.#messages.removed(body.messageId, body.ns);
      case 'checkpoint':
        return body.ns === '' ? this.#projectCheckpoint(body.checkpointId) : [];
      default:
        return projectFact(fact, this.#modes, this.#subgraphs);
    }
  }

  /** What the client has of a message whose fact comes now. */
  #knowledgeOf(fact: Fact, message: WireMessage, hub: TokenSource | null): Knowledge {
    const id = message.id ?? '';
    if (this.#messages.begun(id)) {
      if (this.#messages.complete(id) || this.#messages.hasWhole(message)) return 'all';
      // Frames that were forgotten before they were sent leave the client with a part; those of a peer may still be on their way.
      return hub?.punctual === true && hub.has(id) ? 'all' : 'unknown';
    }
    const streams = message.type === 'ai' || message.type === 'AIMessageChunk';
    return streams && (fact.seq <= this.#doubtful || this.#mayHavePart(id, hub)) ? 'unknown' : 'nothing';
  }

  /** Did the client leave, perhaps in the middle of this message, while it was written elsewhere? */
  #mayHavePart(messageId: string, hub: TokenSource | null): boolean {
    if (this.#resumed === null || hub?.punctual === true) return false;
    const first = hub?.firstOf(messageId) ?? null;
    return first === null || comparePositions(first, this.#resumed) <= 0;
  }

  async #projectCheckpoint(checkpointId: string): Promise<readonly Projected[]> {
    const { run } = this.#input;
    const events: Projected[] = [];
    if (this.#modes.has('checkpoints')) {
      const data = await this.#patiently(() => this.#parts.stateOf(run, checkpointId));
      if (data !== null) events.push({ event: 'checkpoints', data });
    }
    if (this.#modes.has('values') && !this.#isStale()) {
      const factory = this.#parts.factoryOf(run);
      const data =
        factory === null
          ? null
          : await this.#patiently(() => this.#parts.values.text(run.threadId, checkpointId, factory));
      if (data !== null) events.push({ event: 'values', data });
    }
    return events;
  }

  /** A newer state of the root graph is known already: a reader that is behind gets the newest only. */
  #isStale(): boolean {
    return this.#ahead.some(({ body }) => body.kind === 'checkpoint' && body.ns === '');
  }

  #identify(events: readonly Projected[], position: FramePosition): readonly StreamEvent[] {
    const id = formatCursor({ epoch: this.#epoch, seq: position.seq, frame: position.n });
    return events.map((event, index) => withId(event, index === events.length - 1 ? id : null));
  }
}
