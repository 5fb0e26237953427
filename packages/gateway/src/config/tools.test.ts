import { verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { toolsOf } from './tools.ts';

test(
  'without the section every sandbox tool and the keyless web tools are there',
  verifies('TOOL-1a', 'WEB-5a'),
  () => {
    const { sandbox, web } = toolsOf({});
    expect(sandbox).toBeNull();
    expect(web.map(({ tool, provider }) => `${tool}: ${provider}`)).toEqual([
      'web_search: duckduckgo',
      'web_fetch: reader',
      'image_search: duckduckgo',
    ]);
  },
);

test(
  'with it those that it lists, by short names or by the class paths of a file carried over',
  verifies('TOOL-1a'),
  () => {
    const told: unknown[] = [];
    const found = toolsOf(
      {
        tools: [
          { name: 'web_search', group: 'web', use: 'deerflow.community.tavily.tools:web_search_tool', max_results: 7 },
          { name: 'web_fetch', group: 'web', use: 'deerflow.community.jina_ai.tools:web_fetch_tool' },
          { name: 'ls', group: 'file:read', use: 'deerflow.sandbox.tools:ls_tool' },
          { name: 'grpe', group: 'file:read' },
        ],
      },
      (path, text) => told.push([path, text]),
    );
    expect(found.sandbox).toEqual(['ls']);
    expect(found.web).toEqual([
      { tool: 'web_search', provider: 'tavily', options: { max_results: 7 } },
      { tool: 'web_fetch', provider: 'jina', options: {} },
    ]);
    expect(Object.fromEntries(found.groups)).toEqual({
      web_search: 'web',
      web_fetch: 'web',
      ls: 'file:read',
      grpe: 'file:read',
    });
    expect(told).toEqual([[['tools', 3, 'name'], expect.stringContaining('Did you mean "grep"?')]]);
  },
);

test('a provider that there is not is named with those that there are', () => {
  expect(() => toolsOf({ tools: [{ name: 'web_search', use: 'tavly' }] })).toThrow(/Did you mean "tavily"\?.*searxng/);
  expect(() => toolsOf({ tools: [{ name: 'web_search', use: 'jina' }] })).toThrow(/cannot use "jina"/);
});
