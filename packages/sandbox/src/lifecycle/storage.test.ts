import { readdir, stat } from 'node:fs/promises';
import { realSurroundings, SimulatedEngine, verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { createSandboxProvider } from '../create.ts';
import { threadPaths } from '../folders.ts';
import { temporaryHome } from '../test-support.ts';
import { MemoryOwnershipStore } from './ownership/memory-store.ts';
import { LifecycleProvider } from './provider.ts';
import { storageOf } from './storage.ts';

const THREAD = { userId: 'default', threadId: 'one' };

test(
  'folders are there before a container starts, and go with the thread and its container',
  verifies('SL-25'),
  async () => {
    const home = await temporaryHome();
    const surroundings = realSurroundings();
    const settings = { use: 'local', allowHostBash: false } as const;
    const plain = await createSandboxProvider({ home, surroundings, settings, environment: {} });
    const engine = new SimulatedEngine(surroundings.clock);
    const backend = engine.backend();
    const paths = threadPaths(home, THREAD.userId, THREAD.threadId);
    const seen: boolean[] = [];
    const { create } = backend;
    backend.create = async (input) => {
      seen.push((await stat(paths.folders.workspace)).isDirectory());
      return create.call(backend, input);
    };
    const provider = new LifecycleProvider({
      backend,
      ownership: new MemoryOwnershipStore({ ownerId: 'a', clock: surroundings.clock, ttlMs: 120_000 }),
      storage: storageOf(plain),
      surroundings,
    });
    await provider.files(THREAD).write('/mnt/user-data/workspace/note.txt', 'kept');
    const { id } = await provider.acquire(THREAD);
    expect(seen).toEqual([true]);
    await provider.release(id);
    await provider.acquire(THREAD);
    const bytes = await provider.files(THREAD).read('/mnt/user-data/workspace/note.txt', { maxBytes: 100 });
    expect(new TextDecoder().decode(bytes)).toBe('kept');
    await provider.removeThread(THREAD);
    expect(engine.stopped).toEqual([id]);
    expect(await readdir(`${home}/users/default/threads`)).toEqual([]);
    await provider.shutdown();
    await expect(provider.acquire(THREAD)).rejects.toMatchObject({ code: 'shutting_down' });
  },
);
