import type { Fact, Feedback, JsonObject, ModelShare, Run } from '@reindeer/protocol';
import type { Price, Prices } from '../prices.ts';
import { attributionOf, delegatedUsage, type Plan, planAfter } from './attribution.ts';
import { notFound } from './errors.ts';
import type { HttpParts } from './parts.ts';
import { messageView } from './views.ts';

const RUNS = 1_000;
const PAGE = 200;
/** Messages behind a page in which results of its calls are looked for. */
const RESULTS = 50;
/** Pages of the log that one answer may read; beyond them it is short, and its cursor goes on from there. */
const MOST_PAGES = 50;

type Thread = { readonly threadId: string; readonly userId: string };

/**
 * Runs whose answers another run replaced: the one that was regenerated or edited, and what came after it until then. A replacement that
 * failed and was taken back replaces nothing.
 *
 * @param runs of one thread, newest first
 */
export function supersededRuns(runs: readonly Run[]): ReadonlySet<string> {
  const hidden = new Set<string>();
  runs.forEach((run, index) => {
    const target = run.metadata.regenerate_from_run_id;
    if (typeof target !== 'string') return;
    if (run.acknowledged && run.status !== 'success' && run.metadata.replay_kind === 'edit') return;
    const at = runs.findIndex((other) => other.runId === target);
    if (at > index) for (const older of runs.slice(index + 1, at + 1)) hidden.add(older.runId);
  });
  return hidden;
}

/** Sequences of facts that a run replaced which are not of runs of this thread, as in a branch. */
export function supersededFacts(runs: readonly Run[]): (seq: number) => boolean {
  const ranges = runs.flatMap(({ metadata, acknowledged, status }) => {
    const { regenerate_from_seq: from, regenerate_to_seq: to } = metadata;
    const undone = acknowledged && status !== 'success' && metadata.replay_kind === 'edit';
    return typeof from === 'number' && typeof to === 'number' && !undone ? [{ from, to }] : [];
  });
  return (seq) => ranges.some(({ from, to }) => seq >= from && seq <= to);
}

/** All runs of a thread that an answer may speak of, newest first; null = no such thread. */
export async function runsOf(
  parts: Pick<HttpParts, 'runs' | 'threads'>,
  thread: Thread,
): Promise<readonly Run[] | null> {
  if ((await parts.threads.get(thread)) === null) return null;
  return await parts.runs.list({ ...thread, status: null, limit: RUNS, offset: 0 });
}

export interface MessagePage {
  readonly rows: readonly JsonObject[];
  readonly hasMore: boolean;
  /** null = there is nothing before. */
  readonly nextBefore: number | null;
}

/**
 * One page of what the user sees: oldest first, full unless there is nothing more, without runs that were replaced, with feedback
 * (API-09). `inherited`: the message came with the branch or was written into the state, so no run of this thread can be asked about it.
 * What is left out is skipped while reading, so that a page is never short because of it.
 */
export async function messagePage(
  parts: Pick<HttpParts, 'runs' | 'threads' | 'feedback'>,
  input: Thread & { readonly before: number | null; readonly limit: number },
): Promise<MessagePage> {
  const { threadId, userId, limit } = input;
  const [runs, feedback] = await Promise.all([runsOf(parts, input), parts.feedback.list({ threadId, runId: null })]);
  if (runs === null) throw notFound('thread', threadId);
  const hidden = supersededRuns(runs);
  const own = new Set(runs.map((run) => run.runId));
  const isOwn = async (runId: string | null): Promise<boolean> => {
    if (runId === null || own.has(runId)) return runId !== null;
    // Only a thread of very many runs has some that are not in the list.
    if (runs.length < RUNS || (await parts.runs.get({ threadId, userId, runId })) === null) return false;
    own.add(runId);
    return true;
  };
  const isReplaced = supersededFacts(runs);
  const mine = new Map(feedback.filter((one) => one.userId === userId).map((one) => [one.runId, one]));
  const delegated = new Map<string, JsonObject>();
  const rows: JsonObject[] = [];
  let { before } = input;
  if (before !== null) {
    // The results of calls at the end of this page stand on the page after it.
    const newer = { threadId, userId, runId: null, before: null, after: before - 1, limit: RESULTS };
    const page = await parts.threads.messages(newer);
    for (const [key, usage] of delegatedUsage(page?.facts ?? [])) delegated.set(key, usage);
  }
  let hasMore = true;
  let last: number | null = null;
  for (let pages = 0; hasMore && rows.length < limit && pages < MOST_PAGES; pages += 1) {
    const page = await parts.threads.messages({ threadId, userId, runId: null, before, after: null, limit: PAGE });
    if (page === null) throw notFound('thread', threadId);
    const views: { readonly seq: number; readonly view: JsonObject }[] = [];
    // Results stand behind the message that asked for them: in this part of the log, or in the newer one that was read before.
    for (const [key, usage] of delegatedUsage(page.facts)) delegated.set(key, usage);
    // Before the first message there was no plan; before an older part of the log nobody knows here.
    let plan: Plan = page.hasMore ? null : new Map();
    for (const fact of page.facts) {
      if ((fact.runId !== null && hidden.has(fact.runId)) || isReplaced(fact.seq)) continue;
      const view = withFeedback(fact, mine.get(fact.runId ?? ''));
      if (view === null) continue;
      const message = view.content as JsonObject;
      const attribution = attributionOf(message, fact.runId, delegated, plan);
      plan = planAfter(message, plan);
      const metadata = attribution === null ? view.metadata : { token_usage_attribution: attribution };
      const inherited = !(await isOwn(fact.runId));
      views.push({ seq: fact.seq, view: { ...view, inherited, ...(metadata === undefined ? {} : { metadata }) } });
    }
    const taken = views.slice(-(limit - rows.length));
    rows.unshift(...taken.map(({ view }) => view));
    const left = views.length > taken.length;
    hasMore = page.hasMore || left;
    last = (left ? taken[0]?.seq : page.facts[0]?.seq) ?? null;
    before = last;
    if (page.facts.length === 0) hasMore = false;
  }
  return { rows, hasMore, nextBefore: hasMore ? last : null };
}

function withFeedback(fact: Fact, feedback: Feedback | undefined): JsonObject | null {
  const view = messageView(fact);
  if (view === null || feedback === undefined) return view;
  const message = view.content as JsonObject;
  const isAnswer =
    feedback.messageId === null
      ? message.type === 'ai' && (!Array.isArray(message.tool_calls) || message.tool_calls.length === 0)
      : message.id === feedback.messageId;
  if (!isAnswer) return view;
  const { feedbackId, rating, comment } = feedback;
  return { ...view, feedback: { feedback_id: feedbackId, rating, comment } };
}

/**
 * Tokens of a thread by model and by who asked (OBS-1). Runs without shares count as the lead agent's.
 *
 * @param prices by the provider's name of the model
 */
export function threadUsage(threadId: string, runs: readonly Run[], prices: Prices = new Map()): JsonObject {
  const models: Record<string, JsonObject & { tokens: number; runs: number }> = {};
  const shares = new Map<string, ModelShare[]>();
  const callers = { lead_agent: 0, subagent: 0, middleware: 0 };
  const total = { input: 0, output: 0, all: 0 };
  for (const { usage } of runs) {
    total.input += usage.inputTokens;
    total.output += usage.outputTokens;
    total.all += usage.totalTokens;
    for (const [name, share] of Object.entries(usage.by?.models ?? {})) {
      const of = Object.hasOwn(models, name) ? models[name] : undefined;
      models[name] = {
        tokens: (of?.tokens ?? 0) + share.inputTokens + share.outputTokens,
        runs: (of?.runs ?? 0) + 1,
      };
      shares.set(name, [...(shares.get(name) ?? []), share]);
    }
    for (const caller of ['lead_agent', 'subagent', 'middleware'] as const)
      callers[caller] +=
        usage.by === undefined && caller === 'lead_agent' ? usage.totalTokens : (usage.by?.callers[caller] ?? 0);
  }
  for (const [name, of] of shares)
    models[name] = { tokens: 0, runs: 0, ...models[name], ...detailsOf(of, prices.get(name)) };
  return {
    thread_id: threadId,
    total_tokens: total.all,
    total_input_tokens: total.input,
    total_output_tokens: total.output,
    total_runs: runs.length,
    by_model: models,
    by_caller: callers,
    context_usage: null,
  };
}

/** What of a model's tokens came from its cache or was thought, and what it all cost; only what is known. */
function detailsOf(shares: readonly ModelShare[], price: Price | undefined): JsonObject {
  const sum = (of: (share: ModelShare) => number): number => shares.reduce((all, share) => all + of(share), 0);
  const cached = sum((share) => share.cacheReadTokens ?? 0);
  const thought = sum((share) => share.reasoningTokens ?? 0);
  const amount =
    price === undefined
      ? 0
      : ((sum((share) => share.inputTokens) - cached) * price.input +
          cached * price.cached +
          sum((share) => share.outputTokens) * price.output) /
        1_000_000;
  return {
    ...(cached === 0 ? {} : { cache_read_tokens: cached }),
    ...(thought === 0 ? {} : { reasoning_tokens: thought }),
    ...(price === undefined ? {} : { cost: { amount: Math.round(amount * 1e6) / 1e6, currency: price.currency } }),
  };
}
