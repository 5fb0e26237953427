import type { Cluster } from '../../support/cluster.ts';
import type { Instance } from './instances.ts';

export interface Disturbances {
  kills: number;
  terms: number;
  /** Pauses that outlasted the lease, and short ones. */
  pauses: number;
  hiccups: number;
  terminatedSessions: number;
  postgresRestarts: number;
  redisRestarts: number;
}

export const noDisturbances = (): Disturbances => ({
  kills: 0,
  terms: 0,
  pauses: 0,
  hiccups: 0,
  terminatedSessions: 0,
  postgresRestarts: 0,
  redisRestarts: 0,
});

type Act = 'kill' | 'term' | 'pause' | 'terminate' | 'postgres' | 'redis';

const WEIGHTS: Readonly<Record<Act, number>> = { kill: 6, term: 2, pause: 4, terminate: 4, postgres: 1, redis: 2 };

const sleep = (milliseconds: number) => new Promise<void>((resolve) => setTimeout(resolve, milliseconds));

interface Parts {
  readonly cluster: Cluster;
  readonly instances: readonly Instance[];
  readonly random: () => number;
  /** Longer than a lease and what others wait on top, in milliseconds. */
  readonly pauseMs: number;
  readonly untilMs: number;
  readonly count: Disturbances;
  readonly note: (text: string) => void;
}

/**
 * Does to the instances and to what they stand on whatever machines, networks and operators do, the next before the last is over; at
 * least one instance is left alone at any time. Ends with everything healed.
 */
export async function disturb(parts: Parts): Promise<void> {
  const { cluster, instances, random, untilMs } = parts;
  const under = new Map<Act, Promise<void>>();
  const acts = (Object.keys(WEIGHTS) as Act[]).filter((act) => act !== 'redis' || cluster.redis !== null);
  const sum = acts.reduce((total, act) => total + WEIGHTS[act], 0);
  const all = new Set<Promise<void>>();
  for (;;) {
    await sleep(400 + random() * 1_600);
    if (performance.now() >= untilMs) break;
    let at = random() * sum;
    const act = acts.find((one) => {
      at -= WEIGHTS[one];
      return at < 0;
    });
    if (act === undefined || ((act === 'postgres' || act === 'redis') && under.has(act))) continue;
    const running = carryOut(act, parts).finally(() => {
      all.delete(running);
      if (under.get(act) === running) under.delete(act);
    });
    under.set(act, running);
    all.add(running);
  }
  await Promise.all(all);
  for (const instance of instances) {
    instance.resume();
    if (instance.state === 'down') await instance.restart();
  }
}

async function carryOut(act: Act, parts: Parts): Promise<void> {
  const { cluster, random, pauseMs, count, note } = parts;
  switch (act) {
    case 'kill':
    case 'term': {
      const hit = victim(parts);
      if (hit === null) return;
      const signal = act === 'kill' ? 'SIGKILL' : 'SIGTERM';
      if (act === 'kill') count.kills += 1;
      else count.terms += 1;
      note(`${signal} ${hit.name}`);
      const wait = random() * 1_500;
      await hit.end(signal);
      if (act === 'kill') await sleep(wait);
      await hit.restart();
      note(`${hit.name} is back`);
      return;
    }
    case 'pause': {
      const hit = victim(parts);
      if (hit === null) return;
      const long = random() < 0.6;
      const wait = Math.round(long ? pauseMs + random() * 2_000 : random() * 2_000);
      if (long) count.pauses += 1;
      else count.hiccups += 1;
      note(`SIGSTOP ${hit.name} for ${wait} ms`);
      hit.pause();
      await sleep(wait);
      hit.resume();
      note(`SIGCONT ${hit.name}`);
      return;
    }
    case 'terminate': {
      const share = random() < 0.3 ? 1 : random();
      const sql = `select pg_terminate_backend(pid) as gone from pg_stat_activity
        where application_name = 'reindeer' and random() < $1`;
      const rows = await cluster.postgres.query(cluster.databaseUrl, sql, [share]).catch(() => []);
      count.terminatedSessions += rows.length;
      note(`${rows.length} sessions terminated`);
      return;
    }
    case 'postgres': {
      const how = random() < 0.5 ? 'crash' : 'fast';
      count.postgresRestarts += 1;
      note(`Postgres restarts (${how})`);
      await cluster.postgres.restart(how);
      note('Postgres is back');
      return;
    }
    case 'redis': {
      const wait = random() < 0.5 ? 0 : random() * 2_000;
      count.redisRestarts += 1;
      note('Redis restarts');
      await cluster.redis?.halt();
      await sleep(wait);
      await cluster.redis?.restart();
    }
  }
}

/** An instance that may be hit now: another one is up and stays so. */
function victim({ instances, random }: Parts): Instance | null {
  const up = instances.filter(({ state }) => state === 'up');
  return up.length < 2 ? null : (up[Math.floor(random() * up.length)] ?? null);
}
