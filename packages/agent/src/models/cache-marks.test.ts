import { AIMessage, HumanMessage, SystemMessage, ToolMessage } from '@langchain/core/messages';
import { NO_LOG } from '@reindeer/protocol';
import { startScriptedProvider } from '@reindeer/scripted';
import { verifies } from '@reindeer/testkit';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { withCacheMarks } from './cache-marks.ts';
import { createModelRegistry } from './registry.ts';

const mark = { cache_control: { type: 'ephemeral' } };

test(
  'a real request has its marks behind tools, system prompt and the last two of the user’s side',
  verifies('MOD-5b'),
  async () => {
    const provider = await startScriptedProvider({ script: () => ({ text: 'ok' }) });
    try {
      const entry = { use: 'anthropic', model: 'claude-sonnet-4-5', api_key: 'k', base_url: provider.url };
      const registry = createModelRegistry({
        entries: [
          { name: 'marked', ...entry },
          { name: 'plain', ...entry, prompt_caching: false },
        ],
        environment: {},
        logger: NO_LOG,
      });
      const history = [
        new SystemMessage('You help.'),
        new HumanMessage('go'),
        new AIMessage({ content: '', tool_calls: [{ id: 'a', name: 'ls', args: {} }] }),
        new ToolMessage({ tool_call_id: 'a', content: 'files' }),
      ];
      const tool = (name: string) => ({
        name,
        description: name,
        input_schema: { type: 'object' as const, properties: {} },
      });
      for (const name of ['marked', 'plain']) {
        const { model } = await registry.choose({ name });
        const bound = model.bindTools?.([tool('ls'), tool('cat')] as never);
        for await (const _ of (await bound?.stream(history)) ?? []) {
          // Only the request matters here.
        }
      }
      const [marked, plain] = provider.requests().map(({ body }) => body ?? {});
      expect(marked).toMatchObject({
        system: [{ type: 'text', text: 'You help.', ...mark }],
        tools: [{ name: 'ls' }, { name: 'cat', ...mark }],
        messages: [
          { role: 'user', content: [{ type: 'text', text: 'go', ...mark }] },
          { role: 'assistant' },
          { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'a', ...mark }] },
        ],
      });
      expect(JSON.stringify(marked).match(/cache_control/g)).toHaveLength(4);
      expect(JSON.stringify(plain)).not.toContain('cache_control');
    } finally {
      await provider.close();
    }
  },
);

test('never more than four, none on thinking or nothing, and nothing else changes', verifies('MOD-5b'), () => {
  const block = fc.constantFrom(
    { type: 'text', text: 'words' },
    { type: 'text', text: ' ' },
    { type: 'thinking', thinking: 'hm', signature: 's' },
    { type: 'tool_use', id: 'a', name: 'ls', input: {} },
    { type: 'tool_result', tool_use_id: 'a', content: 'x' },
    { type: 'image', source: {} },
  );
  const message = fc.record({
    role: fc.constantFrom('user', 'assistant'),
    content: fc.oneof(fc.constantFrom('words', ''), fc.array(block, { maxLength: 4 })),
  });
  const request = fc.record({
    system: fc.constantFrom(undefined, '', 'You help.', [{ type: 'text', text: 'You help.' }]),
    tools: fc.array(fc.constantFrom({ name: 'ls' }, { name: 'cat' }), { maxLength: 3 }),
    messages: fc.array(message, { maxLength: 8 }),
  });
  fc.assert(
    fc.property(request, (given) => {
      const before = JSON.stringify(given);
      const marked = withCacheMarks(given);
      expect(JSON.stringify(given)).toBe(before);
      const blocks = [marked.system, marked.tools, ...marked.messages.map(({ content }) => content)].flatMap((part) =>
        Array.isArray(part) ? (part as Record<string, unknown>[]) : [],
      );
      const found = blocks.filter((one) => one.cache_control !== undefined);
      expect(found.length).toBeLessThanOrEqual(4);
      for (const one of found)
        expect(one.type === 'thinking' || (one.type === 'text' && String(one.text).trim() === '')).toBe(false);
      if (found.length > 0) expect(withCacheMarks(marked)).toBe(marked);
    }),
  );
});

test('marks of somebody else stay alone', () => {
  const given = {
    messages: [
      { role: 'user', content: [{ type: 'text', text: 'a', ...mark }] },
      { role: 'user', content: 'b' },
    ],
  };
  expect(withCacheMarks(given)).toBe(given);
});
