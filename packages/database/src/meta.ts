import { defineScript, defineStatement, type Tx } from './executor.ts';

const get = defineStatement((db, p: { name: string }) =>
  db.selectFrom('meta').select('value').where('name', '=', p.name),
);
const put = defineStatement((db, p: { name: string; value: string }) =>
  db
    .insertInto('meta')
    .values({ name: p.name, value: p.value })
    .onConflict((c) => c.column('name').doUpdateSet({ value: p.value })),
);
const remove = defineStatement((db, p: { name: string }) => db.deleteFrom('meta').where('name', '=', p.name));
const owners = defineStatement((db, p: { owner: string }) =>
  db
    .selectFrom('runs')
    .select('owner')
    .distinct()
    .where('acknowledged', '=', 0)
    .where('owner', 'is not', null)
    .where('owner', '!=', p.owner)
    .orderBy('owner'),
);

/** Names of rows in `meta`. */
export const META = {
  epoch: 'epoch',
  instanceId: 'instance_id',
  /** Identity of the machine's boot under which the database was last opened. */
  boot: 'boot',
  /** Present while the database is open; absent = the last stop was clean. */
  open: 'open',
  /** Present in a backup: whoever opens it continues a history that may differ from the one that clients saw. */
  restored: 'restored',
  /** Of a database that several instances share. */
  databaseId: 'database_id',
} as const;

export async function readMeta(tx: Tx, name: string): Promise<string | null> {
  return (await tx.first(get, { name }))?.value ?? null;
}

export async function writeMeta(tx: Tx, name: string, value: string | null): Promise<void> {
  if (value === null) await tx.run(remove, { name });
  else await tx.run(put, { name, value });
}

export interface OpenInput {
  /** Identity of the machine's boot; null where the system does not tell. */
  readonly boot: string | null;
  /** Used when the database has no epoch yet, or its sequence numbers may have been given out before. */
  readonly freshEpoch: string;
  /** Used when the database has no instance id yet. */
  readonly freshInstanceId: string;
  readonly ownerSuffix: string;
}

export interface Identity {
  readonly epoch: string;
  /** Stays with the database. */
  readonly instanceId: string;
  /** Of this opening: `<instance id>:<suffix>`. */
  readonly owner: string;
  /** Owners of unfinished runs that were left by earlier openings of this database: they hold nothing any more. */
  readonly deadOwners: readonly string[];
}

/**
 * When does the epoch change (D3)? Not every commit is on the disk when it is answered, so that after a power cut numbers that
 * readers have seen may be given out again; and a restored backup continues from an older state. A killed process loses nothing.
 */
export function decideEpoch(
  stored: {
    readonly epoch: string | null;
    readonly boot: string | null;
    readonly open: boolean;
    readonly restored: boolean;
  },
  now: { readonly boot: string | null; readonly freshEpoch: string },
): string {
  if (stored.epoch === null || stored.restored) return now.freshEpoch;
  const powerMayHaveFailed = stored.open && !sameBoot(stored.boot, now.boot);
  return powerMayHaveFailed ? now.freshEpoch : stored.epoch;
}

/** Unknown boots are taken as different: a new epoch costs a reader one reload, a reused number costs it the truth. */
function sameBoot(before: string | null, now: string | null): boolean {
  if (before === null || now === null) return false;
  const [then, current] = [before, now].map((boot) => /^time:(\d+)$/.exec(boot)?.[1]);
  // A computed boot time moves with corrections of the clock.
  if (then !== undefined && current !== undefined) return Math.abs(Number(then) - Number(current)) <= 120;
  return before === now;
}

export interface JoinInput {
  /** Identity of the data behind the connection: another server, a copy, or a standby that took over is another one. */
  readonly history: string;
  /** Used when the database has no epoch yet, or its sequence numbers may have been given out before. */
  readonly freshEpoch: string;
  /** Used when the database has no id yet. */
  readonly freshDatabaseId: string;
  /** Of this instance; no other living one has it. */
  readonly instanceId: string;
  readonly ownerSuffix: string;
}

export const databaseScripts = {
  'database.open': defineScript('database.open', 'durable', async (tx, input: OpenInput): Promise<Identity> => {
    const epoch = decideEpoch(
      {
        epoch: await readMeta(tx, META.epoch),
        boot: await readMeta(tx, META.boot),
        open: (await readMeta(tx, META.open)) !== null,
        restored: (await readMeta(tx, META.restored)) !== null,
      },
      input,
    );
    const instanceId = (await readMeta(tx, META.instanceId)) ?? input.freshInstanceId;
    const owner = `${instanceId}:${input.ownerSuffix}`;
    await writeMeta(tx, META.epoch, epoch);
    await writeMeta(tx, META.instanceId, instanceId);
    await writeMeta(tx, META.boot, input.boot);
    await writeMeta(tx, META.open, owner);
    await writeMeta(tx, META.restored, null);
    const dead = await tx.all(owners, { owner });
    return { epoch, instanceId, owner, deadOwners: dead.flatMap((row) => (row.owner === null ? [] : [row.owner])) };
  }),
  /**
   * One of several instances opens the database they share. Every commit is on the disk of the server before it is answered, so that a
   * crash loses no number; but a restored copy, or a standby that had not received everything, continues an older history (D3).
   */
  'database.join': defineScript(
    'database.join',
    'durable',
    async (tx, input: JoinInput): Promise<Identity & { readonly databaseId: string }> => {
      const { history, instanceId } = input;
      const stored = await readMeta(tx, META.epoch);
      const epoch = stored !== null && (await readMeta(tx, META.boot)) === history ? stored : input.freshEpoch;
      const databaseId = (await readMeta(tx, META.databaseId)) ?? input.freshDatabaseId;
      const owner = `${instanceId}:${input.ownerSuffix}`;
      await writeMeta(tx, META.epoch, epoch);
      await writeMeta(tx, META.boot, history);
      await writeMeta(tx, META.databaseId, databaseId);
      const others = await tx.all(owners, { owner });
      const dead = others.flatMap((row) => (row.owner?.startsWith(`${instanceId}:`) === true ? [row.owner] : []));
      return { epoch, instanceId, owner, deadOwners: [instanceId, ...dead], databaseId };
    },
  ),
  /** The last write of a clean stop. */
  'database.close': defineScript('database.close', 'durable', async (tx, _input: object): Promise<void> => {
    await writeMeta(tx, META.open, null);
  }),
  'database.epoch': defineScript(
    'database.epoch',
    'read',
    async (tx, _input: object): Promise<string> => {
      return (await readMeta(tx, META.epoch)) ?? '';
    },
    'alone',
  ),
};
