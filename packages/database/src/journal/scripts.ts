import {
  type Fenced,
  factKey,
  type JournalBegin,
  type NewFact,
  type Packed,
  ReindeerError,
  type ToolCallKey,
  type ToolJournal,
  type ToolOutcome,
} from '@reindeer/protocol';
import { defineScript, defineStatement, type Tx } from '../executor.ts';
import { fenceRun } from '../fence.ts';
import { findThreadKey, lockCounter, threadKey } from '../keys.ts';
import { appendFacts } from '../log/append.ts';
import { Texts } from '../messages.ts';
import { loadPacked } from '../references.ts';

/**
 * States of a tool call: absent ⇄ started → finished. `finished` is absorbing: its result is what every later `begin` and
 * `finish` answers (D7). `started` under another token means that the end of an earlier attempt is unknown.
 */
type Input<M extends keyof ToolJournal> = Parameters<ToolJournal[M]>[0];

interface CallKey {
  readonly key: number;
  readonly messageId: string;
  readonly index: number;
}
interface Started {
  readonly runId: string;
  readonly token: string;
  readonly attempt: number;
  readonly now: number;
}

const insertCall = defineStatement((db, p: CallKey & Started & { toolCallId: string | null; name: string }) =>
  db
    .insertInto('tool_calls')
    .values({
      thread_key: p.key,
      message_id: p.messageId,
      call_index: p.index,
      run_id: p.runId,
      token: p.token,
      attempt: p.attempt,
      tool_call_id: p.toolCallId,
      name: p.name,
      started_at: p.now,
    })
    .onConflict((c) => c.columns(['thread_key', 'message_id', 'call_index']).doNothing()),
);
const findCall = defineStatement((db, p: CallKey) =>
  db
    .selectFrom('tool_calls')
    .select(['token', 'attempt', 'tool_call_id', 'name', 'started_at', 'finished_at', 'result'])
    .where('thread_key', '=', p.key)
    .where('message_id', '=', p.messageId)
    .where('call_index', '=', p.index),
);
const beginAgain = defineStatement((db, p: CallKey & Started) =>
  db
    .updateTable('tool_calls')
    .set({ run_id: p.runId, token: p.token, attempt: p.attempt, started_at: p.now })
    .where('thread_key', '=', p.key)
    .where('message_id', '=', p.messageId)
    .where('call_index', '=', p.index)
    .where('finished_at', 'is', null),
);
const finishCall = defineStatement((db, p: CallKey & { outcome: ToolOutcome; result: string; now: number }) =>
  db
    .updateTable('tool_calls')
    .set({ outcome: p.outcome, result: p.result, finished_at: p.now })
    .where('thread_key', '=', p.key)
    .where('message_id', '=', p.messageId)
    .where('call_index', '=', p.index)
    .where('finished_at', 'is', null),
);
const forgetCall = defineStatement((db, p: CallKey) =>
  db
    .deleteFrom('tool_calls')
    .where('thread_key', '=', p.key)
    .where('message_id', '=', p.messageId)
    .where('call_index', '=', p.index)
    .where('finished_at', 'is', null),
);
const unfinishedCalls = defineStatement((db, p: { key: number }) =>
  db
    .selectFrom('tool_calls')
    .select(['message_id', 'call_index', 'name', 'attempt', 'started_at'])
    .where('thread_key', '=', p.key)
    .where('finished_at', 'is', null)
    .orderBy('started_at')
    .orderBy('call_number'),
);

const begin = defineScript('journal.begin', 'durable', async (tx, input: Input<'begin'>): Promise<JournalBegin> => {
  const { fence, key: call, toolCallId, name, attempt, again, now } = input;
  const { threadId, messageId, index } = call;
  const [held] = await Promise.all([fenceRun(tx, fence, threadId), lockCounter(tx, threadId)]);
  if (!held) return { outcome: 'fenced' };
  const row = { key: await threadKey(tx, threadId), messageId, index };
  const started = { ...row, ...fence, attempt, now };
  if ((await tx.run(insertCall, { ...started, toolCallId, name })) === 0) {
    const known = await tx.first(findCall, row);
    if (known !== undefined && known.finished_at !== null)
      return { outcome: 'finished', result: await loadPacked(tx, threadId, known.result ?? 'null') };
    if (known !== undefined && known.token !== fence.token) {
      if (!again) return { outcome: 'unfinished', startedAt: known.started_at, attempt: known.attempt };
      await tx.run(beginAgain, started);
    }
  }
  const fact: NewFact = {
    key: factKey.toolStarted(messageId, index, fence.runId, attempt),
    body: { kind: 'tool-started', messageId, index, toolCallId, name, attempt },
  };
  await appendFacts(tx, { threadId, runId: fence.runId, facts: [fact], now });
  return { outcome: 'begin' };
});

/** `result` null = the caller's own was stored. */
const finish = defineScript(
  'journal.finish',
  'durable',
  async (tx, input: Input<'finish'>): Promise<Fenced<{ readonly result: Packed | null }>> => {
    const { fence, key: call, outcome, result, now } = input;
    const { threadId, messageId, index } = call;
    const [held] = await Promise.all([fenceRun(tx, fence, threadId), lockCounter(tx, threadId)]);
    if (!held) return { outcome: 'fenced' };
    const row = { key: await threadKey(tx, threadId), messageId, index };
    const [changed, known] = await Promise.all([
      tx.run(finishCall, { ...row, outcome, result: result.json, now }),
      tx.first(findCall, row),
    ]);
    if (known === undefined) throw neverBegan(call);
    if (changed === 0) return { outcome: 'ok', result: await loadPacked(tx, threadId, known.result ?? 'null') };
    await Texts.of(tx, row.key).store(result.messages);
    const fact: NewFact = {
      key: factKey.toolFinished(messageId, index),
      body: {
        kind: 'tool-finished',
        messageId,
        index,
        toolCallId: known.tool_call_id,
        name: known.name,
        outcome,
      },
    };
    await appendFacts(tx, { threadId, runId: fence.runId, facts: [fact], now });
    return { outcome: 'ok', result: null };
  },
);

function neverBegan(call: ToolCallKey): ReindeerError {
  return new ReindeerError(
    'internal',
    `The tool call ${call.messageId}#${call.index} was finished without having begun.`,
  );
}

const retract = defineScript(
  'journal.retract',
  'durable',
  async (tx, { fence, key: { threadId, messageId, index } }: Input<'retract'>): Promise<Fenced<object>> => {
    if (!(await fenceRun(tx, fence, threadId))) return { outcome: 'fenced' };
    await tx.run(forgetCall, { key: await threadKey(tx, threadId), messageId, index });
    return { outcome: 'ok' };
  },
);

const unfinished = defineScript(
  'journal.unfinished',
  'read',
  async (tx: Tx, input: { readonly threadId: string }): Promise<Awaited<ReturnType<ToolJournal['unfinished']>>> => {
    const { threadId } = input;
    const key = await findThreadKey(tx, threadId);
    if (key === null) return [];
    return (await tx.all(unfinishedCalls, { key })).map((row) => ({
      key: { threadId, messageId: row.message_id, index: row.call_index },
      name: row.name,
      attempt: row.attempt,
      startedAt: row.started_at,
    }));
  },
);

export const journalScripts = {
  'journal.begin': begin,
  'journal.finish': finish,
  'journal.retract': retract,
  'journal.unfinished': unfinished,
};
