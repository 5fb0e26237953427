import { AIMessage } from '@langchain/core/messages';
import { Annotation, END, interrupt, START, StateGraph } from '@langchain/langgraph';
import type { BaseCheckpointSaver } from '@langchain/langgraph-checkpoint';
import { MemoryDatabase } from '@reindeer/database';
import type { Graph, GraphFactory, JsonObject, Stores } from '@reindeer/protocol';
import { deferred, flush, testSurroundings, VirtualClock, verifies, withFaults } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { ScriptState, scriptedFactory } from '../testing/scripted-graph.ts';
import { collect, gated, human, messagesOf, texts, USER, world } from '../testing/world.ts';

type Node = (state: typeof ScriptState.State, config: JsonObject) => Promise<Partial<typeof ScriptState.State>>;

/** A graph of nodes in a row. */
function inARow(nodes: Record<string, Node>, stateKeys = ['messages', 'title']): GraphFactory {
  const build = (saver: unknown): Graph => {
    const graph = new StateGraph(ScriptState) as unknown as StateGraph<
      typeof ScriptState,
      typeof ScriptState.State,
      unknown,
      string
    >;
    const names = Object.keys(nodes);
    for (const [name, node] of Object.entries(nodes)) graph.addNode(name, node as never);
    const chain = [START, ...names, END];
    for (let i = 1; i < chain.length; i += 1) graph.addEdge(chain[i - 1] as never, chain[i] as never);
    const compiled = graph.compile({ checkpointer: saver as BaseCheckpointSaver });
    return Object.assign(compiled as unknown as Graph, { stateKeys });
  };
  return {
    assistantId: 'row',
    name: 'row',
    description: '',
    forAttempt: async (_attempt, saver) => build(saver),
    forState: async (saver) => build(saver),
  };
}

const say = (id: string, content: string) => ({ messages: [new AIMessage({ id, content })] });

const HEAD = { threadId: 'thread-1', userId: USER, checkpointId: null, subgraphs: false };

describe('what a graph does and how its run ends', () => {
  test('an interrupt ends the run, the thread reads interrupted, and an answer resumes it', async () => {
    const w = world({
      factory: inARow({ ask: async () => say('a', `you chose ${String(interrupt({ question: 'which?' }))}`) }),
    });
    await w.runtime.start();
    const run = await w.admitted({ request: { streamModes: ['values', 'updates'] } });
    const events = await collect(w.read(run));
    const shown = events
      .filter(({ data }) => data.includes('__interrupt__'))
      .map(({ event, data }) => [event, JSON.parse(data).__interrupt__]);
    // Both events are one fact; only the last carries its id, or a connection that breaks between them would lose it.
    expect(events.filter(({ data }) => data.includes('__interrupt__')).map(({ id }) => id === null)).toEqual([
      true,
      false,
    ]);
    expect(shown).toEqual([
      ['updates', [{ id: expect.any(String), value: { question: 'which?' } }]],
      ['values', [{ id: expect.any(String), value: { question: 'which?' } }]],
    ]);
    expect(await w.ended(run)).toMatchObject({ status: 'success', stopReason: 'interrupt' });
    expect(await w.runtime.threads.get({ threadId: 'thread-1', userId: USER })).toMatchObject({
      status: 'interrupted',
    });
    const state = await w.runtime.threads.state({
      threadId: 'thread-1',
      userId: USER,
      checkpointId: null,
      subgraphs: false,
    });
    expect(state).toMatchObject({
      next: ['ask'],
      interrupts: [{ value: { question: 'which?' } }],
      tasks: [{ name: 'ask', interrupts: [{}] }],
    });
    const answer = await w.admitted({ request: { input: null, command: { resume: 'the red one' } } });
    expect(await w.ended(answer)).toMatchObject({ status: 'success', stopReason: null });
    expect(await messagesOf(w)).toEqual(['hello', 'you chose the red one']);
    expect(await w.runtime.threads.get({ threadId: 'thread-1', userId: USER })).toMatchObject({ status: 'idle' });
    await w.runtime.stop();
  });

  test.each(['while the node works on', 'when the node has asked its second question'])(
    'a crash after an answer does not answer the second question with it: %s',
    async (when) => {
      const early = when === 'while the node works on';
      const database = new MemoryDatabase(testSurroundings({ seed: 7 }).random);
      const clock = new VirtualClock();
      const reached = deferred();
      let holding = early;
      const factory = inARow({
        ask: async () => {
          const first = String(interrupt('first?'));
          if (holding) {
            reached.resolve();
            await new Promise(() => undefined);
          }
          return say('a', `first ${first}, second ${String(interrupt('second?'))}`);
        },
      });
      let dead = false;
      const cut = (stores: Stores) =>
        withFaults(stores, () => (dead ? { delayBefore: new Promise(() => undefined) } : null));
      const a = world({ factory, database, clock, stores: cut });
      await a.runtime.start();
      await a.ended(await a.admitted());
      const gate = early ? null : a.surroundings.probe.hold('run.before-finalize');
      const answer = await a.admitted({ request: { input: null, command: { resume: 'yes' } } });
      await (gate === null ? reached.promise : gate.reached);
      dead = true;
      holding = false;
      const b = world({ factory, database, clock, seed: 2 });
      await b.runtime.start();
      expect(await b.ended(answer)).toMatchObject({ status: 'success', stopReason: 'interrupt', attempt: 2 });
      expect(await b.runtime.threads.state(HEAD)).toMatchObject({ interrupts: [{ value: 'second?' }] });
      await b.ended(await b.admitted({ request: { input: null, command: { resume: 'no' } } }));
      expect(await messagesOf(b)).toEqual(['hello', 'first yes, second no']);
      await b.runtime.stop();
    },
  );

  test('a run without an answer does not answer with an older one', async () => {
    const w = world({
      factory: inARow({ ask: async () => say('a', `${String(interrupt('first?'))}, ${String(interrupt('second?'))}`) }),
    });
    await w.runtime.start();
    await w.ended(await w.admitted());
    await w.ended(await w.admitted({ request: { input: null, command: { resume: 'yes' } } }));
    expect(await w.ended(await w.admitted({ request: { input: null } }))).toMatchObject({ stopReason: 'interrupt' });
    expect(await w.runtime.threads.state(HEAD)).toMatchObject({ interrupts: [{ value: 'second?' }] });
    await w.runtime.stop();
  });

  test('a breakpoint is an interrupt without a value', async () => {
    const w = world({ factory: inARow({ one: async () => say('1', 'one'), two: async () => say('2', 'two') }) });
    await w.runtime.start();
    const run = await w.admitted({ request: { interruptBefore: ['two'], streamModes: ['values', 'updates'] } });
    const events = await collect(w.read(run));
    expect(events.filter(({ data }) => data === '{"__interrupt__":[]}').map(({ event }) => event)).toEqual([
      'updates',
      'values',
    ]);
    expect(await w.ended(run)).toMatchObject({ status: 'success', stopReason: 'interrupt' });
    const on = await w.admitted({ request: { input: null } });
    expect(await w.ended(on)).toMatchObject({ status: 'success', stopReason: null });
    expect(await messagesOf(w)).toEqual(['hello', 'one', 'two']);
    await w.runtime.stop();
  });

  test('too many steps are said plainly', async () => {
    const w = world({ script: { model: () => ({ text: 'again', calls: [{ name: 'x' }] }) } });
    await w.runtime.start();
    const run = await w.admitted({ request: { config: { recursion_limit: 5 } } });
    const events = await collect(w.read(run));
    const error = JSON.parse(events.find(({ event }) => event === 'error')?.data ?? '{}');
    expect(error).toMatchObject({ error: 'RunError', message: expect.stringContaining('limit of 5 steps') });
    expect(events.at(-1)?.event).toBe('end');
    expect(await w.ended(run)).toMatchObject({ status: 'error', stopReason: 'loop_capped' });
    await w.runtime.stop();
  });

  test('a throwing node makes an error of the run, with its text and without a stack', async () => {
    const w = world({ factory: inARow({ bad: () => Promise.reject(new Error('no luck')) }) });
    await w.runtime.start();
    const run = await w.admitted();
    expect(await w.ended(run)).toMatchObject({ status: 'error', error: 'no luck' });
    expect(await w.runtime.threads.get({ threadId: 'thread-1', userId: USER })).toMatchObject({ status: 'error' });
    await w.runtime.stop();
  });

  test(
    'a graph that reports a failure of its own, and the first stop reason, are kept; the next run is judged by itself',
    verifies('RT-15'),
    async () => {
      let failed = false;
      const w = world({
        script: {
          model: (_messages, context) => {
            if (failed) return { text: 'better' };
            failed = true;
            context.stopReason('token_capped');
            context.stopReason('second');
            context.fail('the provider gave up');
            return { text: 'sorry' };
          },
        },
      });
      await w.runtime.start();
      expect(await w.ended(await w.admitted())).toMatchObject({
        status: 'error',
        error: 'the provider gave up',
        stopReason: 'token_capped',
      });
      expect(await messagesOf(w)).toEqual(['hello', 'sorry']);
      expect(await w.ended(await w.admitted())).toMatchObject({ status: 'success', stopReason: null });
      await w.runtime.stop();
    },
  );

  test('a run that takes too long ends as timeout', async () => {
    const g = gated();
    const w = world({ script: g.script, settings: { runTimeoutMs: 60_000 } });
    await w.runtime.start();
    const run = await w.admitted();
    await g.asked;
    await w.surroundings.clock.advance(60_000);
    expect(await w.ended(run)).toMatchObject({ status: 'timeout' });
    const events = await collect(w.read(run));
    expect(events.at(-2)).toMatchObject({ event: 'error', data: expect.stringContaining('TimeoutError') });
    await w.runtime.stop();
    expect(w.surroundings.clock.sleeping).toBe(0);
  });

  test('nothing to continue is said plainly', async () => {
    const w = world();
    await w.runtime.start();
    expect(await w.ended(await w.admitted({ request: { input: null } }))).toMatchObject({
      status: 'error',
      error: expect.stringContaining('nothing to continue'),
    });
    await w.runtime.stop();
  });

  test('what belongs to the server cannot be set by the caller', verifies('RT-16'), async () => {
    const seen: JsonObject[] = [];
    const w = world({
      factory: inARow({
        look: async (_state, config) => {
          seen.push(config);
          return {};
        },
      }),
    });
    await w.runtime.start();
    const evil = {
      thread_id: 'other',
      run_id: 'fake',
      user_id: 'eve',
      checkpoint_id: 'x',
      __pregel_resuming: true,
      model_name: 'm',
    };
    const run = await w.admitted({
      metadata: { run_id: 'fake' },
      request: { config: { configurable: evil, recursion_limit: 9_999 }, context: evil },
    });
    expect(await w.ended(run)).toMatchObject({ status: 'success' });
    const { configurable, context, metadata, recursionLimit } = seen[0] as unknown as Record<
      string,
      Record<string, unknown>
    >;
    for (const part of [configurable, context]) {
      expect(part).toMatchObject({ thread_id: 'thread-1', run_id: run.runId, user_id: USER, model_name: 'm' });
    }
    expect(metadata).toMatchObject({ run_id: run.runId });
    expect(recursionLimit).toBe(1_000);
    await w.runtime.stop();
  });

  test('a run may begin at an older checkpoint; its rollback goes back to the head of before', async () => {
    const g = gated();
    let turn = 0;
    const w = world({
      script: {
        model: (messages, context) => {
          turn += 1;
          return turn < 3 ? { text: `answer ${turn}` } : g.script.model(messages, context);
        },
      },
    });
    await w.runtime.start();
    await w.ended(await w.admitted());
    const old = await w.runtime.threads.state({
      threadId: 'thread-1',
      userId: USER,
      checkpointId: null,
      subgraphs: false,
    });
    await w.ended(await w.admitted({ request: { input: { messages: [human('two')] } } }));
    const fork = await w.admitted({
      request: { input: { messages: [human('other')] }, checkpointId: old?.checkpoint.checkpoint_id ?? null },
    });
    await g.asked;
    expect(await messagesOf(w)).toEqual(['hello', 'answer 1', 'other']);
    await w.cancel(fork, 'rollback', true);
    expect(await messagesOf(w)).toEqual(['hello', 'answer 1', 'two', 'answer 2']);
    await w.runtime.stop();
  });

  test('sub-graphs stream only to those who asked, under their namespace', verifies('RS-01'), async () => {
    const Inner = Annotation.Root({ messages: ScriptState.spec.messages });
    const inner = new StateGraph(Inner)
      .addNode('deep', async (_state, config) => {
        config.writer?.({ from: 'deep' });
        return say('inner', 'from inside');
      })
      .addEdge(START, 'deep')
      .addEdge('deep', END)
      .compile();
    const build = (saver: unknown): Graph => {
      const graph = new StateGraph(ScriptState)
        .addNode('outer', inner)
        .addEdge(START, 'outer')
        .addEdge('outer', END)
        .compile({ checkpointer: saver as BaseCheckpointSaver });
      return Object.assign(graph as unknown as Graph, { stateKeys: ['messages', 'title'] });
    };
    const factory: GraphFactory = {
      assistantId: 'nested',
      name: '',
      description: '',
      forAttempt: async (_attempt, saver) => build(saver),
      forState: async (saver) => build(saver),
    };
    for (const streamSubgraphs of [false, true]) {
      const w = world({ factory });
      await w.runtime.start();
      const run = await w.admitted({ request: { streamSubgraphs, streamModes: ['values', 'updates', 'custom'] } });
      const events = await collect(w.read(run));
      const names = events.map(({ event }) => event.replace(/:.*/, ''));
      expect(names.includes('updates|outer')).toBe(streamSubgraphs);
      expect(names.includes('custom|outer')).toBe(streamSubgraphs);
      expect(names).not.toContain('custom');
      expect(texts(events)).toEqual(['hello', 'from inside']);
      await w.runtime.stop();
    }
  });

  test('an assistant that is gone after a restart is named in the error', async () => {
    const database = new MemoryDatabase(testSurroundings({ seed: 7 }).random);
    const clock = new VirtualClock();
    let dead = false;
    const a = world({
      database,
      clock,
      stores: (stores) => withFaults(stores, () => (dead ? { delayBefore: new Promise(() => undefined) } : null)),
    });
    const gate = a.surroundings.probe.hold('run.attached');
    const run = await a.admitted();
    await gate.reached;
    dead = true;
    const b = world({ database, clock, seed: 2, factory: scriptedFactory({ model: () => ({ text: '' }) }, 'other') });
    await b.runtime.start();
    expect(await b.ended(run)).toMatchObject({
      status: 'error',
      error: expect.stringContaining('no assistant "scripted"'),
    });
    await b.runtime.stop();
    await flush();
  });
});
