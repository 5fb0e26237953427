import type {
  CaptureKey,
  ClaimedCapture,
  MemoryChange,
  MemoryChanged,
  MemoryDocument,
  MemoryStore,
} from '@reindeer/protocol';
import { audited, conversationOf, duplicateOf, isAsSeen, merged } from '../user-memory/merge.ts';
import type { CaptureRow, MemoryDatabase, UserMemoryRow } from './data.ts';
import type { Transact } from './runs.ts';

/** What a memory database remembers about users. */
export function memoryUserMemory(database: MemoryDatabase, transact: Transact): MemoryStore {
  const rowOf = (userId: string, now: number): UserMemoryRow => {
    const row = database.memories.get(userId) ?? {
      revision: 0,
      updatedAt: now,
      sections: {},
      facts: new Map(),
      audit: [],
    };
    database.memories.set(userId, row);
    return row;
  };
  const documentOf = (userId: string, agent: string): MemoryDocument => {
    const row = database.memories.get(userId);
    if (row === undefined) return { revision: 0, updatedAt: null, sections: {}, facts: [] };
    return structuredClone({
      revision: row.revision,
      updatedAt: row.revision === 0 ? null : row.updatedAt,
      sections: row.sections,
      facts: row.facts.get(agent) ?? [],
    });
  };
  const apply = (userId: string, agent: string, change: MemoryChange, now: number): MemoryChanged => {
    const document = documentOf(userId, agent);
    if (!isAsSeen(change, document)) return { outcome: 'conflict' };
    const duplicate = duplicateOf(change, document);
    if (duplicate !== null) return { outcome: 'duplicate', factId: duplicate };
    const row = rowOf(userId, now);
    row.revision += 1;
    row.updatedAt = now;
    const { revision } = row;
    const going = new Set([...change.remove, ...change.put.map((fact) => fact.id)]);
    const facts = document.facts.filter((fact) => !going.has(fact.id));
    facts.push(...change.put.map((fact) => structuredClone({ ...fact, revision })));
    facts.sort((a, b) => a.createdAt - b.createdAt || (a.id < b.id ? -1 : 1));
    row.facts.set(agent, facts);
    const sections = { ...row.sections };
    for (const [name, statements = []] of Object.entries(change.sections)) {
      const section = name as keyof typeof sections;
      if (statements.length === 0) delete sections[section];
      else sections[section] = { statements: structuredClone(statements), updatedAt: now, revision };
    }
    row.sections = sections;
    row.audit = audited(row.audit, change.audit);
    return { outcome: 'ok', revision };
  };

  const find = (key: CaptureKey): CaptureRow | undefined => database.captures.get(indexOf(key));
  const waiting = (): CaptureRow[] => [...database.captures.values()].filter((row) => row.waits.dueAt !== null);
  const trim = (keep: number): void => {
    const idle = [...database.captures.values()].filter((row) => row.waits.dueAt === null);
    idle.sort((a, b) => b.updatedAt - a.updatedAt);
    const last = idle[keep];
    if (last === undefined) return;
    for (const row of idle) if (row.updatedAt <= last.updatedAt) database.captures.delete(indexOf(row.key));
  };

  return {
    read: ({ userId, agent }) => transact(() => documentOf(userId, agent)),
    change: ({ userId, agent, change, now }) => transact(() => apply(userId, agent, change, now)),
    audit: ({ userId }) => transact(() => structuredClone(database.memories.get(userId)?.audit ?? [])),
    clear: ({ userId, now }) =>
      transact(() => {
        for (const [index, row] of database.captures) if (row.key.userId === userId) database.captures.delete(index);
        const { revision } = rowOf(userId, now);
        database.memories.set(userId, {
          revision: revision + 1,
          updatedAt: now,
          sections: {},
          facts: new Map(),
          audit: [],
        });
      }),

    enqueue: (input) =>
      transact(() => {
        const { userId, agent, threadId, now, signals, maxPending } = input;
        const key = { userId, agent, threadId };
        const row = find(key);
        if (row === undefined || row.waits.dueAt === null)
          if (waiting().length >= maxPending * (signals.length > 0 ? 2 : 1)) return 'dropped';
        const waits = structuredClone(merged(row?.waits ?? null, input));
        database.captures.set(indexOf(key), {
          ...(row ?? { key, token: null, leaseUntil: null, attempts: 0, watermark: null }),
          waits,
          version: (row?.version ?? 0) + 1,
          updatedAt: now,
        });
        return 'queued';
      }),
    claim: ({ tokens, leaseUntil, now }) =>
      transact(() => {
        const free = waiting()
          .filter((row) => (row.waits.dueAt ?? 0) <= now && (row.leaseUntil === null || row.leaseUntil <= now))
          .sort((a, b) => (a.waits.dueAt ?? 0) - (b.waits.dueAt ?? 0));
        return tokens.flatMap((token, index): ClaimedCapture[] => {
          const row = free[index];
          if (row === undefined) return [];
          row.token = token;
          row.leaseUntil = leaseUntil;
          const { key, version, watermark, attempts, waits } = row;
          return [
            structuredClone({
              ...key,
              ...conversationOf(waits),
              token,
              version,
              signals: waits.signals,
              watermark,
              attempts,
            }),
          ];
        });
      }),
    settle: ({ right, change, watermark, maxWatermarks, now }) =>
      transact(() => {
        const row = find(right);
        if (row === undefined || row.token !== right.token) return { outcome: 'fenced' };
        const changed = change === null ? null : apply(right.userId, right.agent, change, now);
        if (changed !== null && changed.outcome !== 'ok') return changed;
        if (row.version === right.version) row.waits = { pending: null, leaving: null, signals: [], dueAt: null };
        Object.assign(row, { token: null, leaseUntil: null, attempts: 0, watermark, updatedAt: now });
        trim(maxWatermarks);
        return changed ?? { outcome: 'ok', revision: 0 };
      }),
    postpone: ({ right, dueAt, failed }) =>
      transact(() => {
        const row = find(right);
        if (row === undefined || row.token !== right.token) return;
        row.waits = { ...row.waits, dueAt };
        Object.assign(row, { token: null, leaseUntil: null, attempts: row.attempts + (failed ? 1 : 0) });
      }),
    pending: ({ userId }) =>
      transact(() => waiting().filter((row) => userId === null || row.key.userId === userId).length),
  };
}

const indexOf = ({ userId, agent, threadId }: CaptureKey): string => JSON.stringify([userId, agent, threadId]);
