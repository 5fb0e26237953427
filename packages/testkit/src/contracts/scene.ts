import type { Admission, Fence, NewFact, Packed, Run, Stores, TerminalStatus } from '@reindeer/protocol';
import { NO_USAGE } from '@reindeer/protocol';
import { afterEach, expect } from 'vitest';
import { TEST_EPOCH } from '../clock.ts';
import { makeAdmission } from '../runs.ts';

/** An open database for one test. `a` and `b` are two "processes" on it; the same handle twice where only one may be open. */
export interface OpenedStores {
  readonly a: Stores;
  readonly b: Stores;
  close(): Promise<void>;
}

/** Opens a fresh, empty database. */
export type StoresFactory = () => Promise<OpenedStores>;

/** Milliseconds that a lease of these suites lasts. */
export const LEASE = 12_000;
export const GRACE = 3_000;
export const T0 = TEST_EPOCH;

/** What the suites need again and again: valid inputs with short overrides, and a picture of everything observable. */
export class Scene {
  readonly stores: OpenedStores;
  #count = 0;

  constructor(stores: OpenedStores) {
    this.stores = stores;
  }

  get a(): Stores {
    return this.stores.a;
  }
  get b(): Stores {
    return this.stores.b;
  }

  /** A fresh id with a readable beginning. */
  id(kind = 'id'): string {
    this.#count += 1;
    return `${kind}-${this.#count}`;
  }

  admission(part: Partial<Admission> = {}): Admission {
    const now = part.now ?? T0;
    return makeAdmission({
      runId: this.id('run'),
      payloadHash: 'payload',
      owner: 'owner-a',
      token: this.id('token'),
      leaseExpiresAt: now + LEASE,
      now,
      ...part,
    });
  }

  /** Admits and answers the run with the fence it is held under. */
  async admit(part: Partial<Admission> = {}, stores: Stores = this.a): Promise<{ run: Run; fence: Fence }> {
    const input = this.admission(part);
    const result = await stores.runs.admit(input);
    if (result.outcome !== 'admitted')
      throw new Error(`The scene expected an admission, but got ${JSON.stringify(result)}`);
    return { run: result.run, fence: { runId: input.runId, token: input.token } };
  }

  async start(fence: Fence, now = T0): Promise<void> {
    const result = await this.a.runs.start({ fence, checkpointBefore: '', now });
    expect(result.outcome).toBe('started');
  }

  /** An admitted and started run. */
  async running(part: Partial<Admission> = {}): Promise<{ run: Run; fence: Fence }> {
    const admitted = await this.admit(part);
    await this.start(admitted.fence, part.now);
    return admitted;
  }

  finalize(
    fence: Fence,
    status: TerminalStatus,
    part: { error?: string; unlessCancelled?: boolean; now?: number } = {},
  ) {
    return this.a.runs.finalize({
      fence,
      status,
      error: part.error ?? null,
      stopReason: null,
      usage: NO_USAGE,
      unlessCancelled: part.unlessCancelled ?? status === 'success',
      now: part.now ?? T0,
    });
  }

  /** Admits, starts and finalizes: an acknowledged run. */
  async ended(status: TerminalStatus, part: Partial<Admission> = {}): Promise<{ run: Run; fence: Fence }> {
    const { fence } = await this.running(part);
    const result = await this.finalize(fence, status, part.now === undefined ? {} : { now: part.now });
    if (result.outcome !== 'finalized') throw new Error(`The scene could not end a run: ${result.outcome}`);
    return { run: result.run, fence };
  }

  claim(part: Partial<Parameters<Stores['runs']['claimOrphans']>[0]> = {}, stores: Stores = this.b) {
    const now = part.now ?? T0;
    return stores.runs.claimOrphans({
      owner: 'owner-b',
      tokens: [this.id('token'), this.id('token'), this.id('token')],
      leaseExpiresAt: now + LEASE,
      graceMs: GRACE,
      deadOwners: [],
      skipRunIds: [],
      now,
      ...part,
    });
  }

  fact(key: string, data = key): NewFact {
    return { key, body: { kind: 'custom', ns: '', data } };
  }

  /** All facts of a thread as `seq kind …`, for short comparisons. */
  async history(threadId = 'thread', stores: Stores = this.a): Promise<readonly string[]> {
    const { facts } = await stores.log.read({ threadId, runId: null, afterSeq: 0, limit: 10_000, maxBytes: 1e9 });
    expect(facts.map((fact) => fact.seq)).toEqual(facts.map((_, index) => index + 1));
    return facts.map(({ body, runId }) => {
      switch (body.kind) {
        case 'run':
          return `${runId} ${body.status}${body.terminal ? ' end' : ''} ${body.attempt}`;
        case 'tool-started':
          return `${runId} ${body.name} started ${body.attempt}`;
        case 'tool-finished':
          return `${runId} ${body.name} finished ${body.outcome}`;
        case 'custom':
          return `${runId} ${JSON.stringify(body.data)}`;
        default:
          return `${runId} ${body.kind}`;
      }
    });
  }

  /** Everything that can be observed of a thread. Equal before and after = the call changed nothing. */
  async picture(threadId = 'thread', stores: Stores = this.a): Promise<object> {
    const [active, listed, log, unfinished, thread, head, checkpoints] = await Promise.all([
      stores.runs.active(threadId),
      stores.runs.list({ threadId, userId: 'user', status: null, limit: 1000, offset: 0 }),
      stores.log.read({ threadId, runId: null, afterSeq: 0, limit: 10_000, maxBytes: 1e9 }),
      stores.journal.unfinished(threadId),
      stores.threads.get({ threadId, userId: 'user' }),
      stores.checkpoints.load({ threadId, ns: '', checkpointId: null }),
      stores.checkpoints.list({ threadId, ns: null, checkpointId: null, before: null, limit: null, filter: {} }),
    ]);
    return structuredClone({ active, listed, log, unfinished, thread, head, checkpoints });
  }
}

/** Opens a scene per test and closes its database afterwards, also when the test fails. */
export function scenes(factory: StoresFactory): () => Promise<Scene> {
  const open: OpenedStores[] = [];
  afterEach(async () => {
    for (const stores of open.splice(0)) await stores.close();
  });
  return async () => {
    const stores = await factory();
    open.push(stores);
    return new Scene(stores);
  };
}

export const packed = (value: unknown): Packed => ({ json: JSON.stringify(value), messages: [] });

/** One checkpoint with one channel, as a saver would put it. */
export function checkpointPut(
  fence: Fence | null,
  checkpointId: string,
  value: unknown = checkpointId,
  threadId = 'thread',
) {
  return {
    fence,
    threadId,
    ns: '',
    checkpointId,
    parentId: null,
    checkpoint: JSON.stringify({ v: 4, id: checkpointId, channel_versions: { text: checkpointId } }),
    metadata: JSON.stringify({ source: 'loop', step: 1 }),
    channels: [{ name: 'text', version: checkpointId, value: packed(value) }],
    facts: [
      {
        key: `checkpoint::${checkpointId}`,
        body: { kind: 'checkpoint', ns: '', checkpointId, parentId: null, source: 'loop', step: 1 } as const,
      },
    ],
    now: T0,
  };
}
