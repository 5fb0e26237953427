import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { EMPTY_REQUEST, type Fence, NO_LOG, NO_PROBE, NO_USAGE } from '@reindeer/protocol';
import { openSqlite } from './open.ts';

/**
 * A process for `durability.real.test.ts`: opens the folder, works in four threads at once, and prints a line for each thing that it was
 * told is stored. It never stops by itself.
 */
const [folder = '', mode = 'write'] = process.argv.slice(2);
const say = (line: object): void => void process.stdout.write(`${JSON.stringify(line)}\n`);

const stores = await openSqlite({
  folder,
  surroundings: {
    clock: {
      now: () => Date.now(),
      monotonic: () => performance.now(),
      sleep: (milliseconds, signal) => sleep(milliseconds, undefined, signal === undefined ? {} : { signal }),
    },
    random: { uuid: () => randomUUID(), next: () => Math.random() },
    probe: NO_PROBE,
    logger: NO_LOG,
  },
});
say({ opened: stores.identity });

async function work(threadId: string): Promise<void> {
  for (;;) {
    const now = Date.now();
    const runId = `${threadId}-${randomUUID()}`;
    const fence: Fence = { runId, token: randomUUID() };
    const admission = await stores.runs.admit({
      ...fence,
      threadId,
      userId: 'user',
      assistantId: 'agent',
      kind: 'run',
      multitaskStrategy: 'reject',
      onDisconnect: 'continue',
      crashPolicy: 'resume',
      idempotencyKey: null,
      payloadHash: '',
      request: EMPTY_REQUEST,
      metadata: {},
      createThread: true,
      owner: stores.identity.owner,
      leaseExpiresAt: now + 60_000,
      now,
    });
    if (admission.outcome !== 'admitted') throw new Error(`Not admitted: ${admission.outcome}`);
    say({ admitted: runId, threadId });
    await stores.runs.start({ fence, checkpointBefore: '', now });
    const key = { threadId, messageId: `message-${runId}`, index: 0 };
    await stores.journal.begin({ fence, key, toolCallId: null, name: 'tool', attempt: 1, again: false, now });
    say({ began: key.messageId, threadId });
    const data = `fact-${runId}`;
    await stores.log.append({ fence, threadId, facts: [{ key: data, body: { kind: 'custom', ns: '', data } }], now });
    say({ appended: data, threadId });
    await stores.journal.finish({ fence, key, outcome: 'ok', result: { json: '"result"', messages: [] }, now });
    say({ finished: key.messageId, threadId });
    await stores.runs.finalize({
      fence,
      status: 'success',
      error: null,
      stopReason: null,
      usage: NO_USAGE,
      unlessCancelled: true,
      now,
    });
    say({ ended: runId, threadId });
  }
}

if (mode === 'write') await Promise.all(['a', 'b', 'c', 'd'].map(work));
