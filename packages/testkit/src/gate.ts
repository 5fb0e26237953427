import { AsyncLocalStorage } from 'node:async_hooks';
import { createRequire, syncBuiltinESMExports } from 'node:module';

/** Thrown instead of a call that would have stopped the event loop. The stack names who called. */
export class BlockingCallError extends Error {
  /** e.g. `fs.readFileSync`. */
  readonly call: string;

  constructor(call: string) {
    super(`${call} would block the event loop. Use its asynchronous form, or move the work to a worker thread.`);
    this.name = 'BlockingCallError';
    this.call = call;
  }
}

type AnyFunction = (this: unknown, ...input: readonly unknown[]) => unknown;
type Holder = Record<string, unknown>;

/** Synchronous by name only: they fill a few bytes from a generator that is seeded already. */
const HARMLESS = new Set(['crypto.randomFillSync']);

/** Node's own loader reads files synchronously when a module is first imported; that is start-up work, whoever triggers it. */
const LOADER_FRAME = /node:internal\/modules\//;
const OWN_FRAME = /node:fs|node:internal\/fs|[/\\]gate\.[tj]s/;

/**
 * Makes blocking calls from serving code visible (BL-01). While `withEventLoopGate` runs, `*Sync` functions of fs,
 * child_process, zlib and crypto, `Atomics.wait`, and node:sqlite on this thread throw when they are reached from
 * the guarded asynchronous scope. Code outside of that scope (the test runner) is not affected.
 *
 * States: not installed → installed (by the first of several overlapping scopes) → not installed (with the last one, also
 * after an exception). Violations are kept per scope, so that one that was caught and swallowed still fails the test.
 */
interface Scope {
  readonly violations: BlockingCallError[];
  readonly allowed: boolean;
}

const scopes = new AsyncLocalStorage<Scope>();
const installed: { count: number; restore: (() => void)[] } = { count: 0, restore: [] };

/**
 * Runs `body` under the gate.
 *
 * @throws BlockingCallError at the call itself, and again at the end when the code under test swallowed it.
 */
export async function withEventLoopGate<T>(body: () => Promise<T>): Promise<T> {
  const scope: Scope = { violations: [], allowed: false };
  install();
  try {
    const result = await scopes.run(scope, body);
    const first = scope.violations[0];
    if (first !== undefined) throw first;
    return result;
  } finally {
    uninstall();
  }
}

/** The way out for a call that is known to be harmless, such as the set-up of a test. Synchronous or asynchronous. */
export function allowBlocking<T>(body: () => T): T {
  return scopes.run({ violations: [], allowed: true }, body);
}

/** Is the gate installed right now? For the test of its own clean-up. */
export function eventLoopGateInstalled(): boolean {
  return installed.count > 0;
}

function check(call: string, exempt: boolean): void {
  const scope = scopes.getStore();
  if (scope === undefined || scope.allowed || exempt || HARMLESS.has(call)) return;
  const error = new BlockingCallError(call);
  const frames = (error.stack ?? '').split('\n').slice(1);
  const caller = frames.find((frame) => !OWN_FRAME.test(frame));
  if (caller !== undefined && LOADER_FRAME.test(caller)) return;
  scope.violations.push(error);
  throw error;
}

function install(): void {
  installed.count += 1;
  if (installed.count > 1) return;
  const require = createRequire(import.meta.url);
  for (const name of ['fs', 'child_process', 'zlib', 'crypto']) {
    const module = require(`node:${name}`) as Holder;
    for (const key of Object.keys(module)) if (key.endsWith('Sync')) replace(module, key, `${name}.${key}`);
  }
  const { Dir } = require('node:fs') as { Dir: { prototype: Holder } };
  for (const key of ['readSync', 'closeSync']) replace(Dir.prototype, key, `fs.Dir.${key}`);
  replace(Atomics as unknown as Holder, 'wait', 'Atomics.wait');

  const { DatabaseSync, StatementSync } = require('node:sqlite') as {
    DatabaseSync: { prototype: Holder };
    StatementSync: { prototype: Holder };
  };
  for (const key of ['open', 'close', 'exec', 'prepare'])
    replace(DatabaseSync.prototype, key, `sqlite.DatabaseSync.${key}`);
  for (const key of ['run', 'get', 'all', 'iterate'])
    replace(StatementSync.prototype, key, `sqlite.StatementSync.${key}`);
  // The constructor itself cannot be replaced for those who import it by name; nothing useful can be done without these methods.
  syncBuiltinESMExports();
}

function uninstall(): void {
  installed.count -= 1;
  if (installed.count > 0) return;
  for (const restore of installed.restore.splice(0).reverse()) restore();
  syncBuiltinESMExports();
}

function replace(holder: Holder, key: string, call: string): void {
  const original = holder[key];
  if (typeof original !== 'function') return;
  const own = original as AnyFunction;
  const guarded = function (this: unknown, ...input: readonly unknown[]): unknown {
    // The standard streams are written synchronously by Node itself.
    check(call, key === 'writeSync' && typeof input[0] === 'number' && input[0] <= 2);
    return Reflect.apply(own, this, input);
  };
  // Some functions carry others, such as `fs.realpathSync.native`.
  put(holder, key, Object.assign(guarded, original));
}

function put(holder: Holder, key: string, value: unknown): void {
  const descriptor = Object.getOwnPropertyDescriptor(holder, key);
  if (descriptor === undefined || descriptor.configurable !== true) return;
  Object.defineProperty(holder, key, {
    configurable: true,
    enumerable: descriptor.enumerable ?? true,
    writable: true,
    value,
  });
  installed.restore.push(() => Object.defineProperty(holder, key, descriptor));
}
