import { join } from 'node:path';
import { openSqlite } from '@reindeer/database';
import type { BatchItem } from '@reindeer/protocol';
import { systemSurroundings } from '@reindeer/runtime';
import { startScriptedProvider } from '@reindeer/scripted';
import { type BatchRow, isOver, itemsFor, rowOf, rowScript, startBatch, untilBatch } from '../support/batches.ts';
import { projectFolder, scriptedConfig, startServer } from '../support/server.ts';

export interface BatchStop {
  readonly items: number;
  readonly concurrency: number;
  /** The stop comes when this many have succeeded. */
  readonly stopAt: number;
  readonly say: (text: string) => void;
}

export interface BatchStopResult {
  readonly end: BatchRow;
  /** Items that had succeeded when the process was gone. */
  readonly before: number;
  readonly stopSeconds: number;
  readonly seconds: number;
  /** Everything that is not as it must be. */
  readonly problems: readonly string[];
}

/**
 * A batch on one server over SQLite, which is told to stop in the middle (SIGTERM) and started again. What was done by then stays as it was and has
 * asked its model once; the rest runs, each item at its first attempt, since a stop costs none.
 */
export async function batchAcrossStop({ items, concurrency, stopAt, say }: BatchStop): Promise<BatchStopResult> {
  const asked = new Map<number, number>();
  const provider = await startScriptedProvider({
    script: (request) => {
      const row = rowOf(request);
      if (row !== null) asked.set(row, (asked.get(row) ?? 0) + 1);
      return { ...rowScript(request), delayMs: 5 };
    },
  });
  const limits = `subagent_batches:\n  max_items: ${Math.max(items, 5_000)}\n`;
  const project = await projectFolder(scriptedConfig(provider.openAiUrl, limits));
  let server = await startServer(project.folder);
  const begun = performance.now();
  try {
    const started = await startBatch(server, 'thread-1', { items: itemsFor(items), max_running: concurrency });
    const id = started.batch_id;
    const until = (wanted: (row: BatchRow) => boolean) => untilBatch(() => server, id, wanted);
    say(JSON.stringify((await until((row) => (row.counts.succeeded ?? 0) >= stopAt)).counts));
    const stopping = performance.now();
    const { code, signal } = await server.process.end('SIGTERM');
    const stopSeconds = tenths(performance.now() - stopping);
    // With nobody at work: what stands there now is what the stop left.
    const before = await storedItems(project.folder, id);
    server = await startServer(project.folder);
    const end = await until(isOver);
    await server.process.end();
    const after = await storedItems(project.folder, id);
    const problems = [
      ...(code === 0 ? [] : [`the stop ended with ${code ?? signal}`]),
      ...(end.status === 'completed' ? [] : [`the batch ended as ${end.status}`]),
      ...problemsOf(before, after, items, asked),
    ];
    return {
      end,
      before: before.filter(({ status }) => status === 'succeeded').length,
      stopSeconds,
      seconds: tenths(performance.now() - begun),
      problems: problems.slice(0, 20),
    };
  } finally {
    await server.process.end();
    await provider.close();
    await project.remove();
  }
}

async function storedItems(folder: string, batchId: string): Promise<BatchItem[]> {
  const stores = await openSqlite({ folder: join(folder, '.reindeer/data'), surroundings: systemSurroundings() });
  try {
    const all: BatchItem[] = [];
    for (;;) {
      const page = await stores.batches.items({
        batchId,
        userId: 'default',
        status: null,
        offset: all.length,
        limit: 500,
        results: true,
      });
      all.push(...(page ?? []));
      if (page === null || page.length < 500) return all;
    }
  } finally {
    await stores.close();
  }
}

function* problemsOf(
  before: readonly BatchItem[],
  after: readonly BatchItem[],
  items: number,
  asked: ReadonlyMap<number, number>,
): Generator<string> {
  if (after.length !== items) yield `${after.length} items instead of ${items}`;
  for (const [n, item] of after.entries()) {
    const earlier = before[n];
    if (item.status !== 'succeeded' || item.result !== `done ${n}`)
      yield `item ${n} is ${item.status}: ${item.error ?? item.result}`;
    if (item.attempt !== 1) yield `item ${n} took ${item.attempt} attempts`;
    if (earlier?.status === 'leased' || earlier?.status === 'running')
      yield `the stop left item ${n} ${earlier.status}`;
    if (earlier?.status !== 'succeeded') continue;
    if (item.endedAt !== earlier.endedAt) yield `item ${n} was done before the stop and again after it`;
    if (asked.get(n) !== 1) yield `the model was asked ${asked.get(n)} times for item ${n}, which the stop left alone`;
  }
}

const tenths = (milliseconds: number): number => Math.round(milliseconds / 100) / 10;

/** For the command line. Answers the exit code. */
export async function stopChaos(options: { readonly items: number; readonly json: boolean }): Promise<number> {
  const result = await batchAcrossStop({
    items: options.items,
    concurrency: 32,
    stopAt: options.items / 2,
    say: (text) => process.stderr.write(`${text}\n`),
  });
  if (options.json) process.stdout.write(`${JSON.stringify(result)}\n`);
  else {
    const { end, before, stopSeconds, seconds } = result;
    process.stdout.write(
      `${end.total_items} items, stopped after ${before} in ${stopSeconds} s, ${seconds} s in all: ${JSON.stringify(end.counts)}\n`,
    );
    for (const problem of result.problems) process.stdout.write(`  ${problem}\n`);
  }
  return result.problems.length === 0 ? 0 : 1;
}
