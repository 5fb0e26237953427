import { Worker } from 'node:worker_threads';
import { ReindeerError } from '@reindeer/protocol';

interface ThreadSource {
  readonly url: string;
  readonly name: string;
  readonly options: Readonly<Record<string, unknown>>;
}

/** Threads of one tool at once; more calls are refused, and the model may try again. */
const MAX_AT_ONCE = 4;
const MAX_HEAP_MB = 512;

/** What runs in the thread: no module of its own, so that it is the same from source and bundled. */
const BODY = `
const { parentPort, workerData } = require('node:worker_threads');
const { url, name, options, args, context } = workerData;
import(url)
  .then(async (module) => {
    const made = module[name];
    const tool = typeof made === 'function' ? await made(options) : made;
    parentPort.postMessage({ answer: await tool.run(args, context) });
  })
  .catch((error) => parentPort.postMessage({ error: String((error && error.message) || error) }));
`;

/** Runs calls of one tool of the operator's own, each in a thread of its own, which ends with it. */
export class ThreadCalls {
  readonly #source: ThreadSource;
  #running = 0;

  constructor(source: ThreadSource) {
    this.#source = source;
  }

  /** Rejects with what the tool threw, with the signal's reason, or `over_capacity`. The thread has ended when it settles. */
  async call(args: unknown, context: object, signal: AbortSignal): Promise<unknown> {
    signal.throwIfAborted();
    if (this.#running >= MAX_AT_ONCE)
      throw new ReindeerError(
        'over_capacity',
        `${MAX_AT_ONCE} calls of this tool run already; try again when one has ended.`,
        {
          retryable: true,
        },
      );
    const { url, name, options } = this.#source;
    this.#running += 1;
    const outcome = Promise.withResolvers<unknown>();
    outcome.promise.catch(() => {});
    const onAbort = (): void => outcome.reject(signal.reason);
    let worker: Worker | null = null;
    try {
      worker = new Worker(BODY, {
        eval: true,
        workerData: { url, name, options, args, context },
        resourceLimits: { maxOldGenerationSizeMb: MAX_HEAP_MB },
        // What it writes would mix with the results of commands.
        stdout: true,
        stderr: true,
      });
      worker.stdout.resume();
      worker.stderr.resume();
      signal.addEventListener('abort', onAbort, { once: true });
      worker.once('message', (message: { answer?: unknown; error?: string }) => {
        if (message.error === undefined) outcome.resolve(message.answer);
        else outcome.reject(new ReindeerError('tool_failed', message.error));
      });
      worker.once('error', (cause) => outcome.reject(new ReindeerError('tool_failed', cause.message, { cause })));
      worker.once('exit', () =>
        outcome.reject(new ReindeerError('tool_failed', 'The thread of the tool ended without an answer.')),
      );
      return await outcome.promise;
    } finally {
      signal.removeEventListener('abort', onAbort);
      await worker?.terminate();
      this.#running -= 1;
    }
  }
}
