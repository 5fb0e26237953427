import type { Api, RunOptions, StartRun } from '../api/api.ts';
import type { Storage } from '../api/token.ts';
import { ApiError, asApiError } from '../api/trouble.ts';
import { endedBy, isActive } from './ended.ts';
import { type Decision, type Interrupt, resumeValue } from './interrupts.ts';
import type { FileReference } from './message.ts';
import { type Question, replyMessage } from './question.ts';
import { RunStream } from './run-stream.ts';
import { type ChatEvent, type ChatState, type EndedRun, emptyChat, reduceChat, retryPlan } from './state.ts';
import { type Dictionary, isDictionary, isWireMessage, listOf, textOr } from './wire.ts';

export interface ControllerParts {
  readonly api: Api;
  readonly storage: Storage;
  readonly newId: () => string;
  readonly model: () => string | null;
  readonly options?: () => RunOptions;
  /** The custom agent of a new chat; a chat that exists is told by its newest run. */
  readonly agent?: string | null;
  /** The agent is being made by this chat. */
  readonly bootstrap?: boolean;
  /** Calls back soon, at most once per frame, so that a burst of tokens is one repaint. */
  readonly schedule: (paint: () => void) => void;
  readonly sleep: (milliseconds: number, signal: AbortSignal) => Promise<void>;
  /** Something in the list of threads may have changed. */
  readonly onThreadChanged: () => void;
}

/** When a run that the server begins by itself is looked for, in milliseconds. */
const EXPECT_DELAYS = [500, 1_500, 4_000, 10_000] as const;

type StartInput = Pick<StartRun, 'input' | 'resume' | 'checkpoint' | 'metadata'>;

/**
 * One open chat. It loads the thread, follows its active run (one it started, or one that is found at work after a reload),
 * and passes on what the user does. One run is followed at a time; `close` lets go of it without ending it.
 */
export class ChatController {
  readonly threadId: string;
  readonly #parts: ControllerParts;
  readonly #listeners = new Set<() => void>();
  /** A new one at each opening: what an earlier opening left under way stays quiet. */
  #closed = new AbortController();
  /** The truth, and what was last painted of it. */
  #state: ChatState;
  #shown: ChatState;
  #painting = false;
  /** Does the thread exist on the server? A new chat is created with its first message. */
  #exists: boolean;
  #agent: string | null;
  /** The newest run that this chat knows of. */
  #newestRun: string | null = null;
  #following: Promise<void> | null = null;
  readonly #stream: RunStream;
  /** `wanted`: the user asked before the run had a name. A promise: the server's answer; null in it = the request failed. */
  #stop: 'no' | 'wanted' | Promise<boolean | null> = 'no';

  constructor(threadId: string, exists: boolean, parts: ControllerParts) {
    this.threadId = threadId;
    this.#exists = exists;
    this.#agent = parts.agent ?? null;
    this.#parts = parts;
    this.#state = { ...emptyChat(threadId), loading: exists };
    this.#shown = this.#state;
    this.#stream = new RunStream({
      api: parts.api,
      storage: parts.storage,
      threadId,
      sleep: parts.sleep,
      signal: () => this.#closed.signal,
      onPart: ({ event, data }) => this.#apply({ kind: 'part', event, data }),
      onGap: () => this.#reload(),
      onReconnecting: () => this.#apply({ kind: 'reconnecting' }),
    });
  }

  get exists(): boolean {
    return this.#exists;
  }

  /** The custom agent that is talked to; null = the default one. */
  get agent(): string | null {
    return this.#agent;
  }

  subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };

  /** The state as of the last paint. */
  snapshot = (): ChatState => this.#shown;

  /** Loads the thread and follows its run, if one is at work. */
  async open(): Promise<void> {
    if (this.#closed.signal.aborted) this.#closed = new AbortController();
    if (!this.#exists || this.#following !== null) return;
    const { signal } = this.#closed;
    this.#apply({ kind: 'loading' });
    try {
      const run = await this.#parts.api.newestRun(this.threadId);
      await this.#reload();
      if (run?.agent != null) this.#agent = run.agent;
      this.#newestRun = run?.runId ?? null;
      if (run === null || signal.aborted || this.#following !== null) return;
      if (isActive(run)) {
        this.#apply({ kind: 'run', runId: run.runId });
        this.#follow(async () => {
          await this.#stream.join(run.runId);
          await this.#finish(run.runId);
        });
      } else {
        const ended = endedBy(run, this.#state.interrupts.length > 0);
        if (ended.how !== 'success') this.#apply({ kind: 'ended', ended });
      }
    } catch (error) {
      if (!signal.aborted) this.#apply({ kind: 'load-failed', trouble: asApiError(error).trouble });
    }
  }

  /**
   * Sends a message. Answers false when it was not taken, because the thread is busy or the server cannot be reached: the text then
   * belongs back into the composer.
   */
  send(text: string, files: readonly FileReference[]): Promise<boolean> {
    const attached = files.map((file) => ({
      filename: file.name,
      size: file.size,
      path: file.path,
      status: 'uploaded',
    }));
    const message = {
      type: 'human',
      id: this.#parts.newId(),
      content: text,
      ...(attached.length === 0 ? {} : { additional_kwargs: { files: attached } }),
    };
    return this.#start(message, { input: { messages: [message] } });
  }

  answer(question: Question, reply: { kind: 'option' | 'text'; value: string; optionId?: string }): Promise<boolean> {
    const message = replyMessage(this.#parts.newId(), question, reply);
    return this.#start(message, { input: { messages: [message] } });
  }

  resume(answers: readonly (readonly Decision[] | string)[]): Promise<boolean> {
    return this.#start(null, { input: null, resume: resumeValue(this.#state.interrupts, answers) });
  }

  /** Has an answer made once more, from the state of before it. */
  regenerate(messageId: string): Promise<boolean> {
    return this.#replay('regenerate', messageId, { message_id: messageId });
  }

  /** Puts other words in the place of a message of the user, and has them answered. */
  edit(messageId: string, text: string): Promise<boolean> {
    return this.#replay('edit-regenerate', messageId, { human_message_id: messageId, replacement_text: text });
  }

  async #replay(how: string, messageId: string, body: Dictionary): Promise<boolean> {
    if (this.#state.run !== null) return false;
    const path = `/threads/${encodeURIComponent(this.threadId)}/runs/${how}/prepare`;
    const prepared = await this.#parts.api.rest.send('POST', path, body);
    if (!isDictionary(prepared) || !isDictionary(prepared.input)) return false;
    const [message] = listOf(prepared.input.messages);
    this.#apply({ kind: 'rewound', messageId });
    const taken = await this.#start(isWireMessage(message) ? (message as unknown as Dictionary) : null, {
      input: prepared.input,
      ...(isDictionary(prepared.checkpoint) ? { checkpoint: prepared.checkpoint } : {}),
      ...(isDictionary(prepared.metadata) ? { metadata: prepared.metadata } : {}),
    });
    // What was put away is still so.
    if (!taken) await this.open();
    return taken;
  }

  async retry(): Promise<boolean> {
    const plan = retryPlan(this.#state);
    if (plan === null) return false;
    if (plan.how === 'continue') return this.#start(null, { input: null });
    const taken = await this.send(plan.text, []);
    const { ended } = this.#state;
    // These words stand in no composer: they can be tried once more.
    if (!taken && ended?.how === 'refused') this.#apply({ kind: 'ended', ended: { ...ended, how: 'failed' } });
    return taken;
  }

  /** Asks the run to stop. `stopping` is shown until nothing of it acts any more. */
  async stop(): Promise<void> {
    const { run } = this.#state;
    if (run === null || run.phase === 'stopping') return;
    this.#apply({ kind: 'stopping' });
    // Before the server has named the run, the wish is kept and sent with the name.
    if (run.id === null) this.#stop = 'wanted';
    else await this.#sendStop(run.id);
  }

  /** Makes sure that the thread exists, for files that are attached before the first message. */
  async ensureThread(): Promise<void> {
    if (this.#exists) return;
    await this.#parts.api.createThread(this.threadId, this.#parts.bootstrap === true ? null : this.#agent);
    this.#exists = true;
    this.#parts.onThreadChanged();
  }

  /** The server is about to begin a run of its own (a batch has ended): finds it and follows it. */
  async expectRun(): Promise<void> {
    const { signal } = this.#closed;
    try {
      for (const delay of EXPECT_DELAYS) {
        await this.#parts.sleep(delay, signal);
        await this.idle();
        const run = await this.#parts.api.newestRun(this.threadId);
        if (signal.aborted) return;
        if (run !== null && run.runId !== this.#newestRun) {
          await this.open();
          return;
        }
      }
    } catch {
      // A chat that is closed, or a server that is away: whoever opens it again sees the run.
    }
  }

  /** Sets the goal of the chat, or takes it away. Runs then go on until it is reached. */
  async setGoal(objective: string | null): Promise<void> {
    await this.ensureThread();
    const path = `/threads/${encodeURIComponent(this.threadId)}/goal`;
    if (objective === null) await this.#parts.api.rest.send('DELETE', path);
    else await this.#parts.api.rest.send('PUT', path, { objective });
    await this.#reload();
  }

  /**
   * Has earlier messages replaced by a summary.
   *
   * @returns how many
   */
  async compact(): Promise<number> {
    if (!this.#exists) return 0;
    const path = `/threads/${encodeURIComponent(this.threadId)}/compact`;
    const report = await this.#parts.api.rest.send('POST', path, {});
    await this.#reload();
    const removed = isDictionary(report) ? report.removed_message_count : 0;
    return typeof removed === 'number' ? removed : 0;
  }

  rename(title: string): void {
    this.#apply({ kind: 'title', title });
  }

  /** Lets go of the run without ending it. The chat can be opened again. */
  close(): void {
    this.#closed.abort();
  }

  /** Resolves when no run is followed any more. */
  async idle(): Promise<void> {
    while (this.#following !== null) await this.#following;
  }

  async #start(shown: Dictionary | null, how: StartInput): Promise<boolean> {
    if (this.#state.run !== null) return false;
    this.#stop = 'no';
    const asked = this.#state.interrupts;
    this.#apply({ kind: 'submitted', message: shown });
    try {
      await this.ensureThread();
    } catch (error) {
      this.#refuse(shown, error, asked);
      return false;
    }
    const taken = Promise.withResolvers<boolean>();
    this.#follow(async () => {
      let runId: string | null = null;
      const named = (id: string) => {
        if (runId !== null) return;
        runId = id;
        this.#newestRun = id;
        this.#apply({ kind: 'run', runId: id });
        if (this.#stop === 'wanted') void this.#sendStop(id);
        taken.resolve(true);
        this.#parts.onThreadChanged();
      };
      const known = () => runId;
      try {
        const { signal } = this.#closed;
        const model = this.#parts.model();
        const options = { ...this.#parts.options?.(), ...this.#agentOptions() };
        await this.#stream.read(
          this.#parts.api.startRun({ threadId: this.threadId, ...how, ...options, model, signal, onRun: named }),
          known,
          named,
        );
        if (known() === null) throw new ApiError(0, { kind: 'network', detail: null });
      } catch (error) {
        const id = known();
        if (id === null) {
          this.#refuse(shown, error, asked);
          taken.resolve(false);
          if (asApiError(error).status === 409) void this.#lookAgain();
          return;
        }
        await this.#stream.rejoin(id);
      }
      const id = known();
      if (id !== null) await this.#finish(id);
    });
    return taken.promise;
  }

  #agentOptions(): RunOptions {
    if (this.#agent === null) return {};
    return { agent: this.#agent, ...(this.#parts.bootstrap === true ? { bootstrap: true } : {}) };
  }

  /** The run was not taken: what was shown ahead of it goes away again. */
  #refuse(shown: Dictionary | null, error: unknown, interrupts: readonly Interrupt[]): void {
    const { trouble } = asApiError(error);
    this.#apply({ kind: 'refused', messageId: textOr(shown?.id, ''), trouble, interrupts });
  }

  /** Another run holds the thread: shows it, once this attempt is put away. */
  async #lookAgain(): Promise<void> {
    await this.idle();
    const { ended } = this.#state;
    await this.open();
    if (this.#state.run === null && ended !== null) this.#apply({ kind: 'ended', ended });
  }

  #follow(work: () => Promise<void>): void {
    const following = work()
      .catch((error: unknown) => {
        if (this.#closed.signal.aborted) return;
        this.#apply({ kind: 'ended', ended: { how: 'lost', trouble: asApiError(error).trouble } });
      })
      .finally(() => {
        if (this.#following === following) this.#following = null;
      });
    this.#following = following;
  }

  /** The stream has ended: the server's state is the truth about what it left behind. */
  async #finish(runId: string): Promise<void> {
    const run = await this.#parts.api.run(this.threadId, runId);
    await this.#reload();
    this.#stream.forget(runId);
    // A stop is over when the server says that nothing acts any more, which can be later than the end of the stream.
    const stopped = this.#stop === 'no' || this.#stop === 'wanted' ? null : await this.#stop;
    if (this.#closed.signal.aborted) return;
    const ended: EndedRun =
      run === null
        ? { how: 'lost', trouble: null }
        : stopped === false
          ? { how: 'stop-slow', trouble: null }
          : endedBy(run, this.#state.interrupts.length > 0);
    this.#apply({ kind: 'ended', ended });
    this.#parts.onThreadChanged();
  }

  async #reload(): Promise<void> {
    const state = await this.#parts.api.state(this.threadId);
    if (this.#closed.signal.aborted) return;
    if (state === null) throw new ApiError(404, { kind: 'not-found', detail: null });
    this.#apply({ kind: 'loaded', values: state.values, next: state.next, interrupts: state.interrupts });
  }

  async #sendStop(runId: string): Promise<void> {
    this.#stop = this.#parts.api.stopRun(this.threadId, runId).then(
      (result) => result.stopped,
      (error: unknown) => {
        // The run goes on: say so, and let the user try again.
        this.#stop = 'no';
        if (!this.#closed.signal.aborted) this.#apply({ kind: 'stop-failed', trouble: asApiError(error).trouble });
        return null;
      },
    );
    await this.#stop;
  }

  #apply(event: ChatEvent): void {
    this.#state = reduceChat(this.#state, event);
    if (this.#painting || this.#closed.signal.aborted) return;
    this.#painting = true;
    this.#parts.schedule(() => {
      this.#painting = false;
      this.#shown = this.#state;
      this.#stream.keep();
      for (const listener of this.#listeners) listener();
    });
  }
}
