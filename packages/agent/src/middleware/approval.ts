import { ToolMessage } from '@langchain/core/messages';
import { interrupt } from '@langchain/langgraph';
import type { Clock } from '@reindeer/protocol';
import { copyAiMessage } from '../loop/messages.ts';
import { defineMiddleware, type HookUpdate, type Middleware, type ToolCall } from '../loop/middleware.ts';
import { lastAi, pendingCalls, toolMessageId } from '../loop/route.ts';
import { runOptions } from '../loop/run-options.ts';

export const APPROVAL = 'approval';

/** Every tool. */
const ALL = '*';
const DECISIONS = ['approve', 'edit', 'reject'] as const;
const MAX_NAMES = 200;

export interface ApprovalSettings {
  /** Tools that a person must approve; `*` = all. */
  readonly tools: readonly string[];
  /** Milliseconds in which a question may be answered; null = for ever. */
  readonly expireAfterMs: number | null;
}

const EXPIRED = 'the time to approve it had run out; ask again if it is still needed';

/** What a person is asked; the shape is that of LangChain's human-in-the-loop middleware, which pages and clients know. */
interface Question {
  readonly actionRequests: readonly {
    readonly name: string;
    readonly args: Record<string, unknown>;
    readonly description: string;
  }[];
  readonly reviewConfigs: readonly { readonly actionName: string; readonly allowedDecisions: typeof DECISIONS }[];
  /** ISO time after which an answer is taken as a refusal. */
  readonly expires_at?: string;
  /** What was wrong with the last answer. */
  readonly error?: string;
}

type Decision =
  | { readonly type: 'approve' }
  | { readonly type: 'edit'; readonly editedAction: { readonly name: string; readonly args: Record<string, unknown> } }
  | { readonly type: 'reject'; readonly message?: string };

/**
 * Asks a person before tools run. Which tools is set by the operator; a run may ask for more with `interrupt_on` (a list of
 * names, or an object of name → true), never for fewer. Who was asked about a tool is always heard: also when the answering run does
 * not name it, or the operator has taken it off the list meanwhile.
 *
 * Each decision counts for its own call: approved and edited ones run, rejected ones are answered with the reason, and the
 * calls keep their places. An answer that does not fit the question is asked for again, with what is wrong.
 *
 * A question may expire: an answer that comes later is taken as a refusal, whatever it says, and the model is told why. The time counts from
 * when the person was first asked and stands in the question as `expires_at`.
 */
export function approvalMiddleware(settings: ApprovalSettings, clock: Clock): Middleware {
  const { tools, expireAfterMs } = settings;
  return defineMiddleware({
    name: APPROVAL,
    afterModel(state, runtime): HookUpdate {
      const last = lastAi(state.messages);
      const calls = last?.message.tool_calls ?? [];
      if (last === null || calls.length === 0) return undefined;
      const names = new Set([...tools, ...asked(runOptions(runtime).interrupt_on), ...(runtime.asked ?? [])]);
      if (names.size === 0) return undefined;
      const unreadable = new Set((last.message.invalid_tool_calls ?? []).map((call) => call.id));
      const open = pendingCalls(state.messages)
        .map(({ index }) => index)
        .filter(
          (index) => !unreadable.has(calls[index]?.id) && (names.has(ALL) || names.has(calls[index]?.name ?? '')),
        );
      if (open.length === 0) return undefined;
      const until = runtime.askedUntil ?? (expireAfterMs === null ? null : clock.now() + expireAfterMs);
      const answered = decisionsOn(
        open.flatMap((index) => calls[index] ?? []),
        until,
      );
      const late = until !== null && clock.now() > until;
      const decisions = late ? answered.map((): Decision => ({ type: 'reject', message: EXPIRED })) : answered;
      const message = copyAiMessage(last.message);
      const answers: ToolMessage[] = [];
      for (const [place, index] of open.entries()) {
        const call = message.tool_calls?.[index];
        const decision = decisions[place];
        if (call === undefined || decision === undefined) continue;
        if (decision.type === 'edit') Object.assign(call, decision.editedAction);
        if (decision.type === 'reject') answers.push(rejection(message.id ?? '', index, call, decision.message));
      }
      const edited = decisions.some((decision) => decision.type === 'edit');
      return { messages: [...(edited ? [message] : []), ...answers] };
    },
  });
}

function asked(value: unknown): string[] {
  const names = Array.isArray(value)
    ? value
    : typeof value === 'object' && value !== null
      ? Object.entries(value).flatMap(([name, on]) => (on === true ? [name] : []))
      : [];
  return names.filter((name): name is string => typeof name === 'string').slice(0, MAX_NAMES);
}

function decisionsOn(calls: readonly ToolCall[], until: number | null): readonly Decision[] {
  const question: Question = {
    ...(until === null ? {} : { expires_at: new Date(until).toISOString() }),
    actionRequests: calls.map(({ name, args }) => ({ name, args, description: `The agent wants to use ${name}.` })),
    reviewConfigs: calls.map(({ name }) => ({ actionName: name, allowedDecisions: DECISIONS })),
  };
  let error: string | null = null;
  for (;;) {
    const answer: unknown = interrupt(error === null ? question : { ...question, error });
    const read = readDecisions(answer, calls.length);
    if (typeof read !== 'string') return read;
    error = read;
  }
}

/** The decisions, or what is wrong with them. */
function readDecisions(answer: unknown, count: number): readonly Decision[] | string {
  const { decisions } = (answer ?? {}) as { decisions?: unknown };
  if (!Array.isArray(decisions)) return 'Answer with {"decisions": [...]}.';
  if (decisions.length !== count) return `${count} decisions are needed, ${decisions.length} came.`;
  for (const [index, decision] of (decisions as readonly Partial<Decision>[]).entries()) {
    if (!DECISIONS.some((type) => type === decision?.type))
      return `decisions[${index}].type must be one of ${DECISIONS.join(', ')}.`;
    if (decision.type !== 'edit') continue;
    const { name, args } = (decision as { editedAction?: { name?: unknown; args?: unknown } }).editedAction ?? {};
    if (typeof name !== 'string' || typeof args !== 'object' || args === null || Array.isArray(args))
      return `decisions[${index}].editedAction needs a name and an object of args.`;
  }
  return (decisions as readonly Decision[]).map((decision) =>
    decision.type === 'edit'
      ? { type: 'edit', editedAction: { name: decision.editedAction.name, args: decision.editedAction.args } }
      : decision,
  );
}

function rejection(messageId: string, index: number, call: ToolCall, reason: string | undefined): ToolMessage {
  const text = typeof reason === 'string' && reason.trim() !== '' ? `: ${reason.trim()}` : '.';
  return new ToolMessage({
    id: toolMessageId(messageId, index),
    tool_call_id: call.id ?? '',
    name: call.name,
    status: 'error',
    content: `The user did not allow this call of ${call.name}${text}`,
  });
}
