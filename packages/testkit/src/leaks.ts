import { createHook } from 'node:async_hooks';
import { readdir, readlink } from 'node:fs/promises';
import { afterAll, afterEach, beforeAll, beforeEach } from 'vitest';

/** Something that a test started and did not stop. */
export interface Leak {
  /** Node's name of the resource (`Timeout`, `TCPSOCKETWRAP`, …) or `file`. */
  readonly type: string;
  /** Where it was created, or which file is open. */
  readonly where: string;
}

/** Kinds of resources that must end with the test that began them. Promises, ticks and single requests end by themselves. */
const KINDS = new Set([
  'Timeout',
  'TCPWRAP',
  'TCPSERVERWRAP',
  'PIPEWRAP',
  'PIPESERVERWRAP',
  'PROCESSWRAP',
  'UDPWRAP',
  'TTYWRAP',
  'WORKER',
  'MESSAGEPORT',
  'FSEVENTWRAP',
  'STATWATCHER',
  'HTTP2SESSION',
  'TLSWRAP',
]);

/** Not the code under test: Node’s shared pool of idle client connections, and abort timeouts, which hold nothing. */
const FOREIGN = /node:internal\/deps\/undici|AbortSignal\.timeout/;
/** The test runner’s own timers: it is the first to be seen that is neither Node nor this file. */
const RUNNER = /node_modules[/\\](?:@vitest|vitest|vite)[/\\]/;
const OWN_FRAME = /\(?node:|[/\\]leaks\.[tj]s|AsyncHook\.init/;

function isForeign(stack: string): boolean {
  const creator = stack.split('\n').find((frame) => !OWN_FRAME.test(frame));
  return FOREIGN.test(stack) || (creator !== undefined && RUNNER.test(creator));
}

/**
 * Watches what is alive. States: idle → watching (between `begin` and `end`). `end` answers what was created since `begin` and is
 * still alive, after giving closing handles a moment; it never waits longer than `patience` milliseconds.
 */
export class LeakWatch {
  readonly #alive = new Map<number, Leak>();
  readonly #hook = createHook({
    init: (asyncId, type) => {
      if (!KINDS.has(type)) return;
      const where = (new Error('created here').stack ?? '').split('\n').slice(1).join('\n');
      if (!isForeign(where)) this.#alive.set(asyncId, { type, where });
    },
    destroy: (asyncId) => {
      this.#alive.delete(asyncId);
    },
  });
  #files: ReadonlySet<string> = new Set();

  enable(): void {
    this.#hook.enable();
  }
  disable(): void {
    this.#hook.disable();
    this.#alive.clear();
  }

  async begin(): Promise<void> {
    this.#files = await openFiles();
    this.#alive.clear();
  }

  async end(patience = 2_000): Promise<readonly Leak[]> {
    const deadline = performance.now() + patience;
    for (;;) {
      const files = await openFiles();
      const opened = [...files]
        .filter((file) => !this.#files.has(file))
        .map((where): Leak => ({ type: 'file', where }));
      const leaks = [...this.#alive.values(), ...opened];
      if (leaks.length === 0 || performance.now() > deadline) return leaks;
      // A closed handle reports its end in a later turn of the loop.
      await new Promise<void>((resolve) => setImmediate(resolve));
    }
  }
}

/**
 * Fails each test of the surrounding `describe` that leaves a timer, socket, child process, worker or open file behind: open
 * files include those that carry locks. Hooks that the describe registers afterwards run inside the watched span.
 *
 * @param options.ignore lets a known resource pass.
 */
export function leakCheck(options: { ignore?: (leak: Leak) => boolean } = {}): void {
  const watch = new LeakWatch();
  beforeAll(() => watch.enable());
  afterAll(() => watch.disable());
  beforeEach(async () => watch.begin());
  afterEach(async () => {
    const leaks = (await watch.end()).filter((leak) => !(options.ignore?.(leak) ?? false));
    if (leaks.length > 0)
      throw new Error(
        `The test left ${leaks.length} resource(s) behind:\n${leaks.map(({ type, where }) => `${type}\n${where}`).join('\n')}`,
      );
  });
}

/** Open regular files of this process by descriptor and path; empty where the system does not tell. */
async function openFiles(): Promise<ReadonlySet<string>> {
  const open = new Set<string>();
  let names: string[];
  try {
    names = await readdir('/proc/self/fd');
  } catch {
    return open;
  }
  for (const name of names) {
    try {
      const target = await readlink(`/proc/self/fd/${name}`);
      if (target.startsWith('/') && !/^\/(?:proc|dev|sys)\//.test(target)) open.add(`${name} ${target}`);
    } catch {
      // Closed meanwhile: the descriptor of the listing itself, for one.
    }
  }
  return open;
}
