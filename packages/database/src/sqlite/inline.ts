import { scripts } from '../scripts.ts';
import { SqliteConnection } from './connection.ts';
import type { StartEngine } from './engine.ts';
import { toPlainError } from './errors.ts';
import { openWith, type SqliteOptions, type SqliteStores } from './open.ts';

/**
 * The database in memory and in the caller's own thread, for suites that open hundreds of them: the same client, connection and
 * scripts, and messages are copied as between threads. Blocks its caller, so it is for tests only.
 */
export function openInline(options: Omit<SqliteOptions, 'folder' | 'workerUrl'>): Promise<SqliteStores> {
  return openWith({ ...options, folder: ':memory:' }, ':memory:', () => inlineEngine);
}

const inlineEngine: StartEngine = (events) => {
  let connection: SqliteConnection | null = null;
  const end = (): void => {
    connection?.close();
    connection = null;
    events.onExit();
  };
  queueMicrotask(() => {
    try {
      connection = new SqliteConnection(':memory:', scripts);
      events.onMessage({ kind: 'ready' });
    } catch (error) {
      events.onMessage({ kind: 'refused', error: toPlainError(error) });
      end();
    }
  });
  return {
    post: (message) => {
      const copy = structuredClone(message);
      queueMicrotask(() => {
        if (copy.kind === 'close') end();
        else
          void connection
            ?.runBatch(copy.operations)
            .then((result) => events.onMessage(structuredClone({ kind: 'batch', id: copy.id, ...result })));
      });
    },
    terminate: () => queueMicrotask(end),
  };
};
