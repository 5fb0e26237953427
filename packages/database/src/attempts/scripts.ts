import type { AttemptAnswer, AttemptStore, AttemptWrite } from '@reindeer/protocol';
import { checkpointScripts } from '../checkpoints/scripts.ts';
import { defineScript, defineStatement, type Tx } from '../executor.ts';
import { journalScripts } from '../journal/scripts.ts';
import { storeHeads, storeHeadsLate } from '../keys.ts';
import { logScripts, type StoredPage } from '../log/scripts.ts';
import { start } from '../runs/transitions.ts';

type Input = { readonly writes: readonly AttemptWrite[] };
/** As the scripts answer: `result` null = the caller's own was stored. */
type Answer = AttemptAnswer | { readonly outcome: 'ok'; readonly result: null };

function writeOne(tx: Tx, write: AttemptWrite): Promise<Answer> {
  switch (write.kind) {
    case 'put':
      return checkpointScripts['checkpoints.put'].run(tx, write.input);
    case 'putWrites':
      return checkpointScripts['checkpoints.putWrites'].run(tx, write.input);
    case 'begin':
      return journalScripts['journal.begin'].run(tx, write.input);
    case 'finish':
      return journalScripts['journal.finish'].run(tx, write.input) as Promise<Answer>;
  }
}

/** The writes of one attempt in their order, as one unit: see `AttemptStore`. */
async function writeAll(tx: Tx, { writes }: Input): Promise<Answer[]> {
  const answers: Answer[] = [];
  storeHeadsLate(tx);
  for (const write of writes) {
    const answer = await writeOne(tx, write);
    answers.push(answer);
    if (answer.outcome === 'fenced' || answer.outcome === 'incomplete') break;
  }
  storeHeads(tx);
  return answers;
}

/** A run that was admitted and nothing else yet, while no other run of its thread waits for its end. */
const startable = defineStatement((db, p: { runId: string; token: string; threadId: string }) =>
  db
    .selectFrom('runs')
    .select('run_id')
    .where('run_id', '=', p.runId)
    .where('token', '=', p.token)
    .where('thread_id', '=', p.threadId)
    .where('status', '=', 'pending')
    .where('attempt', '=', 0)
    .where(({ not, exists, selectFrom }) =>
      not(
        exists(
          selectFrom('runs as other')
            .select('other.run_id')
            .where('other.thread_id', '=', p.threadId)
            .where('other.acknowledged', '=', 0)
            .where('other.run_id', '!=', p.runId),
        ),
      ),
    ),
);

type Begin = AttemptStore['begin'];
type Begun = Extract<Awaited<ReturnType<Begin>>, { readonly outcome: 'begun' }>;
type Beginning = (Omit<Begun, 'log'> & { readonly log: StoredPage }) | { readonly outcome: 'not_now' };

/** A run that is admitted between the look and the start replaces this one, whose start is refused then. */
async function begin(tx: Tx, input: Parameters<Begin>[0]): Promise<Beginning> {
  const { fence, threadId, now } = input;
  const [free, head] = await Promise.all([
    tx.first(startable, { ...fence, threadId }),
    checkpointScripts['checkpoints.load'].run(tx, { threadId, ns: '', checkpointId: null }),
  ]);
  if (free === undefined) return { outcome: 'not_now' };
  const started = await start.run(tx, { fence, checkpointBefore: head?.checkpointId ?? '', now });
  if (started.outcome !== 'started') return { outcome: 'not_now' };
  const read = { threadId, runId: fence.runId, afterSeq: 0, limit: 10, maxBytes: 65_536 };
  return { outcome: 'begun', run: started.run, head, log: await logScripts['log.read'].run(tx, read) };
}

export const attemptScripts = {
  'attempts.begin': defineScript('attempts.begin', 'write', begin),
  'attempts.write': defineScript('attempts.write', 'write', writeAll),
  /** The same, for calls with an entry of the tool journal. */
  'attempts.record': defineScript('attempts.record', 'durable', writeAll),
};
