import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { HumanMessage } from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { MemorySaver } from '@langchain/langgraph';
import { verifies } from '@reindeer/testkit';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { createLeadAgent } from '../lead/lead-agent.ts';
import { createModelRegistry } from '../models/registry.ts';
import { recordedAttempt, testSurroundings } from '../test-support/fake-attempt.ts';
import { FakeModel } from '../test-support/fake-model.ts';
import { MemorySandboxes } from '../test-support/memory-sandbox.ts';
import { drain } from '../test-support/run-loop.ts';
import { ownTool } from './own-tool.ts';
import { ThreadCalls } from './thread-calls.ts';

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'reindeer-own-tool-'));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

/** A module on disk; answers its URL. */
async function module(text: string): Promise<string> {
  const file = join(folder, 'tools.mjs');
  await writeFile(file, text);
  return pathToFileURL(file).href;
}
const options = (url = '', name = 'made') => ({
  name: 'count',
  source: { url, name, options: { start: 40 } },
  secrets: ['hush-hush-1'],
  timeoutMs: 5_000,
});
const nothing = (): string => '';
const PARAMETERS = { type: 'object', properties: { by: { type: 'number' } }, required: ['by'] };

/** One run in which the model calls the tool with these arguments. */
async function call(made: unknown, args: Record<string, unknown>, given = options()) {
  const surroundings = testSurroundings();
  const model = new FakeModel([{ calls: [{ name: 'count', args, id: 'c1' }] }, { text: 'done' }]);
  const agent = createLeadAgent({
    models: createModelRegistry({
      entries: [{ name: 'm', use: 'fake', model: 'm' }],
      environment: {},
      logger: surroundings.logger,
      factories: { fake: () => model },
    }),
    sandboxes: new MemorySandboxes(),
    surroundings,
    tools: [ownTool(made, given)],
  });
  const attempt = recordedAttempt();
  const graph = await agent.forAttempt(attempt, new MemorySaver());
  const { messages } = await drain(graph, { messages: [new HumanMessage('go')] }, attempt);
  return messages.find((message) => message.type === 'tool')?.text ?? '';
}

describe('a tool of the operator’s own', () => {
  test('may answer at once or later, text or a value, and sees whose run it is', verifies('TOOL-18'), async () => {
    const base = { description: 'Counts.', parameters: PARAMETERS };
    expect(await call({ ...base, run: ({ by }: { by: number }) => `now ${by}` }, { by: 2 })).toBe('now 2');
    expect(await call({ ...base, run: async ({ by }: { by: number }) => ({ by }) }, { by: 3 })).toBe('{"by":3}');
    const seen: Record<string, unknown>[] = [];
    const watched = {
      ...base,
      run: (_: unknown, context: Record<string, unknown>) => {
        seen.push(context);
        return 'the key is hush-hush-1';
      },
    };
    // Values that are secret do not come out.
    expect(await call(watched, { by: 1 })).not.toContain('hush-hush-1');
    expect(seen).toMatchObject([{ callId: 'c1', userId: expect.any(String), threadId: expect.any(String) }]);
    expect(seen[0]?.signal).toBeInstanceOf(AbortSignal);
    // The model is offered the arguments alone.
    const schema = z.toJSONSchema(ownTool(watched, options()).schema as z.ZodObject);
    expect(schema).toMatchObject({ ...PARAMETERS, additionalProperties: false });
  });

  test('what it throws, and arguments that do not fit, are told to the model', verifies('TOOL-18'), async () => {
    const failing = {
      description: 'Counts.',
      parameters: PARAMETERS,
      run: (): string => {
        throw new Error('no numbers left');
      },
    };
    expect(await call(failing, { by: 1 })).toMatch(/no numbers left/);
    expect(await call({ ...failing, run: () => 'fine' }, { by: 'two' })).toMatch(/^Error.*by: .*number/s);
  });

  test('a tool of LangChain is taken as it is', verifies('TOOL-18'), async () => {
    const made = tool(({ by }) => `lang ${by}`, {
      name: 'count',
      description: 'Counts.',
      schema: z.object({ by: z.number() }),
    });
    expect(ownTool(made, options())).toBe(made);
    expect(await call(made, { by: 4 })).toBe('lang 4');
  });

  test('one that takes the processor runs in a thread, from its module', verifies('TOOL-18'), async () => {
    const text = `export const made = ({ start }) => ({ description: 'Counts.', thread: true,
      parameters: { type: 'object', properties: { by: { type: 'number' } } },
      run: ({ by }, context) => [start + by, process.getuid !== undefined, Object.keys(context)].join(' ') });`;
    const url = await module(text);
    const { made } = (await import(url)) as { made(given: object): unknown };
    expect(await call(made({ start: 0 }), { by: 2 }, options(url))).toBe('42 true userId,threadId,runId,callId');
  });

  test.each([
    ['no tool', 'text', /it is no tool/],
    ['no description', { parameters: PARAMETERS, run: nothing }, /description must say/],
    [
      'other parameters',
      { description: 'x', parameters: { type: 'string' }, run: nothing },
      /JSON Schema of an object/,
    ],
    ['no function', { description: 'x', parameters: PARAMETERS }, /run must be a function/],
  ])('with %s it is refused', verifies('TOOL-18'), (_, made, message) => {
    expect(() => ownTool(made, options())).toThrow(message);
  });
});

describe('threads', () => {
  const endless = `export const made = { run: () => { for (;;); } };
    export const broken = { run: () => { throw new Error('not today'); } };
    export const leaving = { run: () => process.exit(0) };`;

  test('an abort ends the thread, also one that never looks up', verifies('TOOL-18'), async () => {
    const calls = new ThreadCalls({ url: await module(endless), name: 'made', options: {} });
    const stop = new AbortController();
    const all = Array.from({ length: 4 }, () => calls.call({}, {}, stop.signal));
    await expect(calls.call({}, {}, stop.signal)).rejects.toMatchObject({ code: 'over_capacity' });
    stop.abort(new Error('enough'));
    expect((await Promise.allSettled(all)).map((one) => one.status)).toEqual(Array(4).fill('rejected'));
    // The places are free again.
    const again = new AbortController();
    const next = calls.call({}, {}, again.signal);
    again.abort(new Error('enough'));
    await expect(next).rejects.toThrow('enough');
  });

  test('what it throws, and a thread that leaves, are failures of the tool', verifies('TOOL-18'), async () => {
    const url = await module(endless);
    const { signal } = new AbortController();
    const ask = (name: string) => new ThreadCalls({ url, name, options: {} }).call({}, {}, signal);
    await expect(ask('broken')).rejects.toMatchObject({ code: 'tool_failed', message: 'not today' });
    await expect(ask('leaving')).rejects.toMatchObject({
      code: 'tool_failed',
      message: expect.stringContaining('without'),
    });
    await expect(ask('nothing')).rejects.toMatchObject({ code: 'tool_failed' });
  });
});
