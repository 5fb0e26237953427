import { type ChildProcess, fork } from 'node:child_process';
import { join } from 'node:path';
import { openPostgres } from '@reindeer/database';
import type { BatchItem } from '@reindeer/protocol';
import { systemSurroundings } from '@reindeer/runtime';
import { throwawayPostgres } from '@reindeer/testkit';

export interface WorkerChaos {
  readonly items: number;
  /** A kill comes this long after the one before, in milliseconds. */
  readonly killEveryMs: number;
  readonly maxAttempts: number;
  readonly say: (text: string) => void;
}

export interface WorkerChaosResult {
  readonly kills: number;
  readonly seconds: number;
  readonly counts: Readonly<Record<string, number>>;
  readonly mostAttempts: number;
  /** Attempts that had begun when their process was killed. */
  readonly cutShort: number;
  readonly problems: readonly string[];
}

const CHILD = join(import.meta.dirname, 'batch-worker.child.ts');
const NAMES = ['one', 'two', 'three'] as const;
const ADDRESS = { batchId: 'chaos', userId: 'user' } as const;

/**
 * A batch on three processes that share a Postgres, one of which is killed with `kill -9` again and again and started anew. Children note in a
 * table of their own when they begin and end; afterwards each item must have one result, of an attempt that ended, no two attempts of
 * it may have overlapped, attempts stay within their limit, and nothing is leased.
 */
export async function workersUnderKills(options: WorkerChaos): Promise<WorkerChaosResult> {
  const { items, killEveryMs, maxAttempts, say } = options;
  const server = await throwawayPostgres();
  const processes = new Map<string, ChildProcess>();
  /** Those that look for work now. */
  const working = new Set<string>();
  const starting = (url: string, name: string) =>
    new Promise<void>((resolve) => {
      const child = fork(CHILD, [url, name], { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
      processes.set(name, child);
      child.once('message', () => {
        working.add(name);
        resolve();
      });
      child.once('exit', () => resolve());
    });
  try {
    const url = await server.createDatabase();
    const stores = await openPostgres({ url, folder: null, surroundings: systemSurroundings(), instanceId: 'watcher' });
    const client = await server.connect(url);
    try {
      await client.query(
        'create table child_notes (n bigserial primary key, item_id text, epoch bigint, what text, at timestamptz)',
      );
      const now = Date.now();
      await stores.threads.create({ threadId: 'thread', userId: 'user', metadata: {}, now });
      await stores.batches.create({
        ...ADDRESS,
        threadId: 'thread',
        runId: null,
        toolCallId: null,
        submissionKey: 'chaos',
        title: 'chaos',
        subagentType: 'general-purpose',
        maxLive: 200,
        maxRunning: 32,
        maxAttempts,
        spec: {},
        notify: false,
        items: Array.from({ length: items }, (_, n) => ({ key: `r${n}`, prompt: `Row ${n}` })),
        now,
      });
      for (const name of NAMES) await starting(url, name);
      const begun = performance.now();
      let over = false;
      let kills = 0;
      const killing = (async () => {
        for (let round = 0; ; round += 1) {
          await new Promise((resolve) => setTimeout(resolve, killEveryMs));
          if (over) return;
          const name = NAMES[round % NAMES.length] ?? 'one';
          // Somebody goes on: on a busy machine a start takes longer than the time between two kills.
          if (!working.has(name) || working.size < 2) continue;
          working.delete(name);
          processes.get(name)?.kill('SIGKILL');
          kills += 1;
          void starting(url, name);
        }
      })();
      let told = 0;
      for (;;) {
        const found = await stores.batches.get(ADDRESS);
        if (found === null || found.batch.endedAt !== null) break;
        if (performance.now() - told > 10_000) {
          told = performance.now();
          say(`${JSON.stringify(found.counts)} after ${kills} kills`);
        }
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
      over = true;
      const seconds = Math.round((performance.now() - begun) / 100) / 10;
      await killing;
      const all: BatchItem[] = [];
      for (;;) {
        const page = await stores.batches.items({
          ...ADDRESS,
          status: null,
          offset: all.length,
          limit: 500,
          results: true,
        });
        all.push(...(page ?? []));
        if ((page ?? []).length < 500) break;
      }
      const { rows } = await client.query<Note>('select item_id, epoch::int, what, at from child_notes order by n');
      const counts = (await stores.batches.get(ADDRESS))?.counts ?? {};
      return {
        kills,
        seconds,
        counts,
        mostAttempts: Math.max(...all.map(({ attempt }) => attempt)),
        ...judged(all, rows, options),
      };
    } finally {
      await client.end();
      await stores.close();
    }
  } finally {
    for (const child of processes.values()) child.kill('SIGKILL');
    await server.stop();
  }
}

interface Note {
  readonly item_id: string;
  readonly epoch: number;
  readonly what: 'begun' | 'ended';
  readonly at: Date;
}

function judged(all: readonly BatchItem[], notes: readonly Note[], { items, maxAttempts }: WorkerChaos) {
  const problems: string[] = [];
  const attempts = new Map<string, Map<number, { begun?: number; ended?: number }>>();
  for (const note of notes) {
    const ofItem = attempts.get(note.item_id) ?? new Map<number, { begun?: number; ended?: number }>();
    attempts.set(note.item_id, ofItem);
    const one = ofItem.get(note.epoch) ?? {};
    if (one[note.what] !== undefined) problems.push(`${note.item_id}#${note.epoch} ${note.what} twice`);
    one[note.what] = note.at.getTime();
    ofItem.set(note.epoch, one);
  }
  let cutShort = 0;
  if (all.length !== items) problems.push(`${all.length} items instead of ${items}`);
  for (const item of all) {
    const ofItem = attempts.get(item.itemId) ?? new Map<number, { begun?: number; ended?: number }>();
    if (item.status !== 'succeeded') problems.push(`${item.itemId} is ${item.status}: ${item.error}`);
    if (item.attempt < 1 || item.attempt > maxAttempts) problems.push(`${item.itemId} had ${item.attempt} attempts`);
    const epoch = Number(/#(\d+)$/.exec(item.result ?? '')?.[1]);
    if (item.result !== `done ${item.position} #${epoch}` || ofItem.get(epoch)?.ended === undefined)
      problems.push(`${item.itemId} has the result "${item.result}"`);
    let last: { begun?: number; ended?: number } | null = null;
    for (const [, one] of [...ofItem].sort(([a], [b]) => a - b)) {
      if (one.ended === undefined) cutShort += 1;
      // One that was cut short ended with its process; one that ended must have done so before the next began.
      if (last?.ended !== undefined && one.begun !== undefined && one.begun < last.ended)
        problems.push(`two attempts of ${item.itemId} overlapped`);
      last = one;
    }
  }
  return { cutShort, problems: problems.slice(0, 20) };
}

/** For the command line. Answers the exit code. */
export async function workersChaos(options: { readonly items: number; readonly json: boolean }): Promise<number> {
  const result = await workersUnderKills({
    items: options.items,
    killEveryMs: 3_000,
    maxAttempts: 10,
    say: (text) => process.stderr.write(`${text}\n`),
  });
  if (options.json) process.stdout.write(`${JSON.stringify(result)}\n`);
  else {
    const { kills, seconds, counts, mostAttempts, cutShort } = result;
    process.stdout.write(
      `${options.items} items, ${kills} kills, ${seconds} s: ${JSON.stringify(counts)}; ${cutShort} attempts cut short, at most ${mostAttempts} per item\n`,
    );
    for (const problem of result.problems) process.stdout.write(`  ${problem}\n`);
  }
  return result.problems.length === 0 ? 0 : 1;
}
