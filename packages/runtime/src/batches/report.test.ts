import type { Batch, BatchItem, RunService, SandboxFiles } from '@reindeer/protocol';
import { expect, test } from 'vitest';
import { address, BatchScene, THREAD, USER } from '../testing/batch-scene.ts';
import { BatchReporter, csvCell, csvLines, writeResults } from './report.ts';

/** A reporter over one database, threads that are busy, the files that it wrote and the runs that it began. */
function reporting() {
  const s = new BatchScene();
  const busy = new Set<string>();
  const files: string[] = [];
  const runs: string[] = [];
  let whileWriting = async (): Promise<void> => {};
  const reporter = new BatchReporter({
    store: s.stores.batches,
    surroundings: s.surroundings,
    assistantId: 'agent',
    pollMs: 1_000,
    files: () =>
      ({
        writeStream: async (path: string, parts: AsyncIterable<Uint8Array>) => {
          for await (const _ of parts);
          files.push(path);
          await whileWriting();
        },
      }) as unknown as SandboxFiles,
    runs: {
      create: (async ({ threadId, idempotencyKey }) => {
        if (busy.has(threadId ?? '')) return { outcome: 'conflict', reason: 'active' };
        runs.push(String(idempotencyKey));
        return { outcome: 'admitted' };
      }) as RunService['create'],
    },
  });
  const now = () => s.clock.now();
  return {
    s,
    busy,
    files,
    runs,
    reporter,
    now,
    whileWriting: (work: () => Promise<void>) => {
      whileWriting = work;
    },
    async over(batchId: string, threadId = THREAD) {
      await s.stores.threads.create({ threadId, userId: USER, metadata: {}, now: now() });
      await s.create({ batchId, threadId, notify: true });
      await s.stores.batches.cancel({ batchId, userId: USER, now: now() });
    },
    /** Looks until nothing is to be done now. */
    async report() {
      while ((await reporter.pass()) > 0);
    },
    isFiled: async (batchId: string) => (await s.stores.batches.get({ batchId, userId: USER }))?.batch.filed,
  };
}

test('an agent that has read of the end itself is not told of it, however long its thread is busy', async () => {
  const w = reporting();
  w.busy.add(THREAD);
  await w.over('batch');
  await w.report();
  expect([w.files.length, w.runs, await w.isFiled('batch')]).toEqual([2, [], true]);
  // In the same turn, with batch_wait.
  await w.s.stores.batches.told({ batchId: 'batch', ends: 1 });
  w.busy.clear();
  await w.s.clock.advance(60_000);
  await w.report();
  expect([w.files.length, w.runs]).toEqual([2, []]);
  expect(await w.reporter.pass()).toBe(0);
});

test('nor one that read of it while the results were written', async () => {
  const w = reporting();
  await w.over('batch');
  w.whileWriting(() => w.s.stores.batches.told({ batchId: 'batch', ends: 1 }));
  await w.report();
  expect(w.runs).toEqual([]);
});

test('a busy thread keeps no other batch waiting, and hears of its own when it is free', async () => {
  const w = reporting();
  const threads = Array.from({ length: 12 }, (_, n) => `busy-${n}`);
  for (const [n, threadId] of threads.entries()) {
    w.busy.add(threadId);
    await w.over(`b${n}`, threadId);
  }
  await w.over('free', 'idle');
  await w.report();
  expect(w.runs).toEqual(['batch:free:1']);
  expect(w.files).toHaveLength(26);
  w.busy.clear();
  // Not asked at every look.
  await w.report();
  expect(w.runs).toHaveLength(1);
  await w.s.clock.advance(2_000);
  await w.report();
  expect(w.runs).toHaveLength(13);
  expect(w.files).toHaveLength(26);
});

test('a batch that a retry opened again is told of its next end, also to an agent that read of the first', async () => {
  const w = reporting();
  await w.s.create({ notify: true, maxAttempts: 1 });
  const { batches } = w.s.stores;
  const end = async (succeeded: boolean) => {
    const { items } = await batches.claim({ owner: 'o', leaseMs: 10_000, limit: 1, exclude: [], now: w.now() });
    const [item] = items;
    if (item === undefined) throw new Error('Nothing was claimed.');
    const shared = { lease: item.lease, stopReason: null, modelName: null, usage: { inputTokens: 0, outputTokens: 0 } };
    const result = { result: 'r', resultPreview: 'r', resultTruncated: false, resultFile: null, verdict: null };
    await batches.finish(
      succeeded
        ? { ...shared, succeeded: true, ...result, now: w.now() }
        : { ...shared, succeeded: false, error: 'no', notBefore: 0, now: w.now() },
    );
    return item.lease.itemId;
  };
  const itemId = await end(false);
  await batches.told({ batchId: 'batch', ends: 1 });
  await w.report();
  expect([w.runs, await w.isFiled('batch')]).toEqual([[], true]);
  await batches.retryItem({ ...address, itemId, now: w.now() });
  expect(await w.isFiled('batch')).toBe(false);
  await end(true);
  await w.report();
  expect([w.runs, await w.isFiled('batch'), w.files.length]).toEqual([['batch:batch:2'], true, 4]);
});

test('no cell of a table is run by a spreadsheet, and numbers stay numbers', () => {
  const formulas = ['=1+1', '+1', '-cmd', '@x', '\t=1', '\r=1', '\n=1', '＝1', '＋1', '－1', '＠x'];
  for (const text of formulas) expect(csvCell(text).replace(/^"([\s\S]*)"$/, '$1')).toBe(`'${text}`);
  expect(['-1', '-1.5', 'a=b', ''].map(csvCell)).toEqual(['-1', '-1.5', 'a=b', '']);
  expect(csvCell('a "b", c')).toBe('"a ""b"", c"');
});

test('a table says where a result that was cut stands whole', async () => {
  const batch = { spec: {} } as unknown as Batch;
  const cut = { status: 'succeeded', result: 'par', verdict: null, error: null, resultTruncated: true };
  async function* items() {
    yield { ...cut, key: 'a', resultFile: '/mnt/x/0.txt' } as BatchItem;
    yield { ...cut, key: 'b', resultFile: null } as BatchItem;
  }
  const lines: string[] = [];
  for await (const line of csvLines(items(), batch)) lines.push(line);
  expect(lines.slice(1)).toEqual([
    'a,succeeded,par,The result is cut here. All of it: /mnt/x/0.txt\r\n',
    'b,succeeded,par,The result is cut here. The rest is lost.\r\n',
  ]);
});

test('results that are too many for a file end with a word about it', async () => {
  const items = Array.from({ length: 9 }, (_, n) => ({ key: `k${n}`, status: 'succeeded', result: 'é'.repeat(100) }));
  const written = new Map<string, string>();
  const files = {
    writeStream: async (path: string, parts: AsyncIterable<Uint8Array>, { maxBytes }: { maxBytes: number }) => {
      const text = await new Response(ReadableStream.from(parts)).bytes();
      if (text.length > maxBytes) throw new Error('too large');
      written.set(path.slice(path.lastIndexOf('/') + 1), new TextDecoder().decode(text));
    },
  } as unknown as SandboxFiles;
  const usage = { inputTokens: 0, outputTokens: 0 };
  const none = { verdict: null, error: null, stopReason: null, usage };
  const store = { items: async () => items.map((item) => ({ ...none, ...item }) as unknown as BatchItem) };
  const batch = { batchId: 'b', userId: 'u', spec: {} } as unknown as Batch;
  await writeResults(store, files, batch, 1_500);
  for (const text of written.values()) {
    expect(text).toContain('k2');
    expect(text).not.toContain('k8');
    expect(text.trim().split('\n').at(-1)).toMatch(/There is no room for more results/);
  }
  await writeResults(store, files, batch);
  for (const text of written.values()) expect(text).toMatch(/k8(?![\s\S]*no room)/);
  expect(written.size).toBe(2);
});

test('no two columns of a table have one name', async () => {
  const batch = { spec: { result_schema: { properties: { status: {}, accepted: {} } } } } as unknown as Batch;
  async function* items() {
    yield {
      key: 'a',
      status: 'succeeded',
      result: '{"status":"open","accepted":1}',
      verdict: null,
      error: null,
    } as BatchItem;
  }
  const lines: string[] = [];
  for await (const line of csvLines(items(), batch)) lines.push(line);
  expect(lines[0]).toBe('key,status,result.status,accepted,result,error\r\n');
  expect(lines[1]).toContain('a,succeeded,open,1,');
});

test('a column has what the result brings, also when it is called as something that every object has', async () => {
  const batch = { spec: { result_schema: JSON.parse('{"properties":{"__proto__":{},"n":{}}}') } } as unknown as Batch;
  async function* items() {
    for (const [key, result] of [
      ['a', '{"n":1}'],
      ['b', '{"__proto__":"c","n":null}'],
    ])
      yield { key, status: 'succeeded', result, verdict: null, error: null } as BatchItem;
  }
  const lines: string[] = [];
  for await (const line of csvLines(items(), batch)) lines.push(line);
  expect(lines).toEqual([
    'key,status,__proto__,n,result,error\r\n',
    'a,succeeded,,1,"{""n"":1}",\r\n',
    'b,succeeded,c,,"{""__proto__"":""c"",""n"":null}",\r\n',
  ]);
});
