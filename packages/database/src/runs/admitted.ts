import { type Admission, NO_USAGE, type Run } from '@reindeer/protocol';

/** A run as it stands right after its admission, and as it will be read: nothing in it is shared with the admission. */
export function admittedRun(input: Admission, queued = false): Run {
  return {
    runId: input.runId,
    threadId: input.threadId,
    userId: input.userId,
    assistantId: input.assistantId,
    kind: input.kind,
    status: 'pending',
    queued,
    owner: queued ? null : input.owner,
    attempt: 0,
    acknowledged: false,
    multitaskStrategy: input.multitaskStrategy,
    onDisconnect: input.onDisconnect,
    crashPolicy: input.crashPolicy,
    idempotencyKey: input.idempotencyKey,
    payloadHash: input.payloadHash,
    request: JSON.parse(JSON.stringify(input.request)) as Run['request'],
    metadata: JSON.parse(JSON.stringify(input.metadata)) as Run['metadata'],
    cancelAction: null,
    cancelRequestedAt: null,
    checkpointBefore: null,
    error: null,
    stopReason: null,
    usage: NO_USAGE,
    createdAt: input.now,
    updatedAt: input.now,
    startedAt: null,
    endedAt: null,
  };
}
