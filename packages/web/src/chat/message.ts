import { type Question, readQuestion } from './question.ts';
import { readOutcome } from './tasks.ts';
import { type Dictionary, isDictionary, listOf, textOr, type WireMessage } from './wire.ts';

export interface FileReference {
  readonly name: string;
  /** Virtual path below /mnt/user-data. */
  readonly path: string;
  readonly size: number | null;
}

export interface ToolCall {
  /** The provider's id; null when it sent none. */
  readonly id: string | null;
  readonly name: string;
  /** Parsed arguments; null while they are still being written, or when they are no JSON. */
  readonly args: Dictionary | null;
  /** The arguments as text, as far as they have come. */
  readonly argsText: string;
}

/** A message as the page shows it. */
export type ChatMessage =
  | {
      readonly kind: 'human';
      readonly id: string;
      readonly text: string;
      readonly files: readonly FileReference[];
      /** Not shown as a bubble: control messages and answers given by button. */
      readonly hidden: boolean;
      /** The question that this message answers. */
      readonly answers: { readonly requestId: string; readonly value: string } | null;
    }
  | {
      readonly kind: 'ai';
      readonly id: string;
      readonly text: string;
      readonly reasoning: string;
      readonly calls: readonly ToolCall[];
      /** The model could not be reached: the text explains. */
      readonly failed: boolean;
      readonly hidden: boolean;
      readonly streaming: boolean;
    }
  | {
      readonly kind: 'tool';
      readonly id: string;
      readonly callId: string | null;
      readonly name: string;
      readonly text: string;
      readonly outcome: 'done' | 'failed' | 'unknown';
      readonly question: Question | null;
      /** How the sub-agent of this call ended. */
      readonly outcomeOfTask: ReturnType<typeof readOutcome>;
      /** The batch that this call began or asked about, as it was then. */
      readonly batch: Dictionary | null;
    };

export type AiMessage = Extract<ChatMessage, { kind: 'ai' }>;
export type ToolMessage = Extract<ChatMessage, { kind: 'tool' }>;

const CONTROL_NAMES = new Set([
  'summary',
  'loop_warning',
  'todo_reminder',
  'todo_completion_reminder',
  'progress_hint',
]);
const ADDED_BLOCKS =
  /<(current_uploads|uploaded_files|slash_skill_activation|system-reminder|memory|current_date)>[\s\S]*?<\/\1>/g;

/** Reads a whole message. null = nothing that the page shows (a system message, an unknown type). */
export function readMessage(wire: WireMessage, position: number): ChatMessage | null {
  const id = typeof wire.id === 'string' && wire.id !== '' ? wire.id : `at-${position}`;
  const extra = isDictionary(wire.additional_kwargs) ? wire.additional_kwargs : {};
  const hidden = extra.hide_from_ui === true || CONTROL_NAMES.has(textOr(wire.name, ''));
  switch (wire.type.replace(/MessageChunk$/, '').toLowerCase()) {
    case 'human':
      return {
        kind: 'human',
        id,
        text: textOf(wire.content).replace(ADDED_BLOCKS, '').trim(),
        files: listOf(extra.files)
          .map(readFile)
          .filter((file) => file !== null),
        hidden,
        answers: readAnswer(extra.human_input_response),
      };
    case 'ai': {
      const { reasoning, text } = splitThinking(textOf(wire.content));
      return {
        kind: 'ai',
        id,
        text,
        reasoning: [textOr(extra.reasoning_content, ''), thinkingOf(wire.content), reasoning]
          .filter((part) => part !== '')
          .join('\n\n'),
        calls: readCalls(wire),
        failed: Object.keys(extra).some((key) => key.endsWith('error_fallback') && extra[key] === true),
        hidden,
        streaming: false,
      };
    }
    case 'tool':
      return {
        kind: 'tool',
        id,
        callId: textOr(wire.tool_call_id, null),
        name: textOr(wire.name, ''),
        text: textOf(wire.content),
        outcome: outcomeOf(wire, extra),
        question: readQuestion(wire.artifact),
        outcomeOfTask: readOutcome(extra),
        batch: isDictionary(extra.batch) ? extra.batch : null,
      };
    default:
      return null;
  }
}

/** The visible text of a content: a string, or the text parts of a list of blocks. */
export function textOf(content: unknown): string {
  if (typeof content === 'string') return content;
  return listOf(content)
    .map((block) =>
      typeof block === 'string' ? block : isDictionary(block) && typeof block.text === 'string' ? block.text : '',
    )
    .join('');
}

function thinkingOf(content: unknown): string {
  return listOf(content)
    .map((block) => (isDictionary(block) ? textOr(block.thinking, textOr(block.reasoning, '')) : ''))
    .join('');
}

/** Some models write their reasoning into the text, between think tags at its beginning. */
export function splitThinking(text: string): { readonly reasoning: string; readonly text: string } {
  const match = /^\s*<think>([\s\S]*?)(?:<\/think>\s*|$)/.exec(text);
  if (match === null) return { reasoning: '', text };
  return { reasoning: (match[1] ?? '').trim(), text: text.slice(match[0].length) };
}

function readCalls(wire: WireMessage): ToolCall[] {
  const whole = listOf(wire.tool_calls)
    .filter(isDictionary)
    .map((call) => ({
      id: textOr(call.id, null),
      name: textOr(call.name, ''),
      args: isDictionary(call.args) ? call.args : null,
      argsText: JSON.stringify(call.args ?? {}, null, 2),
    }));
  const broken = listOf(wire.invalid_tool_calls)
    .filter(isDictionary)
    .map((call) => ({
      id: textOr(call.id, null),
      name: textOr(call.name, ''),
      args: null,
      argsText: textOr(call.args, ''),
    }));
  return [...whole, ...broken];
}

function readFile(value: unknown): FileReference | null {
  if (!isDictionary(value)) return null;
  const path = textOr(value.path, textOr(value.virtual_path, ''));
  const name = textOr(value.filename, path.split('/').at(-1) ?? '');
  if (path === '' || name === '') return null;
  return { name, path, size: typeof value.size === 'number' ? value.size : null };
}

function readAnswer(value: unknown): { requestId: string; value: string } | null {
  if (!isDictionary(value) || value.kind !== 'human_input_response') return null;
  const requestId = textOr(value.request_id, '');
  return requestId === '' ? null : { requestId, value: textOr(value.value, '') };
}

/**
 * `unknown`: the process died while the tool ran, so nobody can say whether it took effect. Results of older runs say it in their
 * text only.
 */
function outcomeOf(wire: WireMessage, extra: Dictionary): ToolMessage['outcome'] {
  if (extra.outcome === 'unknown' || /^Error: the outcome of \S+ is unknown\b/.test(textOf(wire.content)))
    return 'unknown';
  return wire.status === 'error' ? 'failed' : 'done';
}
