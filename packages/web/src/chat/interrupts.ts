import { type Dictionary, isDictionary, listOf, textOr } from './wire.ts';

/** The graph stopped to ask. */
export interface Interrupt {
  readonly id: string | null;
  /** Tool calls that wait for approval; null = another kind of question, answered with text. */
  readonly actions: readonly PendingAction[] | null;
  /** Milliseconds since 1970 after which an answer is taken as a refusal; null = never. */
  readonly expiresAt: number | null;
  readonly value: unknown;
}

export interface PendingAction {
  readonly name: string;
  readonly args: Dictionary;
  readonly description: string | null;
  readonly allowed: readonly ('approve' | 'edit' | 'reject')[];
}

export type Decision =
  | { readonly type: 'approve' }
  | { readonly type: 'edit'; readonly name: string; readonly args: Dictionary }
  | { readonly type: 'reject'; readonly message: string };

const ALL = ['approve', 'edit', 'reject'] as const;

/** Reads a list of interrupts, each `{id?, value}`; ones in a task map (`{taskId: [...]}`) are taken out of it. */
export function readInterrupts(value: unknown): readonly Interrupt[] {
  const entries = Array.isArray(value) ? value : isDictionary(value) ? Object.values(value).flatMap(listOf) : [];
  const seen = new Set<string>();
  const result: Interrupt[] = [];
  for (const entry of entries) {
    if (!isDictionary(entry)) continue;
    const id = textOr(entry.id, textOr(entry.interrupt_id, null));
    if (id !== null && seen.has(id)) continue;
    if (id !== null) seen.add(id);
    result.push({ id, actions: readActions(entry.value), expiresAt: readExpiry(entry.value), value: entry.value });
  }
  return result;
}

function readExpiry(value: unknown): number | null {
  const at = isDictionary(value) ? Date.parse(textOr(value.expires_at, '')) : Number.NaN;
  return Number.isNaN(at) ? null : at;
}

function readActions(value: unknown): readonly PendingAction[] | null {
  if (!isDictionary(value)) return null;
  const requests = listOf(value.actionRequests ?? value.action_requests).filter(isDictionary);
  if (requests.length === 0) return null;
  const configs = listOf(value.reviewConfigs ?? value.review_configs).filter(isDictionary);
  return requests.map((request, index) => {
    const name = textOr(request.name, textOr(request.action, ''));
    const own = configs[index];
    const config = own !== undefined && nameOf(own) === name ? own : configs.find((entry) => nameOf(entry) === name);
    const allowed = listOf(config?.allowedDecisions ?? config?.allowed_decisions);
    return {
      name,
      args: isDictionary(request.args) ? request.args : {},
      description: textOr(request.description, null),
      allowed: config === undefined ? ALL : ALL.filter((decision) => allowed.includes(decision)),
    };
  });
}

function nameOf(config: Dictionary): string {
  return textOr(config.actionName, textOr(config.action_name, ''));
}

/**
 * The value that resumes the graph. Several interrupts at once are answered by their ids, a single one directly.
 * @param answers one per interrupt, in their order: the decisions on its actions, or any value
 */
export function resumeValue(
  interrupts: readonly Interrupt[],
  answers: readonly (readonly Decision[] | string)[],
): unknown {
  const values = interrupts.map((_interrupt, index) => {
    const answer = answers[index] ?? '';
    return typeof answer === 'string' ? answer : { decisions: answer.map(toWire) };
  });
  if (interrupts.length === 1) return values[0];
  return Object.fromEntries(interrupts.map((interrupt, index) => [interrupt.id ?? String(index), values[index]]));
}

function toWire(decision: Decision): Dictionary {
  switch (decision.type) {
    case 'approve':
      return { type: 'approve' };
    case 'edit':
      return { type: 'edit', editedAction: { name: decision.name, args: decision.args } };
    case 'reject':
      return { type: 'reject', ...(decision.message === '' ? {} : { message: decision.message }) };
  }
}
