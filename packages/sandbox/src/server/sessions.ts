import type { Clock, ExecResult } from '@reindeer/protocol';
import { ReindeerError } from '@reindeer/protocol';
import type { CommandInput, CommandRunner } from './commands.ts';

/** Finished sessions are kept this long for whoever still wants to read their output. */
const KEEP_MS = 10 * 60 * 1000;
const MAX_SESSIONS = 128;

interface Session {
  readonly id: string;
  readonly commandId: string;
  readonly command: string;
  readonly controller: AbortController;
  readonly parts: Buffer[];
  bytes: number;
  result: ExecResult | null;
  endedAt: number;
  /** Resolved at every change, and then replaced. */
  changed: PromiseWithResolvers<void>;
}

export interface SessionView {
  readonly session_id: string;
  readonly command_id: string;
  readonly command: string;
  readonly status: 'running' | 'completed' | 'timed_out' | 'killed';
  readonly exit_code: number | null;
  readonly output: string;
  readonly offset: number;
}

/**
 * Commands that are started by one request and read by later ones, as the public image offers it. A session holds one command: *running*
 * → *ended* → dropped, when it is old or others need its place.
 */
export class Sessions {
  readonly #runner: CommandRunner;
  readonly #clock: Clock;
  readonly #uuid: () => string;
  readonly #sessions = new Map<string, Session>();

  constructor(parts: { readonly runner: CommandRunner; readonly clock: Clock; readonly uuid: () => string }) {
    this.#runner = parts.runner;
    this.#clock = parts.clock;
    this.#uuid = parts.uuid;
  }

  start(id: string | null, input: Omit<CommandInput, 'signal' | 'onOutput'>): string {
    this.#makeRoom();
    const sessionId = id ?? this.#uuid();
    const before = this.#sessions.get(sessionId);
    if (before !== undefined && before.result === null)
      throw new ReindeerError('bad_request', 'A command still runs in this session.', {
        detail: { field: 'session_id' },
      });
    const session: Session = {
      id: sessionId,
      commandId: this.#uuid(),
      command: input.command,
      controller: new AbortController(),
      parts: [],
      bytes: 0,
      result: null,
      endedAt: 0,
      changed: Promise.withResolvers(),
    };
    this.#sessions.delete(sessionId);
    this.#sessions.set(sessionId, session);
    const onOutput = (text: string) => {
      const part = Buffer.from(text);
      session.parts.push(part);
      session.bytes += part.length;
      this.#notify(session);
    };
    const { signal } = session.controller;
    this.#runner.run({ ...input, signal, onOutput }).then(
      (result) => this.#end(session, result),
      (error: unknown) => {
        onOutput(error instanceof Error ? error.message : 'The command could not be started.');
        const failed = { exitCode: 126, ended: 'exit', output: '', truncatedBytes: 0, durationMs: 0 } as const;
        this.#end(session, failed);
      },
    );
    return sessionId;
  }

  /** New output since `offset`; with `waitMs`, waits that long for some, or for the end. */
  async view(id: string, offset: number, waitMs: number): Promise<SessionView> {
    const session = this.#session(id);
    const over = new AbortController();
    let waiting = waitMs > 0;
    const stop = () => {
      waiting = false;
    };
    const late = this.#clock.sleep(waitMs, over.signal).then(stop, stop);
    while (waiting && session.result === null && session.bytes <= offset)
      await Promise.race([late, session.changed.promise]);
    over.abort();
    const output = Buffer.concat(session.parts).subarray(offset).toString('utf8');
    return {
      session_id: session.id,
      command_id: session.commandId,
      command: session.command,
      status: statusOf(session.result),
      exit_code: session.result === null ? null : (session.result.exitCode ?? -1),
      output,
      offset: session.bytes,
    };
  }

  /** Waits for the command's end, at most so long. */
  async finished(id: string, waitMs: number | null): Promise<SessionView> {
    const session = this.#session(id);
    const over = new AbortController();
    let waiting = true;
    const late =
      waitMs === null
        ? new Promise<void>(() => {})
        : this.#clock.sleep(waitMs, over.signal).then(
            () => {
              waiting = false;
            },
            () => {},
          );
    while (waiting && session.result === null) await Promise.race([late, session.changed.promise]);
    over.abort();
    return this.view(id, 0, 0);
  }

  kill(id: string): void {
    this.#session(id).controller.abort();
  }

  close(id: string): void {
    const session = this.#session(id);
    session.controller.abort();
    if (session.result !== null) this.#sessions.delete(id);
  }

  #session(id: string): Session {
    const session = this.#sessions.get(id);
    if (session === undefined) throw new ReindeerError('not_found', 'There is no such session.');
    return session;
  }

  #end(session: Session, result: ExecResult): void {
    session.result = result;
    session.endedAt = this.#clock.monotonic();
    this.#notify(session);
  }

  #notify(session: Session): void {
    const { changed } = session;
    session.changed = Promise.withResolvers();
    changed.resolve();
  }

  #makeRoom(): void {
    const ended = [...this.#sessions.values()].filter(({ result }) => result !== null);
    for (const session of ended) {
      const old = this.#clock.monotonic() - session.endedAt > KEEP_MS;
      if (old || this.#sessions.size >= MAX_SESSIONS) this.#sessions.delete(session.id);
    }
    if (this.#sessions.size >= MAX_SESSIONS)
      throw new ReindeerError('over_capacity', `${MAX_SESSIONS} sessions are open.`, { retryable: true });
  }
}

function statusOf(result: ExecResult | null): SessionView['status'] {
  if (result === null) return 'running';
  if (result.ended === 'timeout') return 'timed_out';
  return result.ended === 'exit' ? 'completed' : 'killed';
}
