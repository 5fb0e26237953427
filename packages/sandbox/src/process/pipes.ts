import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { close as closeDescriptor, constants, open as openDescriptor } from 'node:fs';
import { chmod, mkdir, rm } from 'node:fs/promises';
import { Socket } from 'node:net';
import { promisify } from 'node:util';
import { ReindeerError } from '@reindeer/protocol';

const run = promisify(execFile);
const open = promisify(openDescriptor);
const close = promisify(closeDescriptor);

/** One pipe for the whole output of one command. */
export interface OutputPipe {
  /** The end that we read. */
  readonly source: Socket;
  /** The descriptor to give to the child as stdout and stderr; close it with `closeWriter` right after the start. */
  readonly writer: number;
  closeWriter(): Promise<void>;
  /** Gives the pipe back. With `clean: false` a process may still hold the other end, and the pipe is not used again. */
  release(clean: boolean): Promise<void>;
}

/** A pipe at rest: a path by which both ends can be opened anew, and how to let go of it. */
interface Rest {
  readonly path: string;
  discard(): Promise<void>;
}

const BATCH = 4;
const MAX_IDLE = 32;

/**
 * Real pipes for the output of commands. Node's own `stdio: 'pipe'` is a socket, on which `echo … > /dev/stderr` fails with
 * ENXIO, and two of them lose the order of stdout and stderr. Node cannot make a pipe; bash can. On Linux we open a pipe of a
 * short-lived bash through `/proc`, keep a descriptor, and open both ends anew for each command; it has no name that a command could see.
 * Elsewhere FIFOs in a private folder do.
 */
export class PipePool {
  readonly #folder: string;
  readonly #idle: Rest[] = [];
  #made = 0;
  #closed = false;

  /** @param folder a private folder of this process; made only where FIFOs are needed, removed by `close` */
  constructor(folder: string) {
    this.#folder = folder;
  }

  async acquire(): Promise<OutputPipe> {
    const rest = this.#idle.pop() ?? (await this.#make());
    // The reader first: a writer waits for one, a non-blocking reader waits for nobody.
    const reader = await open(rest.path, constants.O_RDONLY | constants.O_NONBLOCK);
    let writer: number;
    try {
      writer = await open(rest.path, constants.O_WRONLY);
    } catch (error) {
      await close(reader);
      throw error;
    }
    const source = new Socket({ fd: reader, readable: true, writable: false });
    let writerOpen = true;
    const closeWriter = async () => {
      if (!writerOpen) return;
      writerOpen = false;
      await close(writer);
    };
    return {
      source,
      writer,
      closeWriter,
      release: async (clean) => {
        await closeWriter();
        source.destroy();
        if (clean && !this.#closed && this.#idle.length < MAX_IDLE) this.#idle.push(rest);
        else await rest.discard();
      },
    };
  }

  /** Makes the first pipes ahead of their use. */
  async warmUp(): Promise<void> {
    if (this.#idle.length === 0) this.#idle.push(await this.#make());
  }

  async close(): Promise<void> {
    this.#closed = true;
    await Promise.all(this.#idle.splice(0).map((rest) => rest.discard()));
    await rm(this.#folder, { recursive: true, force: true });
  }

  async #make(): Promise<Rest> {
    try {
      const made = process.platform === 'linux' ? await borrowPipes() : await this.#makeNamed();
      const [first, ...others] = made;
      if (first === undefined) throw new Error('no pipe was made');
      this.#idle.push(...others);
      return first;
    } catch (cause) {
      throw new ReindeerError(
        'sandbox_unavailable',
        'No pipe could be made for the output of a command; is bash installed?',
        { cause },
      );
    }
  }

  async #makeNamed(): Promise<Rest[]> {
    await mkdir(this.#folder, { recursive: true, mode: 0o700 });
    const paths = Array.from({ length: BATCH }, () => `${this.#folder}/${++this.#made}`);
    await run('mkfifo', ['-m', '600', ...paths]);
    return paths.map((path) => ({ path, discard: () => rm(path, { force: true }) }));
  }
}

/** Descriptors at which the helper holds its pipes. */
const HELD = Array.from({ length: BATCH }, (_, index) => 10 + index);

/** Lets a bash make pipes, opens them, and ends the bash. */
async function borrowPipes(): Promise<Rest[]> {
  const script = `exec ${HELD.map((descriptor) => `${descriptor}< <(:)`).join(' ')}; echo ready; read -r`;
  const helper = spawn('bash', ['-c', script], { stdio: ['pipe', 'pipe', 'ignore'], detached: true });
  try {
    await new Promise<void>((resolve, reject) => {
      helper.stdout.once('data', () => resolve());
      helper.once('error', reject);
      helper.once('exit', () => reject(new Error('the helper ended early')));
    });
    return await Promise.all(
      HELD.map(async (held) => {
        const descriptor = await open(`/proc/${helper.pid}/fd/${held}`, constants.O_RDONLY | constants.O_NONBLOCK);
        const path = `/proc/self/fd/${descriptor}`;
        // A command under another user id opens it again as /dev/stderr. Nobody else can: it has no name.
        await chmod(path, 0o666);
        return { path, discard: () => close(descriptor) };
      }),
    );
  } finally {
    helper.kill('SIGKILL');
  }
}

/** Starts a child that writes to `pipe`; gives the pipe back when it cannot be started at all. */
export async function startWith(pipe: OutputPipe, start: () => ChildProcess): Promise<ChildProcess> {
  try {
    return start();
  } catch (cause) {
    await pipe.release(true);
    throw new ReindeerError('sandbox_unavailable', 'The command could not be started.', { cause, retryable: true });
  }
}
