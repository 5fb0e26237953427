import type { Logger } from '@reindeer/protocol';

/** The part of `process` that is needed; a test passes its own. */
export interface ProcessEvents {
  on(event: string, listener: (value: unknown) => void): unknown;
  off(event: string, listener: (value: unknown) => void): unknown;
}

export interface SignalParts {
  readonly process: ProcessEvents;
  readonly logger: Logger;
  /** Begins the stop; called at most once. `code` is the exit code when everything finishes. */
  begin(code: number): void;
  /** Names what has not stopped yet. */
  unfinished(): readonly string[];
  /** Leaves at once. */
  exit(code: number): void;
  /** Says something to the person at the terminal. */
  say(text: string): void;
}

/** SIGQUIT's conventional code. */
const QUIT_CODE = 131;
const STOP_SIGNALS = ['SIGTERM', 'SIGINT', 'SIGHUP'] as const;

/**
 * Connects the process's signals with the stop. The first SIGTERM, SIGINT or SIGHUP begins it; no number of further ones shortens it
 * (GW-14). SIGQUIT leaves at once with a non-zero code and the list of what is unfinished. An uncaught exception begins the same stop,
 * once, and makes the exit code 1 (GW-25).
 *
 * @returns removes the listeners
 */
export function connectSignals(parts: SignalParts): () => void {
  let begun = false;
  const begin = (code: number) => {
    if (begun) return false;
    begun = true;
    parts.begin(code);
    return true;
  };
  const stop = (name: string) => () => {
    if (begin(0)) parts.logger.info('Stopping: running work gets its time to end', { signal: name });
    else parts.say('Still stopping: running work gets its time to end. Ctrl-\\ leaves at once.');
  };
  const quit = () => {
    parts.say(`Leaving at once. Unfinished: ${parts.unfinished().join(', ') || 'nothing'}.`);
    parts.exit(QUIT_CODE);
  };
  const fault = (kind: string) => (error: unknown) => {
    parts.logger.error(kind, { error: error instanceof Error ? (error.stack ?? error.message) : String(error) });
    begin(1);
  };
  const listeners: [string, (value: unknown) => void][] = [
    ...STOP_SIGNALS.map((name): [string, (value: unknown) => void] => [name, stop(name)]),
    ['SIGQUIT', quit],
    ['uncaughtException', fault('An exception was not caught')],
    ['unhandledRejection', fault('A rejection was not handled')],
  ];
  for (const [event, listener] of listeners) parts.process.on(event, listener);
  return () => {
    for (const [event, listener] of listeners) parts.process.off(event, listener);
  };
}
