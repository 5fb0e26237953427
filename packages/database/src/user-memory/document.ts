import {
  MEMORY_SECTIONS,
  type MemoryAudit,
  type MemoryChanged,
  type MemoryDocument,
  type MemoryFact,
  type MemorySection,
  type MemoryStatement,
  type MemoryStore,
  ReindeerError,
  type StoredMemoryFact,
} from '@reindeer/protocol';
import { defineScript, defineStatement, type Tx } from '../executor.ts';
import { audited, duplicateOf, isAsSeen } from './merge.ts';

type Input<M extends keyof MemoryStore> = Parameters<MemoryStore[M]>[0];

const head = defineStatement((db, p: { userId: string }) =>
  db.selectFrom('memory_users').selectAll().where('user_id', '=', p.userId),
);
const makeHead = defineStatement((db, p: { userId: string; now: number }) =>
  db
    .insertInto('memory_users')
    .values({ user_id: p.userId, revision: 0, updated_at: p.now, audit: '[]' })
    .onConflict((c) => c.column('user_id').doNothing()),
);
const lockHead = defineStatement((db, p: { userId: string }) =>
  db.selectFrom('memory_users').select('user_id').where('user_id', '=', p.userId).forNoKeyUpdate(),
);
const moveHead = defineStatement((db, p: { userId: string; audit: string; now: number }) =>
  db
    .updateTable('memory_users')
    .set((eb) => ({ revision: eb('revision', '+', 1), updated_at: p.now, audit: p.audit }))
    .where('user_id', '=', p.userId),
);
const sections = defineStatement((db, p: { userId: string }) =>
  db.selectFrom('memory_sections').selectAll().where('user_id', '=', p.userId),
);
const facts = defineStatement((db, p: { userId: string; agent: string }) =>
  db
    .selectFrom('memory_facts')
    .selectAll()
    .where('user_id', '=', p.userId)
    .where('agent', '=', p.agent)
    .orderBy('created_at')
    .orderBy('fact_id'),
);
const removeFact = defineStatement((db, p: { userId: string; agent: string; id: string }) =>
  db
    .deleteFrom('memory_facts')
    .where('fact_id', '=', p.id)
    .where('user_id', '=', p.userId)
    .where('agent', '=', p.agent),
);
const insertFact = defineStatement(
  (
    db,
    p: {
      id: string;
      userId: string;
      agent: string;
      contentKey: string;
      revision: number;
      createdAt: number;
      body: string;
    },
  ) =>
    db.insertInto('memory_facts').values({
      fact_id: p.id,
      user_id: p.userId,
      agent: p.agent,
      content_key: p.contentKey,
      revision: p.revision,
      created_at: p.createdAt,
      body: p.body,
    }),
);
const removeSection = defineStatement((db, p: { userId: string; section: string }) =>
  db.deleteFrom('memory_sections').where('user_id', '=', p.userId).where('section', '=', p.section),
);
const putSection = defineStatement(
  (db, p: { userId: string; section: string; statements: string; revision: number; now: number }) =>
    db.insertInto('memory_sections').values({
      user_id: p.userId,
      section: p.section,
      statements: p.statements,
      revision: p.revision,
      updated_at: p.now,
    }),
);
const removeCaptures = defineStatement((db, p: { userId: string }) =>
  db.deleteFrom('memory_captures').where('user_id', '=', p.userId),
);
const removeAll = [
  defineStatement((db, p: { userId: string }) => db.deleteFrom('memory_facts').where('user_id', '=', p.userId)),
  defineStatement((db, p: { userId: string }) => db.deleteFrom('memory_sections').where('user_id', '=', p.userId)),
];

type FactBody = Omit<MemoryFact, 'id' | 'createdAt'>;
type Check = (value: unknown) => boolean;
const isText: Check = (value) => typeof value === 'string';
const isNumber: Check = (value) => typeof value === 'number';
const orNull =
  (check: Check): Check =>
  (value) =>
    value === null || check(value);
const listOf =
  (check: Check): Check =>
  (value) =>
    Array.isArray(value) && value.every(check);
const objectOf =
  (fields: Readonly<Record<string, Check>>): Check =>
  (value) =>
    typeof value === 'object' &&
    value !== null &&
    Object.entries(fields).every(([name, check]) => check((value as Record<string, unknown>)[name]));

const isBody = objectOf({
  content: isText,
  category: isText,
  confidence: isNumber,
  confirmedAt: isNumber,
  accessedAt: orNull(isNumber),
  source: isText,
  sourceError: orNull(isText),
  reviewAfter: orNull(isNumber),
  consolidatedFrom: listOf(isText),
});
const isStatements = listOf(objectOf({ text: isText, sources: listOf(isText) }));
const isAudit = listOf(objectOf({ at: isNumber, factId: isText, act: isText }));

/** What cannot be read is damaged, and not "nothing" (MEM-5): a change on top of it would make the loss final. */
export function parsed<T>(check: Check, text: string, what: string): T {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    value = undefined;
  }
  if (check(value)) return value as T;
  throw new ReindeerError('internal', `The memory is damaged: ${what} cannot be read. Restore it from a backup.`);
}

async function readDocument(tx: Tx, userId: string, agent: string): Promise<MemoryDocument> {
  const first = await tx.first(head, { userId });
  if (first === undefined) return { revision: 0, updatedAt: null, sections: {}, facts: [] };
  const found: Record<string, MemorySection> = {};
  for (const row of await tx.all(sections, { userId }))
    if ((MEMORY_SECTIONS as readonly string[]).includes(row.section))
      found[row.section] = {
        statements: parsed<MemoryStatement[]>(isStatements, row.statements, `the summary "${row.section}"`),
        updatedAt: row.updated_at,
        revision: row.revision,
      };
  const rows = await tx.all(facts, { userId, agent });
  return {
    revision: first.revision,
    updatedAt: first.revision === 0 ? null : first.updated_at,
    sections: found,
    facts: rows.map(
      (row): StoredMemoryFact => ({
        id: row.fact_id,
        ...parsed<FactBody>(isBody, row.body, `the fact ${row.fact_id}`),
        createdAt: row.created_at,
        contentKey: row.content_key,
        revision: row.revision,
      }),
    ),
  };
}

async function lockUser(tx: Tx, userId: string, now: number): Promise<void> {
  await tx.run(makeHead, { userId, now });
  if (!tx.serial) await tx.first(lockHead, { userId });
}

const auditOf = async (tx: Tx, userId: string): Promise<readonly MemoryAudit[]> => {
  const row = await tx.first(head, { userId });
  return row === undefined ? [] : parsed<MemoryAudit[]>(isAudit, row.audit, 'the list of what went');
};

/** Everybody who changes the user's memory waits at the user's row, so that what is checked here holds until it is written. */
export async function applyChange(tx: Tx, { userId, agent, change, now }: Input<'change'>): Promise<MemoryChanged> {
  await lockUser(tx, userId, now);
  const document = await readDocument(tx, userId, agent);
  if (!isAsSeen(change, document)) return { outcome: 'conflict' };
  const duplicate = duplicateOf(change, document);
  if (duplicate !== null) return { outcome: 'duplicate', factId: duplicate };
  // Of the document, for all that changes with it: what was removed and made again has another one than before.
  const revision = document.revision + 1;
  for (const id of [...change.remove, ...change.put.map((fact) => fact.id)])
    await tx.run(removeFact, { userId, agent, id });
  for (const fact of change.put) {
    const { id, createdAt, contentKey } = fact;
    await tx.run(insertFact, { id, userId, agent, contentKey, revision, createdAt, body: bodyOf(fact) });
  }
  for (const [section, statements = []] of Object.entries(change.sections)) {
    await tx.run(removeSection, { userId, section });
    if (statements.length > 0)
      await tx.run(putSection, { userId, section, statements: statementsJson(statements), revision, now });
  }
  const audit = change.audit.length === 0 ? null : audited(await auditOf(tx, userId), change.audit);
  await tx.run(moveHead, {
    userId,
    audit: JSON.stringify(audit ?? (await auditOf(tx, userId))),
    now,
  });
  return { outcome: 'ok', revision };
}

const bodyOf = (fact: MemoryFact): string =>
  JSON.stringify({
    content: fact.content,
    category: fact.category,
    confidence: fact.confidence,
    confirmedAt: fact.confirmedAt,
    accessedAt: fact.accessedAt,
    source: fact.source,
    sourceError: fact.sourceError,
    reviewAfter: fact.reviewAfter,
    consolidatedFrom: fact.consolidatedFrom,
  });
const statementsJson = (statements: readonly MemoryStatement[]): string =>
  JSON.stringify(statements.map(({ text, sources }) => ({ text, sources })));

export const documentScripts = {
  'memory.read': defineScript('memory.read', 'read', (tx, input: Input<'read'>) =>
    readDocument(tx, input.userId, input.agent),
  ),
  'memory.change': defineScript('memory.change', 'durable', (tx, input: Input<'change'>) => applyChange(tx, input)),
  'memory.audit': defineScript('memory.audit', 'read', (tx, input: Input<'audit'>) => auditOf(tx, input.userId)),
  /** The head stays: a revision is never given out again. */
  'memory.clear': defineScript(
    'memory.clear',
    'durable',
    async (tx, { userId, now }: Input<'clear'>): Promise<void> => {
      // First, as in `settle`: rows are locked in one order.
      await tx.run(removeCaptures, { userId });
      await lockUser(tx, userId, now);
      for (const statement of removeAll) await tx.run(statement, { userId });
      await tx.run(moveHead, { userId, audit: '[]', now });
    },
  ),
};
