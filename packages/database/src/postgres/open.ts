import { createHash } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { newId, newToken, ReindeerError, type Stores, type Surroundings, type TokenRelay } from '@reindeer/protocol';
import type pg from 'pg';
import { batchStore } from '../batches/store.ts';
import { channelStore } from '../channels/store.ts';
import { checkpointStore } from '../checkpoints/store.ts';
import { databaseScripts, type Identity } from '../meta.ts';
import { PostgresRelay, prepareFrameTable } from '../relay/postgres.ts';
import { RedisRelay } from '../relay/redis.ts';
import { scripts } from '../scripts.ts';
import type { StoredStats } from '../stats.ts';
import {
  attemptStore,
  feedbackStore,
  journalStore,
  logStore,
  runStore,
  scheduleStore,
  threadStore,
} from '../stores.ts';
import { userMemoryStore } from '../user-memory/store.ts';
import { admissionsOf } from './admissions.ts';
import { PostgresClient } from './client.ts';
import { compareClocks } from './clock.ts';
import { type ConnectionOptions, connectionConfig } from './config.ts';
import { loadDriver } from './driver.ts';
import { toReindeerError } from './errors.ts';
import { claimFolder } from './folder.ts';
import { Hints } from './hints.ts';
import { withStatistics } from './large-batches.ts';
import { applyMigrations, startAlone } from './migrate.ts';
import { renewAll } from './renewals.ts';
import { runInside, Statements } from './session.ts';

export interface PostgresOptions extends ConnectionOptions {
  readonly surroundings: Surroundings;
  /** The folder for files that the instances share; its mark is compared with the database. null = no files. */
  readonly folder: string | null;
  /**
   * Id of this instance, stable over its restarts; two living processes cannot have the same. Default: `instance-<n>` with the
   * smallest number that no living process has, so that the restart of a dead instance takes its place.
   */
  readonly instanceId?: string;
  /** Connections for ordinary work; renewals and hints have one each on top. Default 10. */
  readonly connections?: number;
  /** See `ClientOptions`. */
  readonly maxQueued?: number;
  /** How far this machine's clock may be from the database's, in milliseconds. Default: they are not compared. */
  readonly clocksDifferMs?: number;
  /** Tell hints and tokens between instances through this Redis; all instances alike. Default: through the database. */
  readonly redisUrl?: string;
}

export interface PostgresStores extends Stores {
  /** Who this process is to the database, and which owners it follows. */
  readonly identity: Identity;
  /** Stays with the database; the mark of the folders that belong to it. */
  readonly databaseId: string;
  /** Tokens from and to the other instances. */
  readonly relay: TokenRelay;
  /** From the server's own statistics. */
  stats(): Promise<StoredStats>;
}

const ANSWER_MS = 20_000;
const MAX_INSTANCES = 1_000;
/** How long a restart waits for the server to notice the end of its predecessor. */
const TAKE_MS = 5_000;

/**
 * Opens a database that several instances share: connects, takes an instance id, brings the data to the newest format (one instance at
 * a time), settles the epoch, compares the folder.
 *
 * @returns the stores. `close` waits for what was called before, then ends the connections.
 * @throws ReindeerError `configuration` (driver, URL, login, folder, instance id, clock), `data_too_new`, `store_unavailable`
 */
export async function openPostgres(options: PostgresOptions): Promise<PostgresStores> {
  const { surroundings } = options;
  const { logger, random } = surroundings;
  const driver = await loadDriver();
  const config = connectionConfig(driver, options);

  const listeners = new Set<(threadId: string, head: number) => void>();
  const tell = (threadId: string, head: number): void => {
    for (const listener of [...listeners]) {
      try {
        listener(threadId, head);
      } catch (error) {
        logger.error('A listener of appended facts failed', { error: String(error) });
      }
    }
  };
  let redis: RedisRelay | null = null;
  const hints = new Hints({
    createClient: () => new driver.Client(config),
    logger,
    onHint: tell,
    tellOver: (payloads) => redis?.tell(payloads) ?? false,
  });
  const relay = options.redisUrl === undefined ? new PostgresRelay(hints, logger) : null;
  const client = new PostgresClient({
    pool: new driver.Pool({ ...config, max: options.connections ?? 10, idleTimeoutMillis: 60_000 }),
    renewals: new driver.Pool({ ...config, max: 1, idleTimeoutMillis: 0 }),
    scripts,
    logger,
    onAppended: (appended) => {
      for (const [threadId, head] of appended) tell(threadId, head);
      hints.tell(appended);
    },
    ...(options.maxQueued === undefined ? {} : { maxQueued: options.maxQueued }),
    answerMs: options.answerMs ?? ANSWER_MS,
  });
  let closing: Promise<void> | null = null;
  const close = async (): Promise<void> => {
    await client.close();
    await relay?.close();
    await hints.close();
    await redis?.close();
    listeners.clear();
  };

  let history = '';
  let joined: Identity & { readonly databaseId: string };
  try {
    const connection = await hints.connect();
    if (options.clocksDifferMs !== undefined)
      await compareClocks(connection, surroundings.clock, options.clocksDifferMs);
    const instanceId = await takeInstance(hints, options);
    joined = await startAlone(connection, async () => {
      await applyMigrations(connection);
      await prepareFrameTable(connection);
      history = await historyOf(connection);
      const answer = await runInside(connection, new Statements(), databaseScripts['database.join'], {
        history,
        freshEpoch: newToken(random).replaceAll('-', '').toLowerCase().slice(0, 12),
        freshDatabaseId: newId(random),
        instanceId,
        ownerSuffix: newToken(random),
      });
      if (options.folder !== null) await claimFolder(options.folder, answer.databaseId);
      return answer;
    });
    if (options.redisUrl !== undefined)
      redis = await RedisRelay.open({
        url: options.redisUrl,
        // A copy of a database has its id; the server's own names of it tell them apart.
        group: `${joined.databaseId}:${history.split('/').slice(1).join(':')}`,
        sender: newToken(random),
        logger,
        onHint: (payload) => hints.heard(payload),
      });
  } catch (error) {
    await close();
    throw toReindeerError(error);
  }

  const { call, callFirst } = client;
  const { databaseId, ...identity } = joined;
  const attempts = attemptStore(call);
  const { admit, begin } = admissionsOf(client, call, attempts);
  const tokens: TokenRelay | null = relay ?? redis;
  if (tokens === null) throw new ReindeerError('internal', 'There is no relay.');
  return {
    identity,
    databaseId,
    relay: tokens,
    threads: threadStore(call),
    runs: { ...runStore(call, callFirst, renewAll(client, callFirst)), admit },
    log: logStore(call, (listener) => {
      const own = (threadId: string, head: number): void => listener(threadId, head);
      listeners.add(own);
      return () => listeners.delete(own);
    }),
    journal: journalStore(call),
    checkpoints: checkpointStore(call),
    batches: withStatistics(batchStore(call, callFirst), client, logger),
    memory: userMemoryStore(call),
    feedback: feedbackStore(call),
    schedules: scheduleStore(call),
    channels: channelStore(call, callFirst),
    attempts: { ...attempts, begin },
    stats: () => call('database.stats', {}),
    close: () => {
      closing ??= close();
      return closing;
    },
  };
}

/** Which data this is: the cluster, its timeline (another one after a standby took over), and the database in it. */
async function historyOf(connection: pg.ClientBase): Promise<string> {
  const { rows } = await connection.query<{ history: string }>(
    `select concat_ws('/', substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8),
       (select oid from pg_database where datname = current_database()),
       (select system_identifier from pg_control_system())) as history`,
  );
  return rows[0]?.history ?? '';
}

async function takeInstance(hints: Hints, options: PostgresOptions): Promise<string> {
  const { instanceId } = options;
  if (instanceId === undefined) {
    for (let number = 1; number <= MAX_INSTANCES; number += 1)
      if (await hints.take(number)) return `instance-${number}`;
    throw new ReindeerError('configuration', `More than ${MAX_INSTANCES} instances use this database.`);
  }
  // Numbers below are those of the automatic ids.
  const number = MAX_INSTANCES + 1 + (createHash('sha256').update(instanceId).digest().readUInt32BE(0) >>> 2);
  const deadline = performance.now() + TAKE_MS;
  while (!(await hints.take(number))) {
    if (performance.now() >= deadline)
      throw new ReindeerError(
        'configuration',
        `Another running instance has the id "${instanceId}". Give each instance an id of its own, or leave it out.`,
        { detail: { instanceId } },
      );
    await pause(200);
  }
  return instanceId;
}
