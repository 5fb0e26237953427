import { execFile, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtemp, readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { type KeptProcess, keepProcess, waitUntil } from '../processes.ts';
import { answersPing, askEngine, type EngineReply } from './api.ts';
import { buildTestImage, type ImageSources } from './image.ts';

const run = promisify(execFile);

/** A container engine for one test file, with a small image of our own in it. */
export interface ThrowawayDocker {
  /** Path of its unix socket. */
  readonly socket: string;
  readonly image: string;
  /** Was it started for this test alone? Only then it may be halted. */
  readonly own: boolean;
  /** Can containers have a network and published ports here? */
  readonly bridge: boolean;
  /** A prefix for names of containers that nobody else on this engine has. */
  readonly prefix: string;
  ask(method: string, path: string, body?: Readonly<Record<string, unknown>>): Promise<EngineReply>;
  /** Full names of all containers with the prefix, in whatever state. */
  containers(): Promise<readonly string[]>;
  /** Stops the engine, with all its containers, and leaves it stopped until `restart`. */
  halt(): Promise<void>;
  restart(): Promise<void>;
  /** Sends a signal to the engine, such as `SIGSTOP` and `SIGCONT`. */
  signal(name: NodeJS.Signals): Promise<void>;
  /** Removes the containers with the prefix and ends an engine of our own; nothing of it is left. Idempotent. */
  stop(): Promise<void>;
}

const PLACES = ['/var/run/docker.sock'];

async function runningEngine(): Promise<string | null> {
  const given = process.env.DOCKER_HOST;
  const places = given?.startsWith('unix://') === true ? [given.slice('unix://'.length)] : PLACES;
  for (const place of places) if (await answersPing(place)) return place;
  return null;
}

/** Why no engine can be had here; null when one runs or can be started. For `ctx.skip(reason)`. */
export async function dockerMissing(): Promise<string | null> {
  if (process.platform !== 'linux') return 'the container tests want Linux';
  if ((await runningEngine()) !== null) return null;
  if (process.getuid?.() !== 0) return 'no container engine runs, and only root may start one for the test';
  return run('dockerd', ['--version']).then(
    () => null,
    () => 'no dockerd on this machine: install it with "apt-get install docker.io"',
  );
}

/**
 * The engine that runs already (`DOCKER_HOST`, or Docker's usual socket), or one that is started for this test: data, sockets and network
 * bridge of its own, nothing shared with another, no packet filter touched.
 * @throws when neither can be had; ask `dockerMissing` before
 */
export async function throwawayDocker(sources: ImageSources): Promise<ThrowawayDocker> {
  const running = await runningEngine();
  const engine = running === null ? await startEngine() : { ...NOT_OURS, socket: running };
  const { socket } = engine;
  const prefix = `reindeer-test-${randomBytes(4).toString('hex')}`;
  const containers = async (): Promise<readonly string[]> => {
    const filters = encodeURIComponent(JSON.stringify({ name: [prefix] }));
    const { body } = await askEngine(socket, 'GET', `/containers/json?all=true&filters=${filters}`);
    return Array.isArray(body) ? body.map((entry: { Names: string[] }) => (entry.Names[0] ?? '').slice(1)) : [];
  };
  let stopping: Promise<void> | null = null;
  const stop = async (): Promise<void> => {
    for (const name of await containers().catch(() => []))
      await askEngine(socket, 'DELETE', `/containers/${name}?force=true&v=true`).catch(() => {});
    await engine.end();
  };
  try {
    return {
      socket,
      image: await buildTestImage(socket, sources),
      own: engine.own,
      bridge: engine.bridge,
      prefix,
      containers,
      ask: (method, path, body) => askEngine(socket, method, path, body),
      halt: engine.halt,
      restart: engine.restart,
      signal: engine.signal,
      stop: () => {
        stopping ??= stop();
        return stopping;
      },
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

interface Engine {
  readonly socket: string;
  readonly own: boolean;
  readonly bridge: boolean;
  halt(): Promise<void>;
  restart(): Promise<void>;
  signal(name: NodeJS.Signals): Promise<void>;
  end(): Promise<void>;
}

const refuse = async (): Promise<void> => {
  throw new Error('This engine was not started by the test.');
};
const NOT_OURS = { own: false, bridge: true, halt: refuse, restart: refuse, signal: refuse, end: async () => {} };

/** Once its input ends, also because the test was killed: waits until the engine is gone, then removes what it leaves. */
const JANITOR =
  'cat >/dev/null; for i in $(seq 150); do pid=$(cat "$1/pid" 2>/dev/null) && kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done; ' +
  'ip link delete "$2" 2>/dev/null; rm -rf --one-file-system "$1"';

function startJanitor(folder: string, link: string): () => Promise<void> {
  const child = spawn('/bin/sh', ['-c', JANITOR, 'janitor', folder, link], {
    cwd: '/',
    stdio: ['pipe', 'ignore', 'ignore'],
    // Not reached by a Ctrl-C that ends the test.
    detached: true,
  });
  const over = new Promise<void>((resolve) => {
    child.once('close', () => resolve());
    child.once('error', () => resolve());
  });
  child.stdin.on('error', () => {});
  return () => {
    child.stdin.end();
    return over;
  };
}

async function startEngine(): Promise<Engine> {
  const folder = await mkdtemp(join(tmpdir(), 'reindeer-docker-'));
  const socket = join(folder, 'docker.sock');
  const link = `rdt${randomBytes(3).toString('hex')}`;
  const endJanitor = startJanitor(folder, link);
  const bridge = await makeBridge(link);
  let server: KeptProcess | null = null;
  const start = async (): Promise<void> => {
    const flags = [
      ...['--data-root', join(folder, 'data'), '--exec-root', join(folder, 'exec'), '--pidfile', join(folder, 'pid')],
      ...['--host', `unix://${socket}`, '--bridge', bridge ? link : 'none', '--shutdown-timeout', '3'],
      ...['--iptables=false', '--ip6tables=false', '--ip-masq=false', '--ip-forward=false', '--log-level=error'],
    ];
    const started = keepProcess(['dockerd', ...flags], { cwd: folder });
    server = started;
    let over = false;
    started.child.once('close', () => {
      over = true;
    });
    const ready = async (): Promise<boolean> => {
      if (over) throw new Error(`The container engine ended: ${started.output().slice(-600)}`);
      return answersPing(socket);
    };
    await waitUntil(ready, 30_000, () => `The container engine did not start: ${started.output().slice(-600)}`);
  };
  const halt = async (): Promise<void> => {
    const running = server;
    server = null;
    await running?.end();
  };
  const end = async (): Promise<void> => {
    await halt();
    await endJanitor();
  };
  try {
    await start();
  } catch (error) {
    await end();
    throw error;
  }
  return {
    socket,
    own: true,
    bridge,
    halt,
    end,
    restart: async () => {
      await halt();
      await start();
    },
    signal: async (name) => {
      process.kill(Number.parseInt(await readFile(join(folder, 'pid'), 'utf8'), 10), name);
    },
  };
}

/** A network of its own for the engine; false where no link can be made. */
async function makeBridge(link: string): Promise<boolean> {
  const [a = 1, b = 1] = randomBytes(2);
  try {
    await run('ip', ['link', 'add', link, 'type', 'bridge']);
    await run('ip', ['address', 'add', `10.${200 + (a % 50)}.${b}.1/24`, 'dev', link]);
    await run('ip', ['link', 'set', link, 'up']);
    return true;
  } catch {
    return false;
  }
}
