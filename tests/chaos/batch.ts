import { startScriptedProvider } from '@reindeer/scripted';
import {
  allItems,
  type BatchRow,
  type ItemRow,
  isOver,
  itemsFor,
  rowScript,
  startBatch,
  untilBatch,
} from '../support/batches.ts';
import { type Cluster, cluster } from '../support/cluster.ts';
import type { RunningServer } from '../support/server.ts';

export interface BatchChaos {
  readonly items: number;
  readonly concurrency: number;
  /** A kill comes this long after the one before, in milliseconds. */
  readonly killEveryMs: number;
  readonly maxAttempts: number;
  /** Wait for the sweep, too, and look whether anything of an item is left; it may take a minute. */
  readonly swept: boolean;
  readonly say: (text: string) => void;
}

export interface BatchChaosResult {
  readonly end: BatchRow;
  readonly kills: number;
  readonly seconds: number;
  /** Everything that is not as it must be. */
  readonly problems: readonly string[];
  readonly mostAttempts: number;
}

/** Two looks of the sweeper, and its patience with what was touched last. */
const SWEPT_WITHIN_MS = 120_000;

const NAMES = ['one', 'two', 'three'] as const;

/**
 * A batch on three instances that share a Postgres, one of which is killed with `kill -9` again and again and started anew. Every item must end
 * once, with its own result, within its attempts, and nothing may stay leased.
 */
export async function batchUnderKills(options: BatchChaos): Promise<BatchChaosResult> {
  const { items, killEveryMs, say } = options;
  const provider = await startScriptedProvider({ script: (request) => ({ ...rowScript(request), delayMs: 10 }) });
  const config = `subagent_batches:\n  lease_seconds: 10\n  max_items: ${Math.max(items, 5_000)}\n  max_attempts: 10\nrun_ownership:\n  lease_seconds: 6\n  grace_seconds: 1\n`;
  const world = await cluster({ openAiUrl: provider.openAiUrl, config });
  const servers = new Map<string, RunningServer>();
  const any = (): RunningServer => {
    const [server] = servers.values();
    if (server === undefined) throw new Error('No instance runs.');
    return server;
  };
  const started = performance.now();
  let over = false;
  let kills = 0;
  try {
    for (const name of NAMES) servers.set(name, await world.start(name));
    const { batch_id: id } = await startBatch(any(), 'thread-1', {
      items: itemsFor(items),
      max_running: options.concurrency,
      max_live: Math.max(options.concurrency, 100),
      max_attempts: options.maxAttempts,
    });
    const killing = (async () => {
      for (let round = 0; !over; round += 1) {
        await new Promise((resolve) => setTimeout(resolve, killEveryMs));
        const name = NAMES[round % NAMES.length] ?? 'one';
        const victim = servers.get(name);
        if (over) break;
        servers.delete(name);
        if (victim !== undefined) {
          await victim.process.end('SIGKILL');
          kills += 1;
        }
        // A machine that is too busy to start a process in time loses an instance for a round; the others go on.
        const next = await world.start(name).catch(() => null);
        if (next !== null) servers.set(name, next);
      }
    })();
    let told = 0;
    const end = await untilBatch(any, id, (row) => {
      if (performance.now() - told > 10_000) {
        told = performance.now();
        say(`${JSON.stringify(row.counts)} after ${kills} kills`);
      }
      return isOver(row);
    });
    over = true;
    await killing;
    const all = await allItems(any(), 'thread-1', id);
    const seconds = Math.round((performance.now() - started) / 100) / 10;
    return {
      end,
      kills,
      seconds,
      problems: [...problemsOf(end, all, options), ...(options.swept ? await leftOf(world) : [])],
      mostAttempts: Math.max(...all.map((item) => item.attempt)),
    };
  } finally {
    over = true;
    await world.stop();
    await provider.close();
  }
}

/** What kills left of the items in the database, after the time in which it is swept. */
async function leftOf(world: Cluster): Promise<string[]> {
  const client = await world.postgres.connect(world.databaseUrl);
  try {
    const patience = performance.now() + SWEPT_WITHIN_MS;
    for (;;) {
      const { rows } = await client.query<{ threads: number; runs: number; held: number }>(
        `select (select count(*)::int from threads where user_id like 'batch\\_%') as threads,
           (select count(*)::int from runs where user_id like 'batch\\_%') as runs,
           (select count(*)::int from batch_items where owner is not null or lease_expires_at is not null) as held`,
      );
      const [left] = rows;
      if (left === undefined || left.threads + left.runs + left.held === 0) return [];
      if (performance.now() > patience) return [`left behind: ${JSON.stringify(left)}`];
      await new Promise((resolve) => setTimeout(resolve, 500));
    }
  } finally {
    await client.end();
  }
}

function problemsOf(end: BatchRow, all: readonly ItemRow[], { items, maxAttempts }: BatchChaos): string[] {
  const problems: string[] = [];
  if (end.status !== 'completed') problems.push(`the batch ended as ${end.status}`);
  if (all.length !== items) problems.push(`${all.length} items instead of ${items}`);
  for (const [position, item] of all.entries()) {
    if (item.position !== position) problems.push(`item ${position} stands at ${item.position}`);
    if (item.status !== 'succeeded') problems.push(`item ${item.key} is ${item.status}: ${item.error}`);
    else if (item.result_preview !== `done ${position}`) problems.push(`item ${item.key} has "${item.result_preview}"`);
    if (item.attempt < 1 || item.attempt > maxAttempts) problems.push(`item ${item.key} had ${item.attempt} attempts`);
  }
  return problems.slice(0, 20);
}

/** The long version, for the command line. Answers the exit code. */
export async function batchChaos(options: { readonly items: number; readonly json: boolean }): Promise<number> {
  const result = await batchUnderKills({
    items: options.items,
    concurrency: 32,
    killEveryMs: 8_000,
    maxAttempts: 10,
    swept: true,
    say: (text) => process.stderr.write(`${text}\n`),
  });
  if (options.json) process.stdout.write(`${JSON.stringify(result)}\n`);
  else {
    const { end, kills, seconds, mostAttempts } = result;
    process.stdout.write(
      `${end.total_items} items, ${kills} kills, ${seconds} s: ${JSON.stringify(end.counts)}; at most ${mostAttempts} attempts\n`,
    );
    for (const problem of result.problems) process.stdout.write(`  ${problem}\n`);
  }
  return result.problems.length === 0 ? 0 : 1;
}
