import type { AttemptContext, ModelShare, Run, TokenUsage, UsageCaller, UsageShares } from '@reindeer/protocol';
import type { RunParts } from './ports.ts';

const MODELS = 32;
const SOURCES = 10_000;
const PAGE = 500;
const PAGE_BYTES = 4 * 1024 * 1024;

type Counted = Parameters<AttemptContext['countUsage']>[0];

/** Adds up what a run uses, by model and by who asked. A known source counts once (RE-09). */
export class UsageMeter {
  readonly #models = new Map<string, { -readonly [K in keyof ModelShare]: ModelShare[K] }>();
  readonly #callers = new Map<UsageCaller, number>();
  readonly #sources = new Set<string>();
  #input = 0;
  #output = 0;
  #calls = 0;

  add(counted: Counted): void {
    const { inputTokens, outputTokens, model, caller = 'lead_agent', source } = counted;
    if (source !== undefined) {
      if (this.#sources.has(source)) return;
      if (this.#sources.size < SOURCES) this.#sources.add(source);
    }
    this.#input += inputTokens;
    this.#output += outputTokens;
    this.#calls += 1;
    const name = this.#models.has(model) || this.#models.size < MODELS - 1 ? model : 'other';
    const of: { -readonly [K in keyof ModelShare]: ModelShare[K] } = this.#models.get(name) ?? {
      inputTokens: 0,
      outputTokens: 0,
      calls: 0,
    };
    of.inputTokens += inputTokens;
    of.outputTokens += outputTokens;
    of.calls += 1;
    for (const key of ['cacheReadTokens', 'reasoningTokens'] as const)
      if ((counted[key] ?? 0) > 0) of[key] = (of[key] ?? 0) + (counted[key] ?? 0);
    this.#models.set(name, of);
    this.#callers.set(caller, (this.#callers.get(caller) ?? 0) + inputTokens + outputTokens);
  }

  total(): TokenUsage {
    const by: UsageShares = {
      models: Object.fromEntries([...this.#models].map(([name, of]) => [name, { ...of }])),
      callers: Object.fromEntries(this.#callers),
    };
    return {
      inputTokens: this.#input,
      outputTokens: this.#output,
      totalTokens: this.#input + this.#output,
      modelCalls: this.#calls,
      ...(this.#calls === 0 ? {} : { by }),
    };
  }
}

/** As LangChain has it on a message. */
interface StoredUsage {
  readonly input_tokens?: unknown;
  readonly output_tokens?: unknown;
  readonly input_token_details?: { readonly cache_read?: unknown } | null;
  readonly output_token_details?: { readonly reasoning?: unknown } | null;
}

/**
 * What the earlier attempts of a run used, from the messages that they left in the log: the process that counted is gone. Calls whose
 * answer is no message of the log (titles, summaries) are not among them.
 *
 * @param attempts how many have ended; 0 = nothing is read
 */
export async function earlierUsage(parts: Pick<RunParts, 'stores'>, run: Run, attempts: number): Promise<UsageMeter> {
  const meter = new UsageMeter();
  if (attempts < 1) return meter;
  const { threadId, runId } = run;
  let afterSeq = 0;
  for (;;) {
    const page = await parts.stores.log.read({ threadId, runId, afterSeq, limit: PAGE, maxBytes: PAGE_BYTES });
    const last = page.facts.at(-1);
    if (last === undefined) return meter;
    for (const { body } of page.facts) {
      if (body.kind !== 'message' || !('type' in body.message) || body.message.type !== 'ai') continue;
      const usage = body.message.usage_metadata as StoredUsage | undefined;
      if (usage === undefined || usage === null) continue;
      const details = body.message.response_metadata as { model_name?: unknown } | undefined;
      meter.add({
        inputTokens: numberOf(usage.input_tokens),
        outputTokens: numberOf(usage.output_tokens),
        cacheReadTokens: numberOf(usage.input_token_details?.cache_read),
        reasoningTokens: numberOf(usage.output_token_details?.reasoning),
        model: typeof details?.model_name === 'string' ? details.model_name : 'unknown',
        caller: body.ns === '' ? 'lead_agent' : 'subagent',
        source: `message:${String(body.message.id ?? '')}`,
      });
    }
    afterSeq = last.seq;
  }
}

const numberOf = (value: unknown): number => (typeof value === 'number' && Number.isFinite(value) ? value : 0);
