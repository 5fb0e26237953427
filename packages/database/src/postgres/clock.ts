import { type Clock, ReindeerError } from '@reindeer/protocol';
import type pg from 'pg';

/**
 * Refuses to go on with a clock that is further from the database's than instances may differ: leases are times, and whoever is ahead takes what
 * others are still at work on. Throws `configuration`.
 *
 * @param mostMs how far clocks may differ
 */
export async function compareClocks(connection: pg.ClientBase, clock: Clock, mostMs: number): Promise<void> {
  // The answer was true at some time between the two.
  const before = clock.now();
  const { rows } = await connection.query<{ now: number }>(
    'select (extract(epoch from clock_timestamp()) * 1000)::float8 as now',
  );
  const after = clock.now();
  const theirs = rows[0]?.now ?? before;
  const [ahead, behind] = [before - theirs, theirs - after];
  const differs = Math.max(ahead, behind);
  if (differs <= mostMs) return;
  throw new ReindeerError(
    'configuration',
    `The clock of this machine is ${(differs / 1_000).toFixed(1)} s ${ahead > 0 ? 'ahead of' : 'behind'} the database's, and ${mostMs / 1_000} s are allowed (run_ownership.grace_seconds): instances would take each other's work. Set the clocks, best by NTP.`,
    { detail: { differsMs: Math.round(differs) } },
  );
}
