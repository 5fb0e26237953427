import { getCompileCacheDir } from 'node:module';
import { dirname } from 'node:path';
import { Worker } from 'node:worker_threads';
import type { FromWorker, ToWorker, WorkerInput } from './worker.ts';

/** Where the connection lives, seen from the calling side: a thread that answers messages until it ends. */
export interface Engine {
  /** @throws when the message holds something that cannot be sent to another thread */
  post(message: ToWorker): void;
  /** Ends it without waiting. `onExit` follows. */
  terminate(): void;
}

export interface EngineEvents {
  onMessage(message: FromWorker): void;
  /** It is about to end because of this. */
  onError(error: unknown): void;
  /** It has ended; nothing follows. */
  onExit(): void;
}

export type StartEngine = (events: EngineEvents) => Engine;

/** A real thread with its own copy of this package. */
export function workerEngine(workerUrl: URL, input: WorkerInput): StartEngine {
  return (events) => {
    const worker = new Worker(workerUrl, { workerData: input, name: 'reindeer-database', env: environment() });
    worker.on('message', (message: FromWorker) => events.onMessage(message));
    worker.on('error', (error) => events.onError(error));
    worker.on('exit', () => events.onExit());
    return {
      post: (message) => worker.postMessage(message),
      terminate: () => void worker.terminate(),
    };
  };
}

/** Its own, and where this thread keeps what it compiled: that is not passed on by itself. */
function environment(): NodeJS.ProcessEnv {
  const cache = getCompileCacheDir();
  // Below the folder that was asked for there is one per version of Node.
  return cache === undefined
    ? process.env
    : { ...process.env, NODE_COMPILE_CACHE: dirname(cache), NODE_COMPILE_CACHE_PORTABLE: '1' };
}
