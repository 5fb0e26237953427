import { isDictionary, textOr } from './wire.ts';

const CALLERS = ['lead_agent', 'subagent', 'middleware'] as const;

/** What the tokens of a model cost, where its price is known. */
export interface Cost {
  readonly amount: number;
  readonly currency: string;
}

/** Tokens of a chat. */
export interface Usage {
  readonly total: number;
  readonly input: number;
  readonly output: number;
  readonly runs: number;
  /** The one that used most comes first. */
  readonly models: readonly { readonly name: string; readonly tokens: number; readonly cost: Cost | null }[];
  readonly callers: readonly { readonly caller: (typeof CALLERS)[number]; readonly tokens: number }[];
}

export function readUsage(value: unknown): Usage {
  const usage = isDictionary(value) ? value : {};
  const models = isDictionary(usage.by_model) ? usage.by_model : {};
  const callers = isDictionary(usage.by_caller) ? usage.by_caller : {};
  return {
    total: numberOf(usage.total_tokens),
    input: numberOf(usage.total_input_tokens),
    output: numberOf(usage.total_output_tokens),
    runs: numberOf(usage.total_runs),
    models: Object.entries(models)
      .map(([name, value]) => {
        const share = isDictionary(value) ? value : {};
        return { name, tokens: numberOf(share.tokens), cost: readCost(share.cost) };
      })
      .toSorted((left, right) => right.tokens - left.tokens),
    callers: CALLERS.map((caller) => ({ caller, tokens: numberOf(callers[caller]) })),
  };
}

function readCost(value: unknown): Cost | null {
  if (!isDictionary(value) || typeof value.amount !== 'number') return null;
  return { amount: value.amount, currency: textOr(value.currency, '') };
}

const numberOf = (value: unknown): number => (typeof value === 'number' ? value : 0);
