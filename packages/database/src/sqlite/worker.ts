import { parentPort, workerData } from 'node:worker_threads';
import type { PlainError } from '@reindeer/protocol';
import { scripts } from '../scripts.ts';
import { type BatchResult, type Operation, SqliteConnection } from './connection.ts';
import { copyDatabase } from './copy.ts';
import { toPlainError } from './errors.ts';

/** What the worker is started with: a database to serve, or one to copy. */
export type WorkerInput =
  | { readonly kind: 'serve'; readonly file: string }
  | { readonly kind: 'backup'; readonly file: string; readonly to: string };

/** To the worker: a batch, or the wish to end. */
export type ToWorker =
  | { readonly kind: 'batch'; readonly id: number; readonly operations: readonly Operation[] }
  | { readonly kind: 'close' };

export type FromWorker =
  | { readonly kind: 'ready' }
  /** The database could not be opened; the worker ends. */
  | { readonly kind: 'refused'; readonly error: PlainError }
  | ({ readonly kind: 'batch'; readonly id: number } & BatchResult)
  | { readonly kind: 'closed' };

/**
 * The thread in which the database lives (D9). It answers batches one after another; the other side keeps at most one on the way.
 */
function serve(): void {
  const port = parentPort;
  if (port === null) return;
  const post = (message: FromWorker): void => port.postMessage(message);
  const input = workerData as WorkerInput;
  let connection: SqliteConnection;
  try {
    if (input.kind === 'backup') {
      copyDatabase(input.file, input.to);
      post({ kind: 'closed' });
      port.close();
      return;
    }
    connection = new SqliteConnection(input.file, scripts);
  } catch (error) {
    post({ kind: 'refused', error: toPlainError(error) });
    port.close();
    return;
  }
  port.on('message', (message: ToWorker) => {
    if (message.kind === 'close') {
      connection.close();
      post({ kind: 'closed' });
      port.close();
      return;
    }
    // A failure inside is part of the answer; a rejection here is a fault that ends the thread, which the other side reports.
    void connection.runBatch(message.operations).then((result) => post({ kind: 'batch', id: message.id, ...result }));
  });
  post({ kind: 'ready' });
}

serve();
