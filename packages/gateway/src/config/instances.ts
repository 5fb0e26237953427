import { ReindeerError } from '@reindeer/protocol';
import type { LoadedConfig } from './load.ts';
import { wrongValue } from './readers.ts';

/**
 * Refuses what several instances cannot be safe with, before anything is opened (PD-08). What only the database can tell (another
 * process on the data folder, a folder of another database, an instance id in use) is refused where it is opened.
 *
 * @throws ReindeerError `configuration` that says what to change
 */
export function checkInstances({ config, variables }: LoadedConfig): void {
  const shared = config.database?.backend === 'postgres';
  for (const name of ['GATEWAY_WORKERS', 'WEB_CONCURRENCY']) {
    const value = variables[name]?.trim() ?? '';
    if (value === '' || value === '1') continue;
    const several = /^\d+$/.test(value) ? `${value} times` : 'as often as you want instances';
    throw new ReindeerError(
      'configuration',
      shared
        ? `${name} is "${value}", but one command is one instance here. Start "reindeer serve" ${several} (see docs/instances.md), and remove the variable.`
        : `${name} is "${value}", but with SQLite one process has the data folder. Remove the variable; for several instances set ` +
            `database.backend: postgres and start "reindeer serve" ${several} (see docs/instances.md).`,
    );
  }
  // Schedulers of several instances stand on the same leases, and whoever asks for them means to start more than one (PD-09). Facts are
  // always durable, so `run_events` need not be asked for.
  if (!shared && config.scheduler?.multi_instance === true)
    throw wrongValue(
      ['scheduler', 'multi_instance'],
      'scheduler.multi_instance: true needs a database that several instances share, also while only one runs. Set database.backend: postgres (see docs/instances.md). Remove the key if one instance is enough.',
    );
  if (shared && config.run_ownership?.heartbeat_enabled === false)
    throw wrongValue(
      ['run_ownership', 'heartbeat_enabled'],
      'run_ownership.heartbeat_enabled: false is not possible with database.backend: postgres: without leases one instance would take the ' +
        'runs of another. Remove the key; leases are always on.',
    );
}
