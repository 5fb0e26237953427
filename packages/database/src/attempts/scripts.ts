import type { AttemptAnswer, AttemptWrite } from '@reindeer/protocol';
import { checkpointScripts } from '../checkpoints/scripts.ts';
import { defineScript, remembering, type Tx } from '../executor.ts';
import { journalScripts } from '../journal/scripts.ts';

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
  const one = remembering(tx);
  for (const write of writes) {
    const answer = await writeOne(one, write);
    answers.push(answer);
    if (answer.outcome === 'fenced' || answer.outcome === 'incomplete') break;
  }
  return answers;
}

export const attemptScripts = {
  'attempts.write': defineScript('attempts.write', 'write', writeAll),
  /** The same, for calls with an entry of the tool journal. */
  'attempts.record': defineScript('attempts.record', 'durable', writeAll),
};
