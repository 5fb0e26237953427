import { type Admission, newRun, type Run } from '@reindeer/protocol';

/** A run as it stands right after its admission, and as it will be read: nothing in it is shared with the admission. */
export const admittedRun = (input: Admission, queued = false): Run =>
  newRun({
    runId: input.runId,
    threadId: input.threadId,
    userId: input.userId,
    assistantId: input.assistantId,
    kind: input.kind,
    queued,
    owner: queued ? null : input.owner,
    multitaskStrategy: input.multitaskStrategy,
    onDisconnect: input.onDisconnect,
    crashPolicy: input.crashPolicy,
    idempotencyKey: input.idempotencyKey,
    payloadHash: input.payloadHash,
    request: JSON.parse(JSON.stringify(input.request)) as Run['request'],
    metadata: JSON.parse(JSON.stringify(input.metadata)) as Run['metadata'],
    createdAt: input.now,
  });
