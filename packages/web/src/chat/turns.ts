import type { AiMessage, ChatMessage, ToolCall, ToolMessage } from './message.ts';
import type { Question } from './question.ts';

/** Messages put together as they are read: what the user said, and what the agent did about it. */
export type Turn =
  | { readonly kind: 'human'; readonly id: string; readonly message: Extract<ChatMessage, { kind: 'human' }> }
  | { readonly kind: 'agent'; readonly id: string; readonly steps: readonly Step[] };

export interface Step {
  readonly id: string;
  readonly message: AiMessage;
  readonly calls: readonly CallView[];
}

export interface CallView {
  readonly key: string;
  readonly call: ToolCall;
  readonly result: ToolMessage | null;
  readonly status: 'writing' | 'running' | 'done' | 'failed' | 'unknown' | 'no-result';
  readonly question: QuestionView | null;
}

export interface QuestionView {
  readonly question: Question;
  /** What was answered; null = nothing yet. */
  readonly answer: string | null;
  /** Only the newest open question takes an answer. */
  readonly open: boolean;
}

/** @param active is a run at work? Calls without a result run then; else they were stopped or never began, which the messages do not tell. */
export function toTurns(messages: readonly ChatMessage[], active: boolean): readonly Turn[] {
  const turns: Turn[] = [];
  let steps: Step[] | null = null;
  for (const [index, message] of messages.entries()) {
    if (message.kind === 'human') {
      if (message.hidden) continue;
      steps = null;
      turns.push({ kind: 'human', id: message.id, message });
    } else if (message.kind === 'ai' && !message.hidden) {
      if (steps === null) {
        steps = [];
        turns.push({ kind: 'agent', id: message.id, steps });
      }
      steps.push({ id: message.id, message, calls: viewCalls(messages, index, message, active) });
    }
  }
  return turns;
}

function viewCalls(messages: readonly ChatMessage[], index: number, message: AiMessage, active: boolean): CallView[] {
  const results = resultsAfter(messages, index);
  const taken = new Set<ToolMessage>();
  return message.calls.map((call, place) => {
    // Ids can be missing or repeat: then results belong to calls by their order.
    const result =
      results.find((entry) => !taken.has(entry) && call.id !== null && entry.callId === call.id) ??
      (call.id === null ? (results.find((entry) => !taken.has(entry) && entry.name === call.name) ?? null) : null);
    if (result !== null) taken.add(result);
    return {
      key: `${message.id}-${place}`,
      call,
      result,
      status: statusOf(message, result, active),
      question: result?.question == null ? null : viewQuestion(messages, result, result.question),
    };
  });
}

function statusOf(message: AiMessage, result: ToolMessage | null, active: boolean): CallView['status'] {
  if (result !== null) return result.outcome;
  if (message.streaming) return 'writing';
  return active ? 'running' : 'no-result';
}

/** Tool messages between this assistant message and the next one: a later turn's result is never taken. */
function resultsAfter(messages: readonly ChatMessage[], index: number): ToolMessage[] {
  const results: ToolMessage[] = [];
  for (const message of messages.slice(index + 1)) {
    if (message.kind === 'ai') break;
    if (message.kind === 'tool') results.push(message);
  }
  return results;
}

function viewQuestion(messages: readonly ChatMessage[], result: ToolMessage, question: Question): QuestionView {
  const later = messages.slice(messages.indexOf(result) + 1);
  const direct = later.find((message) => message.kind === 'human' && message.answers?.requestId === question.requestId);
  if (direct?.kind === 'human') return { question, answer: direct.answers?.value ?? direct.text, open: false };
  const typed = later.find((message) => message.kind === 'human' && !message.hidden);
  if (typed?.kind === 'human') return { question, answer: typed.text, open: false };
  const newer = later.some((message) => message.kind === 'tool' && message.question !== null);
  return { question, answer: null, open: !newer };
}

/** Files that this call hands to the user, by their paths below /mnt/user-data. */
export function presentedFiles(view: CallView): readonly string[] {
  if (view.call.name !== 'present_files' || view.status !== 'done') return [];
  const given = view.call.args?.filepaths;
  return Array.isArray(given) ? given.filter((path) => typeof path === 'string').map(virtualPath) : [];
}

/** Without a sandbox of its own an agent speaks of files relative to its workspace. */
function virtualPath(path: string): string {
  return new URL(path.split('/').map(encodeURIComponent).join('/'), 'file:///mnt/user-data/workspace/').pathname
    .split('/')
    .map(decodeURIComponent)
    .join('/');
}

/** Would both be drawn alike? Messages keep their identity until they change. */
export function sameTurn(left: Turn, right: Turn): boolean {
  if (left.kind === 'human' || right.kind === 'human')
    return (
      left.kind === right.kind && left.kind === 'human' && right.kind === 'human' && left.message === right.message
    );
  return (
    left.steps.length === right.steps.length &&
    left.steps.every((step, index) => {
      const other = right.steps[index];
      return other !== undefined && step.message === other.message && sameCalls(step.calls, other.calls);
    })
  );
}

function sameCalls(left: readonly CallView[], right: readonly CallView[]): boolean {
  return left.every((view, index) => {
    const other = right[index];
    return (
      other !== undefined &&
      view.status === other.status &&
      view.result === other.result &&
      view.question?.open === other.question?.open &&
      view.question?.answer === other.question?.answer
    );
  });
}
