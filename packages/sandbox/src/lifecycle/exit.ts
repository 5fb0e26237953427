import type { Logger, ShutdownOwnership } from '@reindeer/protocol';

/** The part of `process` that is needed; a test passes its own. */
export interface ExitProcess {
  readonly pid: number;
  on(event: string, listener: () => void): unknown;
  off(event: string, listener: () => void): unknown;
  listenerCount(event: string): number;
  kill(pid: number, signal: string): unknown;
}

export interface ExitParts {
  readonly process: ExitProcess;
  readonly ownership: ShutdownOwnership;
  readonly logger: Logger;
  /** Ends all sandboxes. May be called again after it failed. */
  shutdown(): Promise<unknown>;
}

const SIGNALS = ['SIGTERM', 'SIGINT', 'SIGHUP'] as const;

/**
 * Exit handling for a program that uses sandboxes without a host of ours: SIGTERM, SIGINT and SIGHUP stop the sandboxes, and then do what
 * they would have done. While shutdown ownership is declared it does nothing at all: the host's handler acts, and containers go only
 * after its runs have ended.
 *
 * Listeners that stood there before are called by the system as ever (SB-68). When they cannot be installed, that is said and nothing
 * fails: what is left running is adopted by a later start.
 *
 * @returns removes the listeners
 */
export function stopWithProcess(parts: ExitParts): () => void {
  const { process, ownership, logger } = parts;
  let begun = false;
  const remove = (): void => {
    for (const [signal, listener] of listeners) process.off(signal, listener);
  };
  const stop = async (signal: string): Promise<void> => {
    try {
      await parts.shutdown();
    } catch (error) {
      logger.error('Failed to shut down sandbox provider', { cause: String(error) });
    }
    remove();
    // Only our own listener kept the signal from ending the process; with others, its end is theirs.
    if (process.listenerCount(signal) === 0) process.kill(process.pid, signal);
  };
  const listeners = SIGNALS.map((signal): readonly [string, () => void] => [
    signal,
    () => {
      if (ownership.declared || begun) return;
      begun = true;
      void stop(signal);
    },
  ]);
  try {
    for (const [signal, listener] of listeners) process.on(signal, listener);
  } catch (error) {
    logger.warn('Sandboxes will not be stopped by a signal', { cause: String(error) });
  }
  return remove;
}
