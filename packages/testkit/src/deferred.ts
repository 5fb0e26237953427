/** A promise that is settled from outside: the way in which tests hold an interleaving open. */
export interface Deferred<T> {
  readonly promise: Promise<T>;
  resolve(value: T): void;
  reject(reason: unknown): void;
  readonly settled: boolean;
}

/** A fresh deferred; settling it a second time does nothing. A rejection that nobody awaits is not an unhandled one. */
export function deferred<T = void>(): Deferred<T> {
  const { promise, resolve, reject } = Promise.withResolvers<T>();
  let settled = false;
  promise.catch(() => {});
  return {
    promise,
    resolve: (value) => {
      settled = true;
      resolve(value);
    },
    reject: (reason) => {
      settled = true;
      reject(reason);
    },
    get settled() {
      return settled;
    },
  };
}

/**
 * Lets everything that is ready run, without waiting for time to pass: all microtasks and `turns` turns of the event loop.
 * It is no way to wait for another thread or process; await their answer instead.
 */
export async function flush(turns = 3): Promise<void> {
  for (let turn = 0; turn < turns; turn += 1) await new Promise<void>((resolve) => setImmediate(resolve));
}
