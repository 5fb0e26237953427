import type { AttemptContext, Fence, Graph, GraphFactory, Stores, Surroundings } from '@reindeer/protocol';
import { factKey, ReindeerError } from '@reindeer/protocol';
import type { SaverFor } from '@reindeer/runtime';
import { retried } from '@reindeer/testkit';
import type { Incarnation } from '../frame/incarnation.ts';
import type { ActingAttempt, Checker } from './checker.ts';
import type { Program, Step, Tool } from './program.ts';
import { asProgram } from './program.ts';

export const ASSISTANT = 'agent';

/** What a simulated thread remembers between steps: which run is at work, how far it is, and what was done by whom. */
export interface State {
  readonly runId: string;
  readonly program: Program;
  readonly step: number;
  readonly done: readonly string[];
}

type Writes = NonNullable<Parameters<SaverFor>[0]['writes']>;

/** Stands for the saver and for LangGraph's loop: checkpoints of one small state, under the attempt's fence. */
export class SimulatedSaver {
  readonly fence: Fence | null;
  readonly #threadId: string;
  readonly #stores: Stores;
  readonly #surroundings: Surroundings;
  readonly #nextId: (now: number) => string;
  readonly #writes: Writes | null;
  #parent: string | null = null;

  constructor(parts: {
    threadId: string;
    fence: Fence | null;
    stores: Stores;
    surroundings: Surroundings;
    /** Ids follow the clock, as LangGraph's do. `now`: wall-clock milliseconds. */
    nextId: (now: number) => string;
    /** The queue of the attempt; without it a checkpoint is stored at once. */
    writes?: Writes;
  }) {
    this.#threadId = parts.threadId;
    this.fence = parts.fence;
    this.#stores = parts.stores;
    this.#surroundings = parts.surroundings;
    this.#nextId = parts.nextId;
    this.#writes = parts.writes ?? null;
  }

  async head(): Promise<State | null> {
    const threadId = this.#threadId;
    await this.#writes?.drained();
    const loaded = await retried(() => this.#stores.checkpoints.load({ threadId, ns: '', checkpointId: null }), 5);
    this.#parent = loaded?.checkpointId ?? null;
    const json = loaded?.channels[0]?.json;
    return json === undefined ? null : (JSON.parse(json) as State);
  }

  /** Writes the state, and the message that led to it, in one transaction. */
  async put(state: State, messageId: string): Promise<void> {
    const { fence } = this;
    const threadId = this.#threadId;
    const now = this.#surroundings.clock.now();
    const checkpointId = this.#nextId(now);
    const parentId = this.#parent;
    const input = {
      fence,
      threadId,
      ns: '',
      checkpointId,
      parentId,
      checkpoint: JSON.stringify({ id: checkpointId, channel_versions: { state: checkpointId } }),
      metadata: '{}',
      channels: [{ name: 'state', version: checkpointId, value: { json: JSON.stringify(state), messages: [] } }],
      facts: [
        {
          key: factKey.message('', messageId, messageId, checkpointId),
          body: { kind: 'message', ns: '', message: { type: 'ai', id: messageId, content: messageId } } as const,
        },
        {
          key: factKey.checkpoint('', checkpointId),
          body: { kind: 'checkpoint', ns: '', checkpointId, parentId, source: 'loop', step: state.step } as const,
        },
      ],
      now,
    };
    this.#parent = checkpointId;
    if (this.#writes !== null) return this.#writes.send({ kind: 'put', input });
    const answer = await retried(() => this.#stores.checkpoints.put(input), 4);
    if (answer.outcome === 'fenced') throw new ReindeerError('fenced', 'The checkpoint was refused.');
  }
}

/** Makes the graphs of one process. A run's input is its program; the graph follows it and acts on the simulated world. */
export function simulatedGraph(incarnation: Incarnation, checker: Checker): GraphFactory {
  const refuse = () => Promise.reject(new ReindeerError('not_implemented', 'The simulation reads its states itself.'));
  const readNothing = {
    getState: refuse,
    getStateHistory: () => {
      throw new ReindeerError('not_implemented', 'The simulation reads its states itself.');
    },
    stateKeys: ['state'],
  };
  const forAttempt = async (context: AttemptContext, saver: unknown): Promise<Graph> => {
    const own = saver as SimulatedSaver;
    const { runId, threadId } = context.run;
    const acting: ActingAttempt = {
      runId,
      threadId,
      token: own.fence?.token ?? '',
      attempt: context.attempt,
      incarnation,
      toldToStop: false,
    };
    checker.attemptBegins(acting);
    const follow = (input: unknown) => followProgram({ context, saver: own, acting, checker, incarnation, input });
    return { ...readNothing, stream: async (input) => follow(input), updateState: refuse };
  };
  /** An edit of the state by hand: it takes its time, and is one checkpoint. */
  const forState = async (saver: unknown): Promise<Graph> => ({
    ...readNothing,
    stream: refuse,
    updateState: async (config, values) => {
      const own = saver as SimulatedSaver;
      const head = (await own.head()) ?? { runId: '', program: { steps: [], failsAfter: null }, step: 0, done: [] };
      const { state } = values as { state: { id: string; takes: number } };
      await incarnation.work(state.takes);
      await own.put({ ...head, done: [...head.done, state.id] }, state.id);
      return config;
    },
  });
  return {
    assistantId: ASSISTANT,
    name: 'Simulated agent',
    description: 'Follows a program of steps and tools.',
    forAttempt,
    forState,
  };
}

interface Following {
  readonly context: AttemptContext;
  readonly saver: SimulatedSaver;
  readonly acting: ActingAttempt;
  readonly checker: Checker;
  readonly incarnation: Incarnation;
  readonly input: unknown;
}

async function* followProgram(following: Following): AsyncGenerator<[string[], string, unknown]> {
  const { context, saver, input, checker } = following;
  const { runId } = context.run;
  const head = await saver.head();
  let state: State;
  if (input !== null) {
    state = { runId, program: asProgram(context.run.request.input), step: 0, done: head?.done ?? [] };
    await saver.put(state, `${runId}.input`);
  } else if (head !== null && head.runId === runId) state = head;
  else {
    checker.lostState(following.acting, head?.runId ?? null);
    throw new ReindeerError('fenced', 'The state of this run is not at the head of its thread any more.');
  }

  for (;;) {
    const step = state.program.steps[state.step];
    if (step === undefined) return;
    if (state.program.failsAfter === state.step) throw new Error('The program fails here.');
    const messageId = `${runId}.${state.step}`;
    context.signal.throwIfAborted();
    yield [[], 'custom', { at: messageId }];
    await context.effects.track('model', () => {
      checker.act(following.acting, `model call ${messageId}`);
      return following.incarnation.surroundings.clock.sleep(step.thinking, context.signal);
    });
    await Promise.all(step.tools.map((tool, index) => runTool(following, messageId, index, tool)));
    context.signal.throwIfAborted();
    state = { ...state, step: state.step + 1, done: [...state.done, ...doneBy(messageId, step)] };
    await saver.put(state, messageId);
    yield [[], 'updates', { step: { at: state.step } }];
  }
}

const doneBy = (messageId: string, step: Step): string[] => [
  messageId,
  ...step.tools.map((_, index) => `${messageId}#${index}`),
];

/** One tool call as the loop makes it (D7): journalled, run at most once, unknown when its end is not known. */
async function runTool(following: Following, messageId: string, index: number, tool: Tool): Promise<void> {
  const { context, acting, checker, incarnation } = following;
  const call = { messageId, index, toolCallId: null, name: 'tool' };
  const begun = await context.journal.begin({ ...call, again: false });
  if (begun.outcome === 'finished') return;
  if (begun.outcome === 'fenced') throw new ReindeerError('fenced', 'The tool call was refused.');
  if (begun.outcome === 'unfinished') {
    if (!tool.repeatable) {
      await context.journal.finish({ messageId, index, outcome: 'unknown', result: 'unknown outcome' });
      return;
    }
    const again = await context.journal.begin({ ...call, again: true });
    if (again.outcome !== 'begin') return;
  }
  await context.effects.track('tool', async () => {
    checker.effect(acting, { messageId, index, repeatable: tool.repeatable });
    // A tool that does not listen to aborts: the worst kind.
    await incarnation.work(tool.duration);
  });
  await context.journal.finish({ messageId, index, outcome: 'ok', result: 'done' });
}
