import { type AIMessage, ToolMessage } from '@langchain/core/messages';
import { type GraphInterrupt, isGraphInterrupt } from '@langchain/langgraph';
import type { JsonObject } from '@reindeer/protocol';
import { callIdsOf } from '../history/call-ids.ts';
import { canonicalise } from '../history/canonicalise.ts';
import { modelName } from './call-model.ts';
import type { Hook } from './chain.ts';
import { JUMP } from './channels.ts';
import type { Loop } from './loop.ts';
import { copyAiMessage, isTool } from './messages.ts';
import type { HookRuntime, JumpTarget, ModelHandler } from './middleware.ts';
import { normaliseCalls } from './normalise-calls.ts';
import { type Jump, jumpOf, lastAi, NODES, pendingCalls, route, toolMessageId } from './route.ts';
import { type AttemptScope, scopeOf } from './scope.ts';
import { WorkingState } from './working-state.ts';

/** The part of LangGraph's node configuration that the loop uses. */
export interface NodeConfig {
  readonly configurable?: Record<string, unknown>;
  readonly context?: unknown;
  readonly store?: unknown;
  readonly writer?: unknown;
  readonly interrupt?: unknown;
  readonly signal?: AbortSignal;
  readonly metadata?: Record<string, unknown>;
}

type Values = Record<string, unknown>;

/** Runs once per run: the before-agent hooks. */
export async function prepareNode(loop: Loop, values: Values, config: NodeConfig): Promise<unknown> {
  const { work } = open(loop, values, config, NODES.prepare);
  const runtime = runtimeOf(config);
  const jump = await runHooks(work, loop.chain.hooks.beforeAgent, runtime);
  if (jump === 'end') {
    await runHooks(work, loop.chain.hooks.afterAgent, runtime);
    work.jump({ to: 'end' } satisfies Jump);
  } else if (jump !== null) work.jump({ to: jump } satisfies Jump);
  return work.toUpdate();
}

/** One model call with the hooks around it. Decides the end of the turn and then runs the after-agent hooks. */
export async function modelNode(loop: Loop, values: Values, config: NodeConfig): Promise<unknown> {
  const { work, scope } = open(loop, values, config, NODES.model);
  const runtime = runtimeOf(config);
  const entry = jumpOf(values);
  if (entry?.to === 'end' || returnedDirectly(loop, work)) {
    await runHooks(work, loop.chain.hooks.afterAgent, runtime);
    work.jump({ to: 'end' } satisfies Jump);
    return work.toUpdate();
  }
  if (entry?.to !== 'model') {
    const jump = await runHooks(work, loop.chain.hooks.beforeModel, runtime);
    if (jump === 'end' || jump === 'tools') {
      if (jump === 'tools' && pendingCalls(work.values.messages).length > 0) return work.toUpdate();
      await runHooks(work, loop.chain.hooks.afterAgent, runtime);
      work.jump({ to: 'end' } satisfies Jump);
      return work.toUpdate();
    }
  }
  await callModel(loop, work, scope, runtime, config);
  await settleTurn(loop, work, runtime, 'afterModel', 0, null);
  return work.toUpdate();
}

/**
 * Hooks that ask a person. They run here, in a step after the one that wrote the model's message, so that a resume
 * continues with exactly the message that was shown and never calls the model again.
 */
export async function reviewNode(loop: Loop, values: Values, config: NodeConfig): Promise<unknown> {
  const { work } = open(loop, values, config, NODES.review);
  const jump = jumpOf(values);
  if (jump?.to !== 'review') return work.toUpdate();
  const last = lastAi(work.values.messages);
  if (last !== null) work.lend(last.position, copyAiMessage(last.message));
  const found = loop.chain.hooks[jump.stage].findIndex((hook) => hook.name === jump.at);
  // A hook that is no longer there: all of them look again and learn what was asked, which asks once more at worst.
  const question = { tools: jump.tools ?? [], by: found < 0 ? null : jump.at, until: jump.until ?? null };
  await settleTurn(loop, work, runtimeOf(config), jump.stage, Math.max(0, found), question);
  return work.toUpdate();
}

function open(
  loop: Loop,
  values: Values,
  config: NodeConfig,
  node: string,
): { work: WorkingState; scope: AttemptScope } {
  const scope = scopeOf(config);
  const taskId = config.configurable?.__pregel_task_id;
  if (typeof taskId === 'string') scope.attempt.nameTask(taskId, node);
  const { [JUMP]: _, ...state } = values;
  const work = new WorkingState(loop.channels, state, loop.random);
  if (jumpOf(values) !== null) work.jump(null);
  return { work, scope };
}

export function runtimeOf(config: NodeConfig): HookRuntime {
  return {
    context: config.context ?? {},
    configurable: config.configurable,
    store: config.store,
    writer: config.writer,
    interrupt: config.interrupt,
    signal: config.signal,
  };
}

/** What a person was asked about, and by which hook; null = it is not there any more. */
interface Question {
  readonly tools: readonly string[];
  readonly by: string | null;
  readonly until: number | null;
}

const asking = (runtime: HookRuntime, { tools, until }: Question): HookRuntime => ({
  ...runtime,
  asked: tools,
  askedUntil: until,
});

/** Runs hooks from `cursor.at` on, which moves along, so that a caller knows where one stopped. Stops at the first jump. */
async function runHooks(
  work: WorkingState,
  hooks: readonly Hook[],
  runtime: HookRuntime,
  cursor: { at: number } = { at: 0 },
  question: Question | null = null,
): Promise<JumpTarget | null> {
  for (; cursor.at < hooks.length; cursor.at++) {
    const hook = hooks[cursor.at];
    if (hook === undefined) continue;
    const answers = question !== null && (question.by === null || question.by === hook.name);
    const { update, jumpTo } = await hook.run(work.values, answers ? asking(runtime, question) : runtime);
    work.apply(update, hook.name);
    if (jumpTo !== null) return jumpTo;
  }
  return null;
}

/**
 * Runs the hooks after a model's message and, when the turn ends, those after the agent.
 *
 * @param question null = nobody was asked yet: a hook that asks is put off to the review node
 */
async function settleTurn(
  loop: Loop,
  work: WorkingState,
  runtime: HookRuntime,
  stage: 'afterModel' | 'afterAgent',
  from: number,
  question: Question | null,
): Promise<void> {
  const cursor = { at: from };
  let current = stage;
  try {
    if (current === 'afterModel') {
      const jump = await runHooks(work, loop.chain.hooks.afterModel, runtime, cursor, question);
      answerUnrunnable(work);
      if (jump === 'model') return work.jump({ to: 'model' } satisfies Jump);
      const ends = jump === 'end' || (jump === 'tools' && pendingCalls(work.values.messages).length === 0);
      if (!ends && route(work.values).to !== 'end') return;
      current = 'afterAgent';
      cursor.at = 0;
    }
    const jump = await runHooks(work, loop.chain.hooks.afterAgent, runtime, cursor, question);
    if (jump === 'model') return work.jump({ to: 'model' } satisfies Jump);
    if (jump !== 'tools' && route(work.values).to !== 'end') work.jump({ to: 'end' } satisfies Jump);
  } catch (error) {
    // The message that the hook asks about must be checkpointed before a person is asked (D10).
    if (question !== null || !isGraphInterrupt(error)) throw error;
    work.jump({
      to: 'review',
      stage: current,
      at: loop.chain.hooks[current][cursor.at]?.name ?? '',
      tools: toolsAskedAbout(error),
      ...expiryOf(error),
    } satisfies Jump);
  }
}

/** Names of the tools in a question of the usual shape, `{actionRequests: [{name, args}]}`. */
function toolsAskedAbout(error: GraphInterrupt): string[] {
  const names = error.interrupts.flatMap(({ value }) => {
    const requests = (value as { actionRequests?: readonly { name?: unknown }[] } | null | undefined)?.actionRequests;
    return Array.isArray(requests) ? requests.map((request) => request?.name) : [];
  });
  return [...new Set(names)].filter((name): name is string => typeof name === 'string');
}

/** The time that a question gives for its answer: counted from here on, however often it is asked again. */
function expiryOf(error: GraphInterrupt): { until?: number } {
  for (const { value } of error.interrupts) {
    const at = Date.parse(String((value as { expires_at?: unknown } | null | undefined)?.expires_at ?? ''));
    if (!Number.isNaN(at)) return { until: at };
  }
  return {};
}

/** Did the tools of the last step answer for the model (`returnDirect`)? */
function returnedDirectly(loop: Loop, work: WorkingState): boolean {
  if (loop.returnDirect.size === 0) return false;
  const last = work.values.messages.at(-1);
  return isTool(last) && last.status !== 'error' && loop.returnDirect.has(last.name ?? '');
}

async function callModel(
  loop: Loop,
  work: WorkingState,
  scope: AttemptScope,
  runtime: HookRuntime,
  config: NodeConfig,
): Promise<void> {
  const { model, systemMessage, tools } = loop.request(scope, runtime);
  const base: ModelHandler = (request) => {
    const messages = canonicalise(request.messages, loop.historyLimits, callIdsOf(request.model));
    const options = {
      ...request.modelSettings,
      ...(request.toolChoice === undefined ? {} : { tool_choice: request.toolChoice }),
    };
    const metadata: JsonObject = {
      langgraph_node: NODES.model,
      ls_model_name: modelName(request.model),
      ...(typeof config.metadata?.langgraph_step === 'number'
        ? { langgraph_step: config.metadata.langgraph_step }
        : {}),
    };
    return scope.attempt.effects.track(`model ${modelName(request.model)}`, () =>
      loop.caller.call(
        {
          model: request.model,
          messages: request.systemPrompt === '' ? messages : [request.systemMessage, ...messages],
          tools: request.tools,
          options,
          messageId: loop.random.uuid(),
          metadata,
          signal: config.signal,
        },
        scope.attempt,
      ),
    );
  };
  const { message, commands } = await loop.chain.callModel(base, {
    model,
    messages: work.values.messages,
    systemPrompt: systemMessage.text,
    systemMessage,
    tools,
    state: work.values,
    runtime,
  });
  work.apply({ messages: [normaliseCalls(message, loop.random)] }, 'the model');
  for (const command of commands) {
    const { update } = command as { update?: unknown };
    work.apply(Array.isArray(update) ? Object.fromEntries(update as [string, unknown][]) : update, 'wrapModelCall');
  }
}

/** Calls of one message that run; a model that asks for more than this is not working any more. */
export const MAX_CALLS = 100;

/** Answers the calls that cannot run: unreadable arguments, or too many at once. The others run. */
function answerUnrunnable(work: WorkingState): void {
  const last = lastAi(work.values.messages);
  const calls = last?.message.tool_calls ?? [];
  const unreadable = last?.message.invalid_tool_calls ?? [];
  if (last === null || (unreadable.length === 0 && calls.length <= MAX_CALLS)) return;
  const problems = new Map(unreadable.map((call) => [call.id, call.error]));
  const answers = pendingCalls(work.values.messages).flatMap(({ index }) => {
    const call = calls[index];
    if (call === undefined) return [];
    if (problems.has(call.id)) return [invalidAnswer(last.message, index, call, problems.get(call.id))];
    return index < MAX_CALLS ? [] : [surplusAnswer(last.message, index, call, calls.length)];
  });
  if (answers.length > 0) work.apply({ messages: answers }, 'the loop');
}

function surplusAnswer(
  message: AIMessage,
  index: number,
  call: { name: string; id?: string | undefined },
  count: number,
): ToolMessage {
  return new ToolMessage({
    id: toolMessageId(message.id ?? '', index),
    tool_call_id: call.id ?? '',
    name: call.name,
    status: 'error',
    content: `Error: not run. One message may make ${MAX_CALLS} tool calls, this one made ${count}. Make the others in a later message.`,
  });
}

function invalidAnswer(
  message: AIMessage,
  index: number,
  call: { name: string; id?: string | undefined },
  error: string | undefined,
): ToolMessage {
  const advice =
    call.name === 'write_file'
      ? ' The content was probably cut off: write the file in several smaller calls, the later ones with append=true.'
      : ' Send the call again with one complete JSON object.';
  return new ToolMessage({
    id: toolMessageId(message.id ?? '', index),
    tool_call_id: call.id ?? '',
    name: call.name,
    status: 'error',
    content: `Error: the arguments of ${call.name} were not valid JSON${error === undefined ? '' : ` (${error.slice(0, 200)})`}.${advice}`,
  });
}
