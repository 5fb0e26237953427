import { randomUUID } from 'node:crypto';
import { mkdtemp, readdir, readFile, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { fileURLToPath } from 'node:url';
import type { OwnershipStore, SandboxLifecycle } from '@reindeer/protocol';
import {
  dockerMissing,
  type LogRecorder,
  realClock,
  realSurroundings,
  type ThrowawayDocker,
  throwawayDocker,
} from '@reindeer/testkit';
import { afterAll, beforeAll, beforeEach } from 'vitest';
import { MemoryLeases, MemoryOwnershipStore } from '../../lifecycle/ownership/memory-store.ts';
import type { LifecycleSettings } from '../../lifecycle/settings.ts';
import { type ContainerParts, createContainerProvider, openContainerBackend } from '../factory.ts';
import type { ContainerSettings } from '../settings.ts';

const SOURCES = {
  server: fileURLToPath(new URL('../../server/main.ts', import.meta.url)),
  launcher: fileURLToPath(new URL('../../../../../images/sandbox/start.sh', import.meta.url)),
};

export interface ContainerScene {
  readonly docker: ThrowawayDocker;
  readonly home: string;
  readonly logger: LogRecorder;
  /** An instance over the scene's engine, data folder and leases; shut down after the file. */
  provider(options?: {
    readonly settings?: Partial<ContainerSettings>;
    readonly lifecycle?: Partial<LifecycleSettings>;
    readonly ownership?: OwnershipStore;
    readonly home?: string;
  }): Promise<SandboxLifecycle>;
  store(ownerId?: string): OwnershipStore;
  /** The backend and storage alone; closed after the file. */
  parts(options?: {
    readonly settings?: Partial<ContainerSettings>;
    readonly home?: string;
    readonly hostPort?: (attempt: number) => number;
    readonly probeMs?: number;
  }): Promise<ContainerParts>;
  /** Ids, as the host sees them, of a container's processes whose command line contains `text`. */
  processes(container: string, text: string): Promise<number[]>;
}

/** One engine for a test file. Every test is skipped, with the reason, where there is none. */
export function containerScene(): () => ContainerScene {
  let missing: string | null = null;
  let scene: ContainerScene | null = null;
  const providers: SandboxLifecycle[] = [];
  const parts: ContainerParts[] = [];
  beforeAll(async () => {
    missing = await dockerMissing();
    if (missing !== null) return;
    const docker = await throwawayDocker(SOURCES);
    const home = await realpath(await mkdtemp(`${tmpdir()}/reindeer-containers-`));
    const leases = new MemoryLeases(realClock, 60_000);
    const surroundings = realSurroundings();
    const store = (ownerId: string = randomUUID()) =>
      new MemoryOwnershipStore({ ownerId, clock: realClock, ttlMs: 60_000, leases });
    const common = (options: { readonly settings?: Partial<ContainerSettings>; readonly home?: string }) => ({
      settings: {
        image: docker.image,
        containerPrefix: docker.prefix,
        engineSocket: docker.socket,
        ...options.settings,
      },
      home: options.home ?? home,
      surroundings,
      environment: {},
    });
    scene = {
      docker,
      home,
      logger: surroundings.logger,
      store,
      provider: async (options = {}) => {
        const provider = await createContainerProvider({
          ...common(options),
          ...(options.lifecycle === undefined ? {} : { lifecycle: options.lifecycle }),
          ownership: options.ownership ?? store(),
        });
        providers.push(provider);
        return provider;
      },
      parts: async ({ hostPort, probeMs, ...options } = {}) => {
        const opened = await openContainerBackend({
          ...common(options),
          ownership: store(),
          ...(hostPort === undefined ? {} : { hostPort }),
          ...(probeMs === undefined ? {} : { probeMs }),
        });
        parts.push(opened);
        return opened;
      },
      processes: async (container, text) => {
        const { body } = await docker.ask('GET', `/containers/${container}/json`);
        const { Id } = body as { Id: string };
        const found: number[] = [];
        for (const name of await readdir('/proc')) {
          if (!/^\d+$/.test(name)) continue;
          const groups = await readFile(`/proc/${name}/cgroup`, 'utf8').catch(() => '');
          const line = await readFile(`/proc/${name}/cmdline`, 'utf8').catch(() => '');
          if (groups.includes(Id) && line.includes(text)) found.push(Number(name));
        }
        return found;
      },
    };
  });
  beforeEach((context) => {
    if (missing !== null) context.skip(missing);
  });
  afterAll(async () => {
    await Promise.allSettled(providers.map((provider) => provider.shutdown()));
    await Promise.allSettled(parts.map(async ({ backend, storage }) => [await storage.close(), await backend.close()]));
    await scene?.docker.stop();
    if (scene !== null) await rm(scene.home, { recursive: true, force: true });
  });
  return () => {
    if (scene === null) throw new Error('There is no container engine here.');
    return scene;
  };
}
