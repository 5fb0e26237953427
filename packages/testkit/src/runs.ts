import { type Admission, EMPTY_REQUEST, newRun, type Run } from '@reindeer/protocol';

/** A run at work in its first attempt, for tests of what only looks at a run. Stores make their own, from admissions. */
export const makeRun = (part: Partial<Run> = {}): Run =>
  newRun({
    runId: 'run-1',
    threadId: 'thread-1',
    userId: 'default',
    assistantId: 'lead_agent',
    status: 'running',
    owner: 'owner',
    attempt: 1,
    request: { ...EMPTY_REQUEST, streamModes: ['values'] },
    createdAt: 0,
    updatedAt: 0,
    startedAt: 0,
    ...part,
  });

/** What a store is asked to take in: a run under the token that is named after it, unless the test says otherwise. */
export const makeAdmission = (part: Partial<Admission> & Pick<Admission, 'runId'>): Admission => ({
  threadId: 'thread',
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
  owner: 'owner',
  token: `token-${part.runId}`,
  leaseExpiresAt: 10,
  now: 1,
  ...part,
});
