import { MemoryDatabase } from '@reindeer/database';
import type { DeliveryReceipt, Fact, Json, Run, WorkspaceChanges, WorkspaceWatch } from '@reindeer/protocol';
import { ReindeerError } from '@reindeer/protocol';
import { VirtualClock, verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import type { Script } from '../testing/scripted-graph.ts';
import { flush, type World, world } from '../testing/world.ts';

const OUT = '/mnt/user-data/outputs/';

/** Files of the thread as a list of names; a run "writes" by adding to it. */
class FakeFiles implements WorkspaceWatch {
  readonly names: string[] = [];
  looks = 0;
  fails = false;
  async snapshot(): Promise<Json> {
    this.looks += 1;
    return [...this.names];
  }
  async changes(_thread: unknown, before: Json): Promise<WorkspaceChanges> {
    if (this.fails) throw new Error('the files cannot be read');
    const old = new Set(before as string[]);
    const made = this.names.filter((name) => !old.has(name));
    return {
      version: 1,
      summary: {
        created: made.length,
        modified: 0,
        deleted: 0,
        symlink_created: 0,
        additions: 0,
        deletions: 0,
        truncated: false,
      },
      files: made.map((path) => ({
        path,
        root: path.startsWith(OUT) ? 'outputs' : 'workspace',
        status: 'created',
        binary: false,
        sensitive: false,
        size_before: null,
        size_after: 1,
        sha256_before: null,
        sha256_after: null,
        diff: null,
        diff_truncated: false,
        diff_unavailable_reason: null,
        additions: 0,
        deletions: 0,
        symlink: false,
      })),
    };
  }
}

async function factsOf(w: World, run: Run): Promise<readonly Fact[]> {
  const page = await w.stores.log.read({
    threadId: run.threadId,
    runId: run.runId,
    afterSeq: 0,
    limit: 500,
    maxBytes: 1e7,
  });
  return page.facts;
}

async function receiptsOf(w: World, run: Run): Promise<(DeliveryReceipt | null)[]> {
  return (await factsOf(w, run)).flatMap(({ body }) => (body.kind === 'delivery' ? [body.receipt] : []));
}

/** A model that writes `files` and, through the state, presents `presents`. */
function writing(files: FakeFiles, write: readonly string[]): Script {
  return {
    async model(messages, context) {
      if (messages.length > 1) return { text: 'finished' };
      await context.touchFiles?.();
      files.names.push(...write);
      return { text: '', calls: [{ name: 'write' }] };
    },
  };
}

/** Presents by the fact that a step of the real agent leaves: a path in the channel `artifacts`. */
function presenting(files: FakeFiles, write: readonly string[], present: readonly string[]): Script {
  const script = writing(files, write);
  return {
    ...script,
    async tool(_call, context) {
      const attempt = context as unknown as { record(body: unknown, key?: string): void };
      attempt.record(
        { kind: 'update', ns: '', node: 'tools', taskId: 't', values: { artifacts: [...present] } },
        'shown',
      );
      return 'ok';
    },
  };
}

describe('what a run delivered', () => {
  const cases: readonly (readonly [
    string,
    readonly string[],
    readonly string[],
    Run['status'],
    DeliveryReceipt['stage'],
  ])[] = [
    ['changed outputs and nothing presented', [`${OUT}a.md`], [], 'error', 'not_started'],
    ['one of two presented', [`${OUT}a.md`, `${OUT}b.md`], [`${OUT}b.md`], 'success', 'presented'],
    ['a folder above it presented', [`${OUT}site/index.html`], [`${OUT}site/`], 'success', 'presented'],
    ['only an unrelated file presented', [`${OUT}a.md`], [`${OUT}other.md`], 'error', 'mismatched'],
    ['only the workspace changed', ['/mnt/user-data/workspace/a.md'], [], 'success', 'not_started'],
  ];
  test.for(cases)('%s', verifies('RT-05', 'FILE-4b'), async ([, write, present, status, stage]) => {
    const files = new FakeFiles();
    const w = world({ script: presenting(files, write, present), workspaces: files });
    const run = await w.admitted();
    const end = await w.ended(run);
    expect(end.status).toBe(status);
    if (status === 'error') expect(end.error).toContain('Delivery incomplete');
    const [receipt, ...more] = await receiptsOf(w, run);
    expect(more).toEqual([]);
    expect(receipt).toMatchObject({ stage, satisfied: status === 'success', verification: 'checked' });
    expect(receipt?.presented_paths).toEqual(present.map((path) => path.replace(/\/$/, '')));
  });

  test(
    'a run can ask before its end what it has not presented, and no more once it has',
    verifies('FILE-4b'),
    async () => {
      const files = new FakeFiles();
      const seen: (readonly string[] | undefined)[] = [];
      const shows = presenting(files, [`${OUT}a.md`, '/mnt/user-data/workspace/b.md'], [`${OUT}a.md`]);
      const script: Script = {
        ...shows,
        async model(messages, context) {
          const answer = await shows.model(messages, context);
          seen.push(await context.undelivered?.());
          return answer;
        },
      };
      const w = world({ script, workspaces: files });
      expect((await w.ended(await w.admitted())).status).toBe('success');
      expect(seen).toEqual([[`${OUT}a.md`], []]);
      seen.length = 0;
      files.names.length = 0;
      const off = world({ script, workspaces: files, settings: { requirePresented: false } });
      await off.ended(await off.admitted());
      expect(seen).toEqual([[], []]);
    },
  );

  test('a switch turns the verdict off and keeps the receipt', verifies('FILE-4b'), async () => {
    const files = new FakeFiles();
    const w = world({
      script: writing(files, [`${OUT}a.md`]),
      workspaces: files,
      settings: { requirePresented: false },
    });
    const run = await w.admitted();
    expect((await w.ended(run)).status).toBe('success');
    expect(await receiptsOf(w, run)).toMatchObject([{ satisfied: false, produced_paths: [`${OUT}a.md`] }]);
  });

  test('the receipt stands right before the end, which it is stored with', verifies('RT-02', 'RT-03'), async () => {
    const w = world();
    const run = await w.admitted();
    await w.ended(run);
    const [receipt, end] = (await factsOf(w, run)).slice(-2);
    expect(receipt?.body).toEqual({ kind: 'delivery', receipt: null });
    expect(end?.body).toMatchObject({ kind: 'run', terminal: true });
  });

  test(
    'runs that fail at once, are cancelled, or never had their turn have one receipt',
    verifies('RT-03'),
    async () => {
      const w = world({
        script: {
          model: (_messages, context) =>
            new Promise((_, reject) => {
              context.signal.addEventListener('abort', () => reject(context.signal.reason), { once: true });
            }),
        },
      });
      const empty = await w.admitted({ threadId: 'thread-2', request: { input: null, command: { goto: 5 } } });
      expect((await w.ended(empty)).status).toBe('error');
      const running = await w.admitted();
      const queued = await w.create({ multitaskStrategy: 'enqueue' });
      if (queued.outcome !== 'queued') throw new Error('not queued');
      await w.cancel(queued.run);
      await w.cancel(running, 'interrupt', true);
      await w.ended(running);
      for (const run of [empty, running, queued.run]) expect(await receiptsOf(w, run)).toEqual([null]);
    },
  );

  test(
    'after a crash the files of before the first attempt count, and there is one receipt',
    verifies('RT-03', 'FILE-4'),
    async () => {
      const files = new FakeFiles();
      const clock = new VirtualClock();
      const first = world({ clock, workspaces: files, script: { model: () => ({ text: 'never asked' }) } });
      const database = new MemoryDatabase(first.surroundings.random);
      let attempts = 0;
      let missing: readonly string[] | undefined;
      const script: Script = {
        async model(_messages, context) {
          attempts += 1;
          if (attempts === 2) missing = await context.undelivered?.();
          await context.touchFiles?.();
          if (attempts === 1) {
            files.names.push(`${OUT}early.md`);
            // The process dies here.
            return await new Promise(() => undefined);
          }
          return { text: 'finished' };
        },
      };
      const dead = world({ clock, database, workspaces: files, script, settings: { instanceId: 'dead' } });
      const run = await dead.admitted();
      await flush();
      await flush();
      expect(files.names).toEqual([`${OUT}early.md`]);
      const peer = world({
        clock,
        database,
        workspaces: files,
        script,
        settings: { instanceId: 'peer', deadOwners: ['dead'] },
      });
      await peer.runtime.start();
      const end = await peer.ended(run);
      expect(end).toMatchObject({ status: 'error', attempt: 2 });
      expect(files.looks).toBe(1);
      expect(missing).toEqual([`${OUT}early.md`]);
      expect(await receiptsOf(peer, run)).toMatchObject([{ produced_paths: [`${OUT}early.md`], satisfied: false }]);
      const changes = (await factsOf(peer, run)).filter(({ body }) => body.kind === 'workspace-changes');
      expect(changes).toHaveLength(1);
    },
  );

  test(
    'what was delivered cannot be stored: a success with outputs becomes an error, one without stands',
    verifies('RT-04'),
    async () => {
      for (const [path, status] of [
        [`${OUT}a.md`, 'error'],
        ['/mnt/user-data/workspace/a.md', 'success'],
      ] as const) {
        const files = new FakeFiles();
        let tries = 0;
        const w = world({
          workspaces: files,
          script: presenting(files, [path], [path]),
          stores: (stores) => ({
            ...stores,
            log: {
              ...stores.log,
              append: (input) => {
                if (!input.facts.some(({ body }) => body.kind === 'workspace-changes')) return stores.log.append(input);
                tries += 1;
                return Promise.reject(new ReindeerError('internal', 'the disk is full'));
              },
            },
          }),
        });
        const run = await w.admitted();
        const end = w.ended(run);
        await w.surroundings.clock.advance(2_000);
        expect((await end).status).toBe(status);
        expect(tries).toBeGreaterThan(0);
        expect(await receiptsOf(w, run)).toHaveLength(1);
      }
    },
  );

  test('a receipt whose first writes fail is written once, with the end', verifies('RT-02', 'RT-03'), async () => {
    let failures = 2;
    const files = new FakeFiles();
    const w = world({
      workspaces: files,
      script: presenting(files, [`${OUT}a.md`], [`${OUT}a.md`]),
      stores: (stores) => ({
        ...stores,
        runs: {
          ...stores.runs,
          finalize: async (input) => {
            failures -= 1;
            if (failures >= 0) throw new ReindeerError('store_unavailable', 'busy', { retryable: true });
            return stores.runs.finalize(input);
          },
        },
      }),
    });
    const run = await w.admitted();
    const end = w.ended(run);
    await w.surroundings.clock.advance(2_000);
    expect((await end).status).toBe('success');
    expect(await receiptsOf(w, run)).toMatchObject([{ stage: 'presented' }]);
  });

  test(
    'a run that a peer puts to its end has one receipt, however often that is written; files that cannot be read keep nobody from ending it',
    verifies('RL-23', 'RT-03'),
    async () => {
      for (const fails of [false, true]) {
        const files = new FakeFiles();
        const clock = new VirtualClock();
        const database = new MemoryDatabase(world().surroundings.random);
        const script: Script = {
          async model(_messages, context) {
            await context.touchFiles?.();
            files.names.push(`${OUT}early.md`);
            return await new Promise(() => undefined);
          },
        };
        const dead = world({ clock, database, workspaces: files, script, settings: { instanceId: 'dead' } });
        const run = await dead.admitted({ crashPolicy: 'error' });
        await flush();
        await flush();
        files.fails = fails;
        let lost = 0;
        const told: string[] = [];
        const peer = world({
          hooks: { onFinished: (end) => void told.push(end.status) },
          clock,
          database,
          workspaces: files,
          settings: { instanceId: 'peer', deadOwners: ['dead'] },
          stores: (stores) => ({
            ...stores,
            runs: {
              ...stores.runs,
              finalize: async (input) => {
                const answer = await stores.runs.finalize(input);
                if (lost > 0) return answer;
                lost += 1;
                throw new ReindeerError('store_unavailable', 'the answer was lost', { retryable: true });
              },
            },
          }),
        });
        await peer.runtime.start();
        const end = peer.ended(run);
        await clock.advance(2_000);
        expect(await end).toMatchObject({ status: 'error', stopReason: 'orphan_recovered' });
        expect(lost).toBe(1);
        // It is its own end, although nobody answered: what follows an end is done here, and once.
        expect(told).toEqual(['error']);
        expect(await receiptsOf(peer, run)).toMatchObject([
          fails ? { verification: 'failed', produced_paths: [] } : { produced_paths: [`${OUT}early.md`] },
        ]);
        await peer.runtime.stop();
      }
    },
  );

  test('files that cannot be compared claim nothing and fail no run', async () => {
    const files = new FakeFiles();
    files.fails = true;
    const w = world({ workspaces: files, script: writing(files, [`${OUT}a.md`]) });
    const run = await w.admitted();
    expect((await w.ended(run)).status).toBe('success');
    expect(await receiptsOf(w, run)).toMatchObject([{ verification: 'failed', produced_paths: [] }]);
  });

  test('a run that touches no file costs no look', async () => {
    const files = new FakeFiles();
    const w = world({ workspaces: files });
    await w.ended(await w.admitted());
    expect(files.looks).toBe(0);
  });
});
