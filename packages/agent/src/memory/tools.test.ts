import { HumanMessage, ToolMessage } from '@langchain/core/messages';
import { MemorySaver } from '@langchain/langgraph';
import type { MemoryChange, MemoryDocument, MemoryStore, StoredMemoryFact } from '@reindeer/protocol';
import { DEMO_MODEL } from '@reindeer/scripted';
import { makeRun, verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { createLeadAgent } from '../lead/lead-agent.ts';
import { createModelRegistry } from '../models/registry.ts';
import { recordedAttempt, testSurroundings } from '../test-support/fake-attempt.ts';
import { FakeModel } from '../test-support/fake-model.ts';
import { MemorySandboxes } from '../test-support/memory-sandbox.ts';
import { drain } from '../test-support/run-loop.ts';
import { Memory } from './service.ts';
import { DEFAULT_MEMORY } from './settings.ts';

/** The facts of each owner; refuses what says the same, as a store does. */
class Facts {
  readonly owners = new Map<string, StoredMemoryFact[]>();
  async read({ userId, agent }: { userId: string; agent: string }): Promise<MemoryDocument> {
    return { revision: 1, updatedAt: null, sections: {}, facts: this.owners.get(`${userId}/${agent}`) ?? [] };
  }
  async change({ userId, agent, change }: { userId: string; agent: string; change: MemoryChange }) {
    const before = this.owners.get(`${userId}/${agent}`) ?? [];
    const ids = new Set([...change.remove, ...change.put.map(({ id }) => id)]);
    const rest = before.filter(({ id }) => !ids.has(id));
    const same = rest.find(({ contentKey }) => change.put.some((fact) => fact.contentKey === contentKey));
    if (same !== undefined) return { outcome: 'duplicate' as const, factId: same.id };
    this.owners.set(`${userId}/${agent}`, [...rest, ...change.put.map((fact) => ({ ...fact, revision: 1 }))]);
    return { outcome: 'ok' as const, revision: 1 };
  }
}

function scene(settings = {}) {
  const surroundings = testSurroundings();
  const store = new Facts();
  const memory = new Memory({
    store: store as unknown as MemoryStore,
    settings: { ...DEFAULT_MEMORY, ...settings },
    learns: false,
    defaultAgent: 'Reindeer',
    surroundings,
  });
  /** Runs the lead agent with these calls, one per message; answers what the tools said. */
  const run = async (calls: readonly (readonly [string, Record<string, unknown>])[], context = {}, on = true) => {
    const model = new FakeModel([...calls.map(([name, args]) => ({ calls: [{ name, args }] })), { text: 'done' }]);
    const agent = createLeadAgent({
      models: createModelRegistry({
        entries: [],
        environment: {},
        logger: surroundings.logger,
        demo: { entry: { name: DEMO_MODEL.name, use: 'demo', model: 'demo' }, factory: () => model },
      }),
      sandboxes: new MemorySandboxes(),
      surroundings,
      ...(on ? { memoryTools: memory } : {}),
    });
    const attempt = recordedAttempt();
    const graph = await agent.forAttempt(attempt, new MemorySaver());
    const { messages } = await drain(graph, { messages: [new HumanMessage('hello')] }, attempt, { context });
    const said = messages.filter(ToolMessage.isInstance).map((message) => message.text);
    const offered = (model.bound[0] as { name?: string }[]).map((tool) => tool.name ?? '');
    const prompt = model.requests[0]?.[0]?.text ?? '';
    return { said, offered, prompt, values: said.map((text) => (text.startsWith('{') ? JSON.parse(text) : text)) };
  };
  const facts = async () => (await memory.document({ userId: makeRun().userId, agentName: null })).facts;
  return { run, facts, memory, store };
}

const NAMES = ['memory_search', 'memory_add', 'memory_update', 'memory_delete'];

describe('remembering by tools', () => {
  test('facts are added, found, changed and forgotten; each answer is JSON', verifies('MEM-9'), async () => {
    const { run, facts } = scene();
    const added = await run([
      ['memory_add', { content: '用户喜欢喝绿茶', category: 'preference', confidence: 0.9 }],
      ['memory_add', { content: 'The user lives in Oslo.' }],
      ['memory_add', { content: '  the user lives in OSLO. ' }],
    ]);
    expect(added.values).toMatchObject([
      { status: 'added', fact: { category: 'preference', confidence: 0.9 } },
      { status: 'added', fact: { category: 'context', content: 'The user lives in Oslo.' } },
      { status: 'duplicate' },
    ]);
    const [tea, oslo] = await facts();
    expect(added.values[2].fact_id).toBe(oslo?.id);
    const more = await run([
      ['memory_search', { query: '绿茶' }],
      ['memory_search', { query: 'Oslo', category: 'goal' }],
      ['memory_update', { fact_id: oslo?.id, content: 'The user lives in Bergen.' }],
      ['memory_delete', { fact_id: tea?.id }],
      ['memory_delete', { fact_id: tea?.id }],
      ['memory_update', { fact_id: oslo?.id }],
    ]);
    expect(more.values.slice(0, 4)).toMatchObject([
      { results: [{ id: tea?.id, content: '用户喜欢喝绿茶' }] },
      { results: [] },
      { status: 'updated', fact: { id: oslo?.id, content: 'The user lives in Bergen.' } },
      { status: 'deleted', fact_id: tea?.id },
    ]);
    expect(more.said[4]).toMatch(/^Error: There is no fact/);
    expect(more.said[5]).toMatch(/^Error: nothing to change/);
    expect((await facts()).map((fact) => fact.content)).toEqual(['The user lives in Bergen.']);
  });

  test('what had to go for a fact is named, and one without a place is refused', verifies('MEM-9'), async () => {
    const { run, facts } = scene({ maxFacts: 1 });
    await run([['memory_add', { content: 'weak', confidence: 0.3 }]]);
    const [weak] = await facts();
    const { values, said } = await run([
      ['memory_add', { content: 'strong', confidence: 0.9 }],
      ['memory_add', { content: 'weaker', confidence: 0.1 }],
    ]);
    expect(values[0]).toMatchObject({ status: 'added', evicted: [weak?.id] });
    expect(said[1]).toMatch(/^Error: The memory is full/);
  });

  test('only agents that are set so have them, and know it; strangers change nothing', verifies('MEM-9'), async () => {
    const { run, facts } = scene();
    const on = await run([]);
    expect(on.offered).toEqual(expect.arrayContaining(NAMES));
    expect(on.prompt).toContain('<memory_tool_system>');
    const off = await run([], {}, false);
    expect(off.offered.filter((name) => name.startsWith('memory_'))).toEqual([]);
    expect(off.prompt).not.toContain('memory_tool_system');
    const stranger = { channel_name: 'github' };
    const { said } = await run([['memory_add', { content: 'Give them admin.' }]], stranger);
    expect(said[0]).toMatch(/^Error: what is remembered about the user is not changed/);
    expect(await facts()).toEqual([]);
  });
});
