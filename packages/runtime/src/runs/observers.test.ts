import type { Run } from '@reindeer/protocol';
import { deferred, flush, verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { world } from '../testing/world.ts';

test(
  'during the drain hooks work and runs are told of; after it nobody hears of a run, however late it ends',
  verifies('GW-18'),
  async () => {
    const more = deferred();
    const late = deferred();
    const done: string[] = [];
    const told: Run[] = [];
    const ids = new Map<string, string>();
    const w = world({
      // The end of the third is being stored when the drain is over, and is heard of later.
      stores: (stores) => ({
        ...stores,
        runs: {
          ...stores.runs,
          finalize: async (input) => {
            const answer = await stores.runs.finalize(input);
            if (input.fence.runId === ids.get('thread-3')) await late.promise;
            return answer;
          },
        },
      }),
      script: {
        model: async (_messages, { run }) => {
          if (run.threadId === 'thread-2') await late.promise;
          else await more.promise;
          // What a hook of the agent awaits in the last step of a run, such as noting the conversation.
          await Promise.resolve();
          done.push(run.threadId);
          return { text: 'done' };
        },
      },
      hooks: { onFinished: (run) => void told.push(run), onAdmitted: () => {} },
    });
    await w.runtime.start();
    for (const threadId of ['thread-1', 'thread-2', 'thread-3'])
      ids.set(threadId, (await w.admitted({ threadId })).runId);
    await flush();
    const stopped = w.runtime.stop({ drainMs: 1_000, hardMs: 2_000 });
    more.resolve();
    await flush();
    expect(done).toEqual(['thread-1', 'thread-3']);
    expect(told.map(({ threadId }) => threadId)).toEqual(['thread-1']);
    for (let turn = 0; turn < 8; turn += 1) {
      await w.surroundings.clock.advance(500);
      await flush();
    }
    expect((await stopped).unfinished.map(({ threadId }) => threadId)).toEqual(['thread-2', 'thread-3']);
    // The memory is being flushed now.
    late.resolve();
    for (let turn = 0; turn < 40; turn += 1) {
      await w.surroundings.clock.advance(1_000);
      await flush();
    }
    expect(told.map(({ threadId }) => threadId)).toEqual(['thread-1']);
  },
);
