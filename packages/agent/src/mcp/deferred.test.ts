import { HumanMessage } from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { MemorySaver } from '@langchain/langgraph';
import { verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { defineMiddleware } from '../loop/middleware.ts';
import { FakeModel, type Turn } from '../test-support/fake-model.ts';
import { runLoop } from '../test-support/run-loop.ts';
import { deferTools, search } from './deferred.ts';

const ran: string[] = [];
const make = (name: string, description: string) =>
  tool(
    () => {
      ran.push(name);
      return 'ran';
    },
    { name, description, schema: z.object({ city: z.string().optional() }) },
  );
const TOOLS = [
  make('maps_route', 'Finds a way between two places'),
  make('maps_place', 'Tells about a place'),
  make('mail_send', 'Sends a message to a person'),
  make('mail_list', 'Lists messages (a+b)'),
  ...Array.from({ length: 8 }, (_, at) => make(`files_${at}`, 'Works on files')),
];
const names = (query: string): string[] => search(TOOLS, query).map((one) => one.name);

describe('tool_search', () => {
  test('selects exactly, requires words in names, matches expressions and words', verifies('TOOL-12'), () => {
    expect(names('select:mail_send, files_3,nothing')).toEqual(['mail_send', 'files_3']);
    expect(names(`select:${TOOLS.map((one) => one.name).join(',')}`)).toHaveLength(TOOLS.length);
    expect(names('+mail person')).toEqual(['mail_send', 'mail_list']);
    expect(names('+nothing mail')).toEqual([]);
    expect(names('MAPS_.*e$')).toEqual(['maps_route', 'maps_place']);
    expect(names('files')).toHaveLength(5);
    expect(names('(a+b)')).toEqual(['mail_list']);
    expect(names('message person')).toEqual(['mail_send', 'mail_list']);
    expect(names('zebra')).toEqual([]);
  });

  test('an expression that would take long is taken as it is written', () => {
    const hostile = make('x', 'a'.repeat(4_000));
    const begun = performance.now();
    for (const query of ['(a+)+$', 'a*a*a*a*a*a*a*b', '(a|a)*b', '.*.*.*.*x']) search([hostile], query);
    expect(performance.now() - begun).toBeLessThan(1_000);
  });
});

describe('deferred tools', () => {
  const call = (name: string, args: Record<string, string> = {}): Turn => ({ calls: [{ name, args }] });

  async function play(turns: readonly Turn[], options: { version?: string; saver?: MemorySaver } = {}) {
    ran.length = 0;
    const deferred = deferTools({ version: options.version ?? 'v1', tools: TOOLS });
    const offered: string[][] = [];
    const watch = defineMiddleware({
      name: 'watch',
      wrapModelCall(request, handler) {
        offered.push(request.tools.map((one) => (one as { name: string }).name));
        return handler(request);
      },
    });
    const result = await runLoop({
      model: new FakeModel(turns),
      tools: [make('bash', 'Runs'), ...TOOLS, deferred.tool],
      middleware: [deferred.middleware, watch],
      input: [new HumanMessage('go')],
      ...(options.saver === undefined ? {} : { saver: options.saver }),
    });
    return { ...result, offered, deferred };
  }

  test(
    'are named in the prompt, offered only after a search, and refused before',
    verifies('TOOL-12', 'MW-25'),
    async () => {
      const { offered, messages, deferred, values } = await play([
        call('mail_send'),
        call('tool_search', { query: 'select:mail_send' }),
        call('mail_send'),
        { text: 'ok' },
      ]);
      expect(deferred.section).toContain('maps_route, maps_place');
      expect(offered.map((list) => list.length)).toEqual([2, 2, 3, 3]);
      expect(offered[2]).toEqual(['bash', 'mail_send', 'tool_search']);
      expect(messages[2]?.text).toMatch(/^Error: mail_send is not available yet.*select:mail_send/);
      expect(JSON.parse(messages[4]?.text ?? '')).toMatchObject([
        { name: 'mail_send', description: 'Sends a message to a person' },
      ]);
      expect(ran).toEqual(['mail_send']);
      expect(values.promoted).toEqual({ catalog_hash: 'v1', names: ['mail_send'] });
    },
  );

  test(
    'what was found under other tools counts no more; a search without a hit finds nothing',
    verifies('TOOL-12'),
    async () => {
      const saver = new MemorySaver();
      await play([call('tool_search', { query: 'select:mail_send' }), { text: 'ok' }], { saver });
      const later = await play([call('tool_search', { query: 'zebra' }), call('mail_send'), { text: 'ok' }], {
        saver,
        version: 'v2',
      });
      expect(later.offered[0]).toEqual(['bash', 'tool_search']);
      expect(ran).toEqual([]);
      expect(later.values.promoted).toEqual({ catalog_hash: 'v1', names: ['mail_send'] });
    },
  );
});
