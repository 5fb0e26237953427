import type { Deferred } from './deferred.ts';
import { deferred } from './deferred.ts';

export interface Call {
  readonly method: string;
  readonly input: readonly unknown[];
}

export interface Gate {
  /** Resolves when a call stands at the gate. */
  readonly reached: Promise<Call>;
  /** Lets it go on; later calls pass. */
  open(): void;
  /** Makes it fail with this error. */
  fail(error: unknown): void;
}

interface Hold {
  readonly method: string;
  readonly side: 'before' | 'after';
  readonly when: (call: Call) => boolean;
  readonly reached: Deferred<Call>;
  readonly opened: Deferred<void>;
}

type AnyMethod = (...input: readonly unknown[]) => unknown;

export interface Gated<T extends object> {
  readonly target: T;
  /** All calls so far, in order. */
  readonly calls: readonly Call[];
  /** Inputs of all calls of one method. */
  of(method: keyof T & string): readonly (readonly unknown[])[];
  /**
   * Holds the next call of `method` that `when` accepts: `before` nothing has happened yet; `after` everything has, and the answer is on
   * its way, as when a server has committed and its reply is still travelling.
   */
  hold(method: keyof T & string, side: 'before' | 'after', when?: (call: Call) => boolean): Gate;
  /** Makes all calls of these methods fail from now on, before anything happens; `heal` ends that. */
  break(error: unknown, ...methods: readonly (keyof T & string)[]): void;
  heal(): void;
}

/** The same object with gates before and after each asynchronous method named: the way to hold one interleaving open. */
export function gated<T extends object>(target: T, methods: readonly (keyof T & string)[]): Gated<T> {
  const calls: Call[] = [];
  const holds: Hold[] = [];
  const broken = new Map<string, unknown>();
  const pass = async (side: Hold['side'], call: Call): Promise<void> => {
    const index = holds.findIndex((hold) => hold.method === call.method && hold.side === side && hold.when(call));
    const hold = holds[index];
    if (hold === undefined) return;
    holds.splice(index, 1);
    hold.reached.resolve(call);
    await hold.opened.promise;
  };
  const names: ReadonlySet<string> = new Set(methods);
  const proxy = new Proxy(target, {
    get(inner, property) {
      const value: unknown = Reflect.get(inner, property, inner);
      if (typeof value !== 'function' || typeof property !== 'string') return value;
      const method = (value as AnyMethod).bind(inner);
      if (!names.has(property)) return method;
      return async (...input: readonly unknown[]): Promise<unknown> => {
        const call = { method: property, input };
        calls.push(call);
        await pass('before', call);
        if (broken.has(property)) throw broken.get(property);
        const answer = await method(...input);
        await pass('after', call);
        return answer;
      };
    },
  });
  return {
    target: proxy,
    calls,
    of: (method) => calls.filter((call) => call.method === method).map((call) => call.input),
    hold: (method, side, when = () => true) => {
      const hold: Hold = { method, side, when, reached: deferred<Call>(), opened: deferred() };
      holds.push(hold);
      return {
        reached: hold.reached.promise,
        open: () => {
          const index = holds.indexOf(hold);
          if (index >= 0) holds.splice(index, 1);
          hold.opened.resolve();
        },
        fail: (error) => hold.opened.reject(error),
      };
    },
    break: (error, ...which) => {
      for (const method of which) broken.set(method, error);
    },
    heal: () => broken.clear(),
  };
}
