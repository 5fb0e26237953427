import type { Fact, LoadedCheckpoint, NewFact, Run } from '@reindeer/protocol';
import { factKey, ReindeerError } from '@reindeer/protocol';
import { retry } from '../common/retry.ts';
import { type Ending, NOT_ROLLED_BACK } from './ending.ts';
import type { LocalRun } from './local-run.ts';
import type { RunParts } from './ports.ts';

const PAGE = 500;
const PAGE_BYTES = 4 * 1024 * 1024;

/**
 * Takes the thread back to the checkpoint of before the run, under the run's fence (RB-01), and reports in the log what that changed, so
 * that readers of messages and states see the restored ones. Without a checkpoint before, all checkpoints go (RB-02).
 *
 * @returns the ending to write; one that names the failure when the store refused to do it. Stops `local` when it is fenced.
 * @throws ReindeerError `store_unavailable` when the store did not answer: it may have happened, or not
 */
export async function rollBack(
  parts: Pick<RunParts, 'stores' | 'surroundings' | 'settings'>,
  local: LocalRun,
  run: Run,
  ending: Ending,
): Promise<Ending> {
  const { stores, surroundings, settings } = parts;
  const { clock, logger } = surroundings;
  const { threadId, runId, checkpointBefore } = run;
  if (checkpointBefore === null) return { ...ending, rollback: false };
  const plan = { tries: settings.writeTries, backoffMs: settings.writeBackoffMs };
  const fenced = () => local.fenced;
  await surroundings.probe.at('run.before-rollback', { runId });
  if (fenced()) return ending;
  const { fence } = local;
  try {
    const answer = await retry(
      clock,
      plan,
      () => stores.checkpoints.rollback({ fence, threadId, checkpointId: checkpointBefore, now: clock.now() }),
      fenced,
    );
    if (answer.outcome === 'fenced') {
      local.stop({ kind: 'fenced' });
      return ending;
    }
  } catch (error) {
    if (ReindeerError.is(error) && error.code === 'store_unavailable') throw error;
    logger.error('a rollback failed', { runId, threadId, error: String(error) });
    return { ...ending, rollback: false, error: NOT_ROLLED_BACK };
  }
  try {
    const restored =
      checkpointBefore === ''
        ? null
        : await stores.checkpoints.load({ threadId, ns: '', checkpointId: checkpointBefore });
    const facts = await restoringFacts(parts, run, restored);
    const append = () => stores.log.append({ fence, threadId, facts, now: clock.now() });
    if (facts.length > 0) await retry(clock, plan, append, fenced);
  } catch (error) {
    logger.warn('a rollback was not reported in the log', { runId, threadId, error: String(error) });
  }
  return ending;
}

/** What the log must say after a rollback: messages of the run are gone, replaced and removed ones are back, the old state counts. */
async function restoringFacts(
  parts: Pick<RunParts, 'stores'>,
  run: Run,
  restored: LoadedCheckpoint | null,
): Promise<readonly NewFact[]> {
  const before = new Map((restored?.messages ?? []).map((message) => [message.id ?? '', message.hash]));
  const seen = new Set<string>();
  const facts: NewFact[] = [];
  for await (const { body } of factsOf(parts, run)) {
    if (body.kind !== 'message' && body.kind !== 'message-removed') continue;
    const id = body.kind === 'message-removed' ? body.messageId : 'id' in body.message ? body.message.id : null;
    if (typeof id !== 'string' || seen.has(`${body.ns}\n${id}`)) continue;
    seen.add(`${body.ns}\n${id}`);
    const hash = body.ns === '' ? before.get(id) : undefined;
    facts.push(
      hash === undefined
        ? {
            key: factKey.messageRemoved(body.ns, id, `rollback:${run.runId}`),
            body: { kind: 'message-removed', ns: body.ns, messageId: id },
          }
        : { key: `restored:${run.runId}:${id}`, body: { kind: 'message', ns: '', message: { $m: hash } } },
    );
  }
  if (restored !== null) {
    facts.push({
      key: `${factKey.checkpoint('', restored.checkpointId)}:rollback:${run.runId}`,
      body: {
        kind: 'checkpoint',
        ns: '',
        checkpointId: restored.checkpointId,
        parentId: restored.parentId,
        source: 'rollback',
        step: -1,
      },
    });
  }
  return facts;
}

async function* factsOf(parts: Pick<RunParts, 'stores'>, run: Run): AsyncGenerator<Fact> {
  let afterSeq = 0;
  for (;;) {
    const { facts } = await parts.stores.log.read({
      threadId: run.threadId,
      runId: run.runId,
      afterSeq,
      limit: PAGE,
      maxBytes: PAGE_BYTES,
    });
    const last = facts.at(-1);
    if (last === undefined) return;
    yield* facts;
    afterSeq = last.seq;
  }
}
