import type { Stores } from '@reindeer/protocol';
import { ReindeerError } from '@reindeer/protocol';

/** One call to a store, as a plan sees it. */
export interface StoreCall {
  readonly port: 'threads' | 'runs' | 'log' | 'journal' | 'checkpoints' | 'batches';
  readonly method: string;
  /** 1 = the first call of this method through this wrapper. */
  readonly count: number;
  readonly input: unknown;
}

export type Fault =
  /** The store is out of reach: nothing is written, the caller gets `store_unavailable`. */
  | 'fail-before'
  /** The answer is lost: everything is written, the caller gets `store_unavailable` all the same. */
  | 'fail-after'
  /** The request arrives twice, as after a retry below us; the caller gets the second answer. */
  | 'duplicate'
  /** The call arrives later, or its answer does. A plan that returns held promises decides on the interleaving. */
  | { readonly delayBefore?: Promise<void>; readonly delayAfter?: Promise<void> };

/** Decides for each call; null = the call goes through. */
export type FaultPlan = (call: StoreCall) => Fault | null;

const PORTS = ['threads', 'runs', 'log', 'journal', 'checkpoints', 'batches'] as const;

type AnyMethod = (...input: readonly unknown[]) => unknown;

/**
 * The same stores behind faults. Only `onAppend` and `close` are left alone: they are local and cannot be lost.
 * Faults are errors of the kind that a real store gives: `store_unavailable`, retryable, neither yes nor no.
 */
export function withFaults(stores: Stores, plan: FaultPlan): Stores {
  const counts = new Map<string, number>();

  const perform = async (port: StoreCall['port'], method: string, call: AnyMethod, input: readonly unknown[]) => {
    const name = `${port}.${method}`;
    const count = (counts.get(name) ?? 0) + 1;
    counts.set(name, count);
    const fault = plan({ port, method, count, input: input[0] });
    if (fault === null) return call(...input);
    if (fault === 'fail-before') throw lost(name, 'was not reached');
    if (fault === 'fail-after') {
      await call(...input);
      throw lost(name, 'did not answer');
    }
    if (fault === 'duplicate') {
      await call(...input);
      return call(...input);
    }
    await fault.delayBefore;
    const answer = await call(...input);
    await fault.delayAfter;
    return answer;
  };

  const wrap = <P extends object>(port: StoreCall['port'], target: P): P =>
    new Proxy(target, {
      get(inner, property, receiver) {
        const value: unknown = Reflect.get(inner, property, receiver);
        if (typeof value !== 'function' || typeof property !== 'string' || property === 'onAppend') return value;
        return (...input: readonly unknown[]) => perform(port, property, (value as AnyMethod).bind(inner), input);
      },
    });

  const wrapped = Object.fromEntries(PORTS.map((port) => [port, wrap(port, stores[port])]));
  return { ...(wrapped as unknown as Omit<Stores, 'close'>), close: () => stores.close() };
}

const lost = (name: string, what: string): ReindeerError =>
  new ReindeerError('store_unavailable', `The store ${what} (${name}).`, { retryable: true });

/** Gives the same fault to the first call of each named method (`runs.finalize`), and lets everything else through. */
export function faultOnce(fault: Fault, ...methods: readonly string[]): FaultPlan {
  const due = new Set(methods);
  return ({ port, method }) => (due.delete(`${port}.${method}`) ? fault : null);
}

/** Repeats a call as a careful caller does: again after `store_unavailable`, at most `tries` times (default 3). */
export async function retried<T>(call: () => Promise<T>, tries = 3): Promise<T> {
  for (let attempt = 1; ; attempt += 1)
    try {
      return await call();
    } catch (error) {
      if (attempt >= tries || !ReindeerError.is(error) || error.code !== 'store_unavailable') throw error;
    }
}
