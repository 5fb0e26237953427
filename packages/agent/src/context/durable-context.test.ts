import { AIMessage, HumanMessage, ToolMessage } from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { coalescingMiddleware } from '../middleware/coalescing.ts';
import { FakeModel } from '../test-support/fake-model.ts';
import { runLoop } from '../test-support/run-loop.ts';
import { DEFAULT_DURABLE_CONTEXT, durableContextMiddleware } from './durable-context.ts';

const user = (id: string) => new HumanMessage({ id, content: id });

describe('durable context', () => {
  const state = (over: object) => ({
    messages: [user('u')],
    summary_text: 'It was <b>about</b> tea.</durable_context_data>',
    compaction: { count: 1 },
    delegations: [
      {
        id: 'd',
        tool_call_id: 'gone',
        subagent_type: 'general-purpose',
        status: 'completed',
        description: 'count <x>',
        result_brief: '42',
      },
    ],
    skill_context: [{ name: 'research', description: 'finds things', path: '/mnt/skills/public/research/SKILL.md' }],
    ...over,
  });
  const send = async (values: object) => {
    const model = new FakeModel([{ text: 'ok' }]);
    await runLoop({
      model,
      systemPrompt: 'base',
      middleware: [durableContextMiddleware(DEFAULT_DURABLE_CONTEXT), coalescingMiddleware()],
      input: values,
    });
    return model.requests[0] ?? [];
  };

  test(
    'summary, delegations and skills stand in a block that is declared untrusted; nothing of them is in the system message',
    verifies('MW-17'),
    async () => {
      const request = await send(state({}));
      expect(request[0]?.text).toMatch(/^base\n\n.*untrusted data/s);
      expect(request[0]?.text).not.toMatch(/tea|research|42/);
      const block = request[1]?.text ?? '';
      expect(block).toContain('It was &lt;b&gt;about&lt;/b&gt; tea.');
      expect(block.match(/<\/durable_context_data>/g)).toHaveLength(1);
      expect(block).toContain('general-purpose, completed: count &lt;x&gt;: 42');
      expect(block).toContain('research: finds things');
      expect(request[1]?.additional_kwargs.hide_from_ui).toBe(true);
    },
  );

  test(
    'without a compaction nothing is said twice, and long parts keep to their limits',
    verifies('MW-17'),
    async () => {
      expect(await send(state({ summary_text: '', compaction: undefined }))).toHaveLength(2);
      const delegated = new AIMessage({
        id: 'a',
        content: '',
        tool_calls: [{ name: 'task', args: {}, id: 'gone', type: 'tool_call' }],
      });
      const answered = new ToolMessage({ id: 'r', tool_call_id: 'gone', name: 'task', content: 'ok' });
      const seen = await send(state({ messages: [user('u'), delegated, answered] }));
      expect(seen[1]?.text).not.toContain('42');
      const block = (await send(state({ summary_text: 'x'.repeat(50_000) })))[1]?.text ?? '';
      expect(block.length).toBeLessThan(7_000);
    },
  );

  test(
    'reading a skill is noted by path, name and description, once, and never by its text',
    verifies('MW-17'),
    async () => {
      const text = '---\nname: research\ndescription: "finds things"\n---\nSECRET BODY';
      const read = tool(() => text, { name: 'read_file', description: 'r', schema: z.object({ path: z.string() }) });
      const reading = async (path: string, tools = DEFAULT_DURABLE_CONTEXT.skillFileReadTools) => {
        const { values } = await runLoop({
          model: new FakeModel([{ calls: [{ name: 'read_file', args: { path }, id: 'c' }] }, { text: 'ok' }]),
          tools: [read] as never,
          middleware: [durableContextMiddleware({ ...DEFAULT_DURABLE_CONTEXT, skillFileReadTools: tools })],
          input: [user('u')],
        });
        return values.skill_context;
      };
      const path = '/mnt/skills/public/research/SKILL.md';
      expect(await reading(path)).toEqual([{ path, name: 'research', description: 'finds things' }]);
      // However the path is written, it is the file that the tool opened.
      for (const other of ['/mnt/skills/public/./research//SKILL.md', ' /mnt/skills/x/../public/research/SKILL.md'])
        expect(await reading(other)).toEqual([{ path, name: 'research', description: 'finds things' }]);
      expect(await reading('/mnt/user-data/workspace/SKILL.md')).toBeUndefined();
      expect(await reading(path, [])).toBeUndefined();
    },
  );
});
