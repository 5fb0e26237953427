import type { Script } from '@reindeer/scripted';
import type { RunningServer } from './server.ts';

export interface BatchRow {
  readonly batch_id: string;
  readonly status: string;
  readonly total_items: number;
  readonly counts: Readonly<Record<string, number>>;
}

export interface ItemRow {
  readonly item_id: string;
  readonly key: string;
  readonly position: number;
  readonly status: string;
  readonly attempt: number;
  readonly result_preview: string | null;
  readonly error: string | null;
  readonly ended_at: string | null;
}

/** The number in the prompt of an item; null = it is none of an item. */
export function rowOf(request: Parameters<Script>[0]): number | null {
  const row = /Row (\d+)/.exec(request.messages.findLast((message) => message.role === 'user')?.text ?? '')?.[1];
  return row === undefined ? null : Number(row);
}

/** Answers the number in the prompt of an item, as text that names it. */
export const rowScript: Script = (request) => {
  const row = rowOf(request);
  return row === null ? { text: 'Here I am.' } : { text: `done ${row}` };
};

export const itemsFor = (count: number) =>
  Array.from({ length: count }, (_, n) => ({ key: `r${n}`, prompt: `Row ${n}` }));

async function json<T>(url: string, init: RequestInit = {}): Promise<T> {
  const response = await fetch(url, { headers: { 'content-type': 'application/json' }, ...init });
  if (!response.ok) throw new Error(`${response.status}: ${await response.text()}`);
  return (await response.json()) as T;
}

export async function startBatch(
  server: RunningServer,
  threadId: string,
  body: Readonly<Record<string, unknown>>,
): Promise<BatchRow> {
  return json(`${server.url}/api/threads/${threadId}/subagent-batches`, {
    method: 'POST',
    body: JSON.stringify({ title: 'Rows', if_not_exists: 'create', ...body }),
  });
}

const batchOf = (server: RunningServer, batchId: string): Promise<BatchRow> =>
  json(`${server.url}/api/subagent-batches/${batchId}`);

export async function allItems(server: RunningServer, threadId: string, batchId: string): Promise<ItemRow[]> {
  const all: ItemRow[] = [];
  for (;;) {
    const page = await json<ItemRow[]>(
      `${server.url}/api/threads/${threadId}/subagent-batches/${batchId}/items?limit=500&offset=${all.length}`,
    );
    all.push(...page);
    if (page.length < 500) return all;
  }
}

/** Asks until the batch is as wanted. */
export async function untilBatch(
  server: () => RunningServer,
  batchId: string,
  wanted: (row: BatchRow) => boolean,
): Promise<BatchRow> {
  for (;;) {
    const row = await batchOf(server(), batchId).catch(() => null);
    if (row !== null && wanted(row)) return row;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

export const isOver = (row: BatchRow): boolean => ['completed', 'failed', 'cancelled'].includes(row.status);
