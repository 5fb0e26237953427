import { type BaseMessage, HumanMessage, ToolMessage } from '@langchain/core/messages';
import { type BaseCheckpointSaver, MemorySaver } from '@langchain/langgraph';
import type { Surroundings } from '@reindeer/protocol';
import { makeRun, testSurroundings } from '@reindeer/testkit';
import { createLeadAgent, type LeadAgentOptions } from '../lead/lead-agent.ts';
import { createModelRegistry } from '../models/registry.ts';
import { DEFAULT_SUBAGENTS, type SubagentSettings } from '../subagents/settings.ts';
import { type SubagentOptions, Subagents } from '../subagents/subagents.ts';
import { type RecordedAttempt, recordedAttempt } from './fake-attempt.ts';
import type { FakeModel, Turn } from './fake-model.ts';
import { exited, MemorySandboxes } from './memory-sandbox.ts';
import { isChild, ReplyModel } from './reply-model.ts';
import { drain, type Outcome } from './run-loop.ts';

export interface DelegationFixture {
  /** What the lead agent answers, turn by turn within the run. */
  readonly lead: readonly Turn[];
  /** What a sub-agent answers to its request. */
  readonly child: (messages: readonly BaseMessage[]) => Turn;
  readonly settings?: Partial<SubagentSettings>;
  readonly options?: Partial<SubagentOptions>;
  readonly agent?: Partial<LeadAgentOptions>;
  readonly sandboxes?: MemorySandboxes;
  readonly models?: Readonly<Record<string, FakeModel>>;
}

/** A lead agent that may delegate, on a clock that stands still. One "process"; a second one may share saver, rows and events. */
export function delegation(fixture: DelegationFixture) {
  const surroundings = testSurroundings();
  const model = new ReplyModel((messages) => {
    if (isChild(messages)) return fixture.child(messages.map(asWritten));
    const user = messages.findLastIndex(
      (message) => message.type === 'human' && !message.additional_kwargs.hide_from_ui,
    );
    const turn = messages.slice(user).filter((message) => message.type === 'ai').length;
    return fixture.lead[Math.min(turn, fixture.lead.length - 1)] ?? {};
  });
  const models: Record<string, FakeModel> = { fake: model, ...fixture.models };
  const subagents = new Subagents({
    settings: { ...DEFAULT_SUBAGENTS, ...fixture.settings },
    surroundings,
    ...fixture.options,
  });
  const sandboxes = fixture.sandboxes ?? new MemorySandboxes({ exec: () => exited('hello\n') });
  const agent = createLeadAgent({
    models: createModelRegistry({
      entries: Object.keys(models).map((name) => ({ name, use: name, model: name })),
      environment: {},
      logger: surroundings.logger,
      factories: Object.fromEntries(Object.entries(models).map(([name, made]) => [name, () => made])),
    }),
    sandboxes,
    surroundings: surroundings as Surroundings,
    subagents,
    ...fixture.agent,
  });
  return {
    model,
    subagents,
    sandboxes,
    surroundings,
    agent,
    async run(
      options: {
        readonly input?: string | null;
        readonly saver?: BaseCheckpointSaver;
        readonly attempt?: RecordedAttempt;
        readonly context?: Record<string, unknown>;
      } = {},
    ): Promise<Outcome> {
      const attempt = options.attempt ?? delegatingAttempt(options.context);
      const graph = await agent.forAttempt(attempt, options.saver ?? new MemorySaver());
      const text = options.input === undefined ? 'go' : options.input;
      return drain(graph, text === null ? null : { messages: [new HumanMessage(text)] }, attempt);
    },
  };
}

const WRITTEN = /^--- BEGIN USER INPUT ---\n([\s\S]*)\n--- END USER INPUT ---$/;

/** A message without the marks around what a person, or the agent that delegates, wrote. */
export function asWritten(message: BaseMessage): BaseMessage {
  const text = typeof message.content === 'string' ? WRITTEN.exec(message.content)?.[1] : undefined;
  return text === undefined ? message : new HumanMessage({ content: text, ...(message.id ? { id: message.id } : {}) });
}

/** An attempt of a run that may delegate. */
export function delegatingAttempt(
  context: Record<string, unknown> = {},
  more: Parameters<typeof recordedAttempt>[0] & { readonly runId?: string } = {},
): RecordedAttempt {
  const request = { ...makeRun().request, context: { subagent_enabled: true, ...context } as never };
  const run = makeRun({ request, ...(more.runId === undefined ? {} : { runId: more.runId }) });
  return recordedAttempt({ run, ...more });
}

export const task = (prompt: string, type = 'general-purpose', id?: string) => ({
  name: 'task',
  args: { description: `do ${prompt}`, prompt, subagent_type: type },
  ...(id === undefined ? {} : { id }),
});

export const results = ({ messages }: Pick<Outcome, 'messages'>): ToolMessage[] =>
  messages.filter((message): message is ToolMessage => ToolMessage.isInstance(message));

export const types = (attempt: RecordedAttempt): string[] =>
  attempt.events.map(({ data }) => String((data as { type?: unknown }).type));
