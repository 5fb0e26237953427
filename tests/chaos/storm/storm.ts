import { startScriptedProvider } from '@reindeer/scripted';
import { cluster } from '../../support/cluster.ts';
import { allFacts, effectsOf, type MessageRow } from '../history.ts';
import { seeded } from '../round.ts';
import { type ClientCounts, noCounts, StormClient } from './client.ts';
import { type Disturbances, disturb, noDisturbances } from './disturber.ts';
import { checkThread, type RunRow, type Seen, type StormVerdict, type ThreadHistory } from './history.ts';
import { Instance } from './instances.ts';
import { EFFECTS, stormScript } from './work.ts';

export interface StormOptions {
  readonly seed: number;
  readonly seconds: number;
  readonly withRedis: boolean;
  readonly clients?: number;
  readonly instances?: number;
  readonly threads?: number;
  readonly note?: (text: string) => void;
}

export interface StormResult {
  readonly lost: readonly string[];
  readonly doubled: readonly string[];
  readonly stuck: readonly string[];
  readonly wrong: readonly string[];
  readonly disturbances: Disturbances;
  readonly clients: ClientCounts;
  readonly runs: Readonly<Record<string, number>>;
  readonly finishedTools: number;
  readonly unknownTools: number;
  /** The history of the first thread with a fault, as lines; empty without one. */
  readonly offending: readonly string[];
  readonly seconds: number;
}

/** Short ones, so that many takeovers fit into a minute. */
const LEASE_S = 5;
const GRACE_S = 1;
/** From the end of the healing on: a takeover and its sweep, and runs that wait for each other on a loaded machine. */
const SETTLE_MS = 60_000;

const CONFIG = `run_ownership:
  lease_seconds: ${LEASE_S}
  grace_seconds: ${GRACE_S}
server:
  heartbeat_seconds: 1
runs:
  drain_timeout: 1
title:
  enabled: false
`;

/**
 * One storm: instances on one Postgres, with or without Redis, many clients, and disturbances for as long as asked. Then everything is healed, all
 * must end, and the history of each thread is checked against what clients were told.
 */
export async function storm(options: StormOptions): Promise<StormResult> {
  const { seed, seconds, withRedis, note = () => undefined } = options;
  const begun = performance.now();
  const random = seeded(seed);
  const provider = await startScriptedProvider({ script: stormScript });
  const together = await cluster({ openAiUrl: provider.openAiUrl, withRedis, config: CONFIG });
  try {
    const instances = Array.from({ length: options.instances ?? 3 }, (_, n) => new Instance(together, `i${n + 1}`));
    // One after the other: the first one makes the tables.
    for (const instance of instances) await instance.start();
    const untilMs = performance.now() + seconds * 1_000;
    let lateMs = Number.POSITIVE_INFINITY;
    const count = noCounts();
    const disturbances = noDisturbances();
    const seen = new Map<string, Seen[]>();
    const stuck: string[] = [];
    const threads = Array.from({ length: options.threads ?? 20 }, (_, n) => `storm-${seed}-${n + 1}`);
    await createThreads(instances[0]?.url ?? '', threads);
    const clients = Array.from(
      { length: options.clients ?? 50 },
      (_, n) =>
        new StormClient({
          name: `c${n + 1}`,
          random: seeded(seed * 1_000 + n),
          urls: () => instances.map(({ url }) => url),
          threads,
          untilMs,
          isLate: () => performance.now() > lateMs,
          count,
          onSeen: (threadId, one) => seen.set(threadId, [...(seen.get(threadId) ?? []), one]),
          onStuck: (what) => stuck.push(what),
        }),
    );
    const working = Promise.all(clients.map((client) => client.work()));
    await disturb({
      cluster: together,
      instances,
      random,
      pauseMs: (LEASE_S + GRACE_S + 1) * 1_000,
      untilMs,
      count: disturbances,
      note: (text) => note(`${((performance.now() - begun) / 1000).toFixed(1)} s: ${text}`),
    });
    lateMs = performance.now() + SETTLE_MS;
    note('everything is healed');
    await working;
    const base = instances.find(({ state }) => state === 'up')?.url ?? '';
    const verdicts: StormVerdict[] = [];
    let offending: string[] = [];
    for (const threadId of threads) {
      const history = await untilSettled(base, threadId, seen.get(threadId) ?? [], lateMs);
      const verdict = checkThread(history);
      verdicts.push(verdict);
      const faults = [...verdict.lost, ...verdict.doubled, ...verdict.stuck, ...verdict.wrong];
      if (faults.length > 0 && offending.length === 0) offending = describe(history, faults);
    }
    const all = (kind: 'lost' | 'doubled' | 'stuck' | 'wrong') => verdicts.flatMap((verdict) => verdict[kind]);
    const refused = provider.requests().filter((request) => (request.status ?? 0) >= 400).length;
    const runs: Record<string, number> = {};
    for (const verdict of verdicts)
      for (const [status, times] of Object.entries(verdict.runsByStatus)) runs[status] = (runs[status] ?? 0) + times;
    return {
      lost: all('lost'),
      doubled: all('doubled'),
      stuck: [...all('stuck'), ...stuck],
      wrong: [
        ...all('wrong'),
        ...instances.flatMap(({ unexpected }) => unexpected),
        ...(refused === 0 ? [] : [`the provider refused ${refused} requests as invalid`]),
      ],
      disturbances,
      clients: count,
      runs,
      finishedTools: verdicts.reduce((sum, { finishedTools }) => sum + finishedTools, 0),
      unknownTools: verdicts.reduce((sum, { unknownTools }) => sum + unknownTools, 0),
      offending,
      seconds: Math.round((performance.now() - begun) / 1000),
    };
  } finally {
    await together.stop();
    await provider.close();
  }
}

const json = async <T>(url: string, init?: RequestInit): Promise<T> => {
  const response = await fetch(url, { ...init, signal: AbortSignal.timeout(20_000) });
  if (!response.ok) throw new Error(`${url}: ${response.status} ${await response.text()}`);
  return (await response.json()) as T;
};

const post = (body: unknown): RequestInit => ({
  method: 'POST',
  headers: { 'content-type': 'application/json' },
  body: JSON.stringify(body),
});

async function createThreads(base: string, threads: readonly string[]): Promise<void> {
  for (const threadId of threads) await json(`${base}/api/threads`, post({ thread_id: threadId }));
}

/** A thread's history once all its runs have ended, or as it is when the time is up. */
async function untilSettled(
  base: string,
  threadId: string,
  seen: readonly Seen[],
  untilMs: number,
): Promise<ThreadHistory> {
  const at = `${base}/api/threads/${threadId}`;
  for (;;) {
    const runs = await json<RunRow[]>(`${at}/runs?limit=1000`);
    const { status } = await json<{ status: string }>(at);
    const settled = status !== 'busy' && runs.every(({ acknowledged }) => acknowledged);
    if (!settled && performance.now() < untilMs) {
      await new Promise((resolve) => setTimeout(resolve, 300));
      continue;
    }
    const state = await json<{ values: { messages?: MessageRow[] } }>(`${at}/state`);
    return {
      threadId,
      status,
      runs,
      seen,
      facts: await allFacts(base, threadId),
      messages: state.values.messages ?? [],
      effects: await effectsOf(base, threadId, EFFECTS),
    };
  }
}

/** What went wrong on a thread, and everything that is known of it. */
function describe(
  { threadId, runs, facts, messages, effects, seen }: ThreadHistory,
  faults: readonly string[],
): string[] {
  const text = (value: unknown) => JSON.stringify(value).slice(0, 400);
  return [
    `thread ${threadId}`,
    ...faults.map((fault) => `  ✗ ${fault}`),
    ...runs.map((run) => `  run ${text(run)}`),
    ...facts.map(({ seq, run_id, content }) => `  fact ${seq} ${run_id?.slice(0, 8) ?? '-'} ${text(content)}`),
    ...messages.map((message) => `  message ${text(message)}`),
    `  effects ${effects.join(' ')}`,
    ...seen.map(
      (one) => `  seen ${text({ ...one, texts: one.texts === null ? null : Object.fromEntries(one.texts) })}`,
    ),
  ];
}
