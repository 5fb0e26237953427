import type { Fence, Json, NewFact, ThreadService } from '@reindeer/protocol';
import { newId } from '@reindeer/protocol';
import type { RunParts } from '../runs/ports.ts';
import type { Reservations } from '../runs/reservation.ts';

type Input = Parameters<ThreadService['branch']>[0];

/**
 * Makes a thread that goes on from a checkpoint of another. Both are held meanwhile: no run of the source moves its files or states, and
 * nobody finds the new thread before it is whole. What it shows of the past stands in its own log.
 *
 * @param retitle writes a title into the state of the new thread, which is its parent's until then
 */
export async function branchThread(
  parts: RunParts,
  reservations: Reservations,
  assistantId: string,
  input: Input,
  retitle: (at: { readonly threadId: string; readonly title: string; readonly fence: Fence }) => Promise<unknown>,
): ReturnType<ThreadService['branch']> {
  const { stores, surroundings } = parts;
  const { clock, random } = surroundings;
  const { threadId, userId, checkpointId } = input;
  const hold = { userId, kind: 'checkpoint_write' as const, assistantId };
  const toThreadId = newId(random);
  const source = await reservations.reserve({ ...hold, threadId }, async () => {
    const there = await stores.checkpoints.load({ threadId, ns: '', checkpointId });
    if (there === null) return { outcome: 'gone' as const };
    const copied = await stores.threads.copy({ fromThreadId: threadId, toThreadId, userId, now: clock.now() });
    if (copied === null) return { outcome: 'not_found' as const };
    const target = await reservations.reserve({ ...hold, threadId: toThreadId }, async ({ fence }) => {
      const back = await stores.checkpoints.rollback({ fence, threadId: toThreadId, checkpointId, now: clock.now() });
      if (back.outcome === 'fenced') return 0;
      const head = await stores.checkpoints.load({ threadId: toThreadId, ns: '', checkpointId });
      const facts = (head === null ? [] : idsOf(head.channels)).flatMap((hash, index): NewFact[] => [
        { key: `seeded:${index}:${hash}`, body: { kind: 'message', ns: '', message: { $m: hash } } },
      ]);
      if (facts.length > 0) await stores.log.append({ fence, threadId: toThreadId, facts, now: clock.now() });
      if (input.title !== undefined) await retitle({ threadId: toThreadId, title: input.title, fence });
      await input.copyFiles(toThreadId);
      return facts.length;
    });
    if (target.outcome !== 'done') return { outcome: 'busy' as const };
    const { title } = input;
    await stores.threads.update({
      threadId: toThreadId,
      userId,
      metadata: input.metadata,
      ...(title === undefined ? {} : { title }),
      touch: true,
      now: clock.now(),
    });
    return { outcome: 'branched' as const, threadId: toThreadId, messages: target.value };
  });
  return source.outcome === 'done' ? source.value : { outcome: source.outcome };
}

/** References of the conversation's messages, in order. */
function idsOf(channels: readonly { readonly name: string; readonly json: string }[]): string[] {
  const messages = channels.find(({ name }) => name === 'messages');
  const list = messages === undefined ? null : (JSON.parse(messages.json) as Json);
  if (!Array.isArray(list)) return [];
  return list.flatMap((entry: Json) => {
    const hash = (entry as { readonly $m?: unknown } | null)?.$m;
    return typeof hash === 'string' ? [hash] : [];
  });
}
