import { type BaseMessage, ToolMessage } from '@langchain/core/messages';
import { DynamicStructuredTool, DynamicTool, type StructuredToolInterface } from '@langchain/core/tools';
import { Command, END, isCommand, isGraphBubbleUp, isGraphInterrupt } from '@langchain/langgraph';
import { ReindeerError, type ToolOutcome } from '@reindeer/protocol';
import { directBody } from '../tools/define.ts';
import { toolErrorText } from '../tools/error-text.ts';
import { checkedArguments } from './arguments.ts';
import { JUMP } from './channels.ts';
import type { Loop } from './loop.ts';
import { isTool, messageList, setId } from './messages.ts';
import type { State, ToolCall, ToolHandler, ToolRequest } from './middleware.ts';
import { type NodeConfig, runtimeOf } from './nodes.ts';
import { type Jump, NODES, type ToolTask, toolMessageId } from './route.ts';
import { type AttemptScope, scopeOf } from './scope.ts';

type Result = ToolMessage | Command;

/** What the journal keeps of a call: a plain value, since it must read the same after a restart. */
interface Stored {
  /** State keys, the tool message among `messages`. */
  readonly update: Readonly<Record<string, unknown>>;
  /** The turn ends after the calls beside this one. */
  readonly end: boolean;
}

/** How a tool wants to be treated when an earlier attempt started it and nobody knows whether it ended (D7). */
export interface CrashPolicy {
  /** Running it twice does no harm: it only reads. */
  readonly repeatable?: boolean;
  /** It re-attaches to its own durable state. */
  readonly resumable?: boolean;
}

/**
 * One tool call as one task. Its life under the journal: new → begun (durable, before the effect starts) → finished (with
 * its result). A finished call answers from the journal and never runs again. A begun one that another attempt left
 * behind answers *unknown outcome*, unless its tool may run again. One that stops to ask a person is new again.
 */
export async function toolNode(loop: Loop, task: ToolTask, config: NodeConfig): Promise<unknown> {
  const scope = scopeOf(config);
  const taskId = config.configurable?.__pregel_task_id;
  if (typeof taskId === 'string') scope.attempt.nameTask(taskId, NODES.tools);
  const state = readState(loop, config);
  const call = findCall(state.messages, task);
  const result = await runCall(loop, scope, state, call, task, config);
  // A command to a parent graph is LangGraph's own affair.
  if ('command' in result) return result.command;
  return result.end ? { ...result.update, [JUMP]: { to: 'end' } satisfies Jump } : result.update;
}

function readState(loop: Loop, config: NodeConfig): State {
  const read = config.configurable?.__pregel_read as ((keys: readonly string[], fresh: boolean) => State) | undefined;
  if (read === undefined) throw new ReindeerError('internal', 'A tool task runs outside of a graph.');
  const state = read(loop.stateKeys, false);
  return { ...state, messages: state.messages ?? [] };
}

function findCall(messages: readonly BaseMessage[], task: ToolTask): ToolCall {
  const message = messages.findLast((candidate) => candidate.id === task.messageId);
  const calls = (message as { tool_calls?: readonly ToolCall[] } | undefined)?.tool_calls;
  const call = calls?.[task.index];
  if (call !== undefined) return call;
  throw new ReindeerError('internal', `Message ${task.messageId} has no tool call ${task.index}.`);
}

async function runCall(
  loop: Loop,
  scope: AttemptScope,
  state: State,
  call: ToolCall,
  task: ToolTask,
  config: NodeConfig,
): Promise<Stored | { readonly command: Command }> {
  const { journal, effects } = scope.attempt;
  const runtime = runtimeOf(config);
  const key = { messageId: task.messageId, index: task.index };
  // Set when this attempt may not run the tool: what the journal holds is the answer then, whatever wrappers make of it.
  let stored: Stored | null = null;
  let begun = false;

  const base: ToolHandler = async (request) => {
    if (stored !== null) return messageOf(stored);
    const tool = request.tool ?? loop.tools.get(request.toolCall.name);
    if (tool === undefined) return unknownTool(loop, request.toolCall, task);
    const args = checkedArguments(tool, request.toolCall.args);
    if (!begun) {
      stored = await begin(scope, key, call, tool);
      if (stored !== null) return messageOf(stored);
      begun = true;
    }
    const ran = await invoke(tool, request, args, call, task, config);
    return asResult(ran, call, task);
  };

  const whole = async (): Promise<Stored | { readonly command: Command }> => {
    let settled: Stored;
    try {
      const outcome = await loop.chain.callTool(base, {
        toolCall: call,
        tool: loop.tools.get(call.name),
        state,
        runtime,
      } satisfies ToolRequest);
      if (stored !== null) return stored;
      if (isCommand(outcome) && (outcome as { graph?: unknown }).graph !== undefined) return { command: outcome };
      settled = settle(loop, outcome, call, task);
    } catch (error) {
      // A tool that asks has ended for now; with the answer it begins anew, in whichever run brings that.
      if (begun && isGraphInterrupt(error)) await journal.retract(key);
      if (mustPass(error, config.signal)) throw error;
      if (stored !== null) return stored;
      // A failing tool is information for the model, never a failed run (MW-13).
      settled = settle(loop, errorMessage(call, task, toolErrorText(call.name, error)), call, task);
    }
    if (!begun) return settled;
    return (await journal.finish({ ...key, outcome: outcomeOf(settled), result: settled })) as Stored;
  };
  // The raw promise is tracked with its journal entry: "stopped" then means that nothing of the call is left (D6).
  return effects.track(`tool ${call.name}`, whole);
}

/** Null when the effect may start now. */
async function begin(
  scope: AttemptScope,
  key: { readonly messageId: string; readonly index: number },
  call: ToolCall,
  tool: StructuredToolInterface,
): Promise<Stored | null> {
  const { journal } = scope.attempt;
  const entry = { ...key, toolCallId: call.id ?? null, name: call.name };
  let answer = await journal.begin({ ...entry, again: false });
  const policy = crashPolicyOf(tool);
  const again = policy.repeatable === true || policy.resumable === true;
  if (answer.outcome === 'unfinished' && again) answer = await journal.begin({ ...entry, again: true });
  switch (answer.outcome) {
    case 'begin':
      return null;
    case 'finished':
      return journal.unpack(answer.result) as Stored;
    case 'unfinished':
      return (await journal.finish({
        ...key,
        outcome: 'unknown',
        result: { update: { messages: [unknownOutcome(call, key)] }, end: false } satisfies Stored,
      })) as Stored;
    case 'fenced':
      throw new ReindeerError('fenced', 'Another process has taken over this run.');
  }
}

/** Reads a tool's crash policy from its metadata, where `defineTool` and tool adapters put it. */
export function crashPolicyOf(tool: StructuredToolInterface): CrashPolicy {
  const metadata = (tool as { metadata?: Record<string, unknown> }).metadata ?? {};
  return { repeatable: metadata.repeatable === true, resumable: metadata.resumable === true };
}

async function invoke(
  tool: StructuredToolInterface,
  request: ToolRequest,
  args: Record<string, unknown>,
  call: ToolCall,
  task: ToolTask,
  config: NodeConfig,
): Promise<unknown> {
  const direct = directBody(tool);
  // Straight into a tool of ours: LangChain's way there checks the arguments a second time and sets up tracing.
  if (direct !== null)
    return direct(args, {
      toolCallId: call.id ?? '',
      task,
      state: request.state,
      ...(config.configurable === undefined ? {} : { configurable: config.configurable }),
      ...(config.signal === undefined ? {} : { signal: config.signal }),
      ...(config.context === undefined ? {} : { context: config.context as Record<string, unknown> }),
    });
  const toolCall = { ...request.toolCall, id: call.id ?? '', type: 'tool_call' as const };
  const { signal, ...rest } = config;
  return tool.invoke(
    toolCall as never,
    {
      ...rest,
      config,
      toolCall,
      toolCallId: call.id,
      state: request.state,
      callbacks: undefined,
      // Leaving the signal out would bring the node's back through LangChain's ambient configuration.
      signal: signal !== undefined && hearsAbort(tool) ? signal : new AbortController().signal,
    } as never,
  );
}

/**
 * May the tool get the signal? A function wrapped by LangChain's `tool()` that gets one is answered for as soon as it fires,
 * while its body runs on unseen. "Stopped" would then be a guess (D6), so such a tool runs to its end instead, unless its
 * metadata says `abortable`: that its promise settles only when its work has ended.
 */
function hearsAbort(tool: StructuredToolInterface): boolean {
  const wrapped = tool instanceof DynamicStructuredTool || tool instanceof DynamicTool;
  return !wrapped || (tool as { metadata?: Record<string, unknown> }).metadata?.abortable === true;
}

function asResult(output: unknown, call: ToolCall, task: ToolTask): Result {
  if (isCommand(output) || isTool(output as BaseMessage)) return output as Result;
  return new ToolMessage({
    id: toolMessageId(task.messageId, task.index),
    name: call.name,
    tool_call_id: call.id ?? '',
    content: typeof output === 'string' ? output : (JSON.stringify(output) ?? ''),
  });
}

const errorMessage = (call: ToolCall, task: ToolTask, content: string): ToolMessage =>
  new ToolMessage({
    id: toolMessageId(task.messageId, task.index),
    name: call.name,
    tool_call_id: call.id ?? '',
    status: 'error',
    content,
  });

function unknownTool(loop: Loop, call: ToolCall, task: ToolTask): ToolMessage {
  const names = [...loop.tools.keys()].join(', ');
  return errorMessage(call, task, `Error: ${call.name} is not a valid tool, try one of [${names}].`);
}

function unknownOutcome(call: ToolCall, task: ToolTask): ToolMessage {
  return errorMessage(
    call,
    task,
    `Error: the outcome of ${call.name} is unknown. The system stopped while it ran, and it may have taken effect fully, partly or not at all. Check what it changed before you run it again.`,
  );
}

/**
 * Brings a result into its plain form. Its messages get the ids that a repeat of the task would give them too, and one of them answers
 * the call. Throws `validation_failed` for what no channel could take.
 */
function settle(loop: Loop, result: Result, call: ToolCall, task: ToolTask): Stored {
  const { update, goto } = isCommand(result)
    ? (result as unknown as { update?: unknown; goto?: unknown })
    : { update: { messages: [result] }, goto: undefined };
  const values = Array.isArray(update) ? Object.fromEntries(update as [string, unknown][]) : { ...(update as object) };
  const unknown = Object.keys(values).find((name) => !(name in loop.channels));
  if (unknown !== undefined)
    throw new ReindeerError(
      'validation_failed',
      `${call.name} wrote "${unknown}", which is no channel of this agent's state`,
    );
  const messages = 'messages' in values ? messageList(values.messages, call.name) : [];
  if (!messages.some((message) => isTool(message) && message.tool_call_id === (call.id ?? '')))
    messages.push(asResult('OK', call, task) as ToolMessage);
  for (const [position, message] of messages.entries()) {
    if (message.id !== undefined && message.id !== null && message.id !== '') continue;
    const id = toolMessageId(task.messageId, task.index);
    setId(message, position === 0 ? id : `${id}-${position}`);
  }
  // A tool cannot name a node to go to: the calls beside it still run, and then the turn ends or the model goes on.
  const targets = Array.isArray(goto) ? goto : [goto];
  return { update: { ...values, messages }, end: targets.includes(END) };
}

const messagesOf = (stored: Stored): ToolMessage[] => ((stored.update.messages ?? []) as BaseMessage[]).filter(isTool);

function messageOf(stored: Stored): Result {
  return messagesOf(stored)[0] ?? new Command({ update: { ...stored.update } });
}

function outcomeOf(stored: Stored): ToolOutcome {
  return messagesOf(stored).some((message) => message.status === 'error') ? 'error' : 'ok';
}

/** Interrupts, commands to a parent graph, a lost fence and an abort are no tool failures. */
function mustPass(error: unknown, signal: AbortSignal | undefined): boolean {
  if (isGraphBubbleUp(error) || signal?.aborted === true) return true;
  return (
    ReindeerError.is(error) &&
    (error.code === 'fenced' || error.code === 'aborted' || error.code === 'store_unavailable')
  );
}
