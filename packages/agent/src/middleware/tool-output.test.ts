import { HumanMessage, ToolMessage } from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { NO_LOG, ReindeerError } from '@reindeer/protocol';
import { verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { FakeModel } from '../test-support/fake-model.ts';
import { MemorySandboxes } from '../test-support/memory-sandbox.ts';
import { runLoop } from '../test-support/run-loop.ts';
import { coreTools, DEFAULT_CORE_TOOLS } from '../tools/core-tools.ts';
import { synopsisOf } from './synopsis.ts';
import { DEFAULT_TOOL_OUTPUT, EXTERNALIZED, type ToolOutputSettings, toolOutputMiddleware } from './tool-output.ts';

const middleware = (settings: Partial<ToolOutputSettings> = {}) =>
  toolOutputMiddleware({ settings: { ...DEFAULT_TOOL_OUTPUT, ...settings }, pathStyle: 'virtual', logger: NO_LOG });

async function run(
  output: unknown,
  options: { name?: string; settings?: Partial<ToolOutputSettings>; sandboxes?: MemorySandboxes } = {},
) {
  const { name = 'big', sandboxes = new MemorySandboxes() } = options;
  const made = tool((() => output) as never, { name, description: name, schema: z.object({}) } as never);
  const model = new FakeModel([{ calls: [{ name, args: {}, id: 'c' }] }, { text: 'ok' }]);
  const outcome = await runLoop({
    model,
    tools: [made] as never,
    middleware: [middleware(options.settings)],
    sandboxes,
    input: [new HumanMessage('go')],
  });
  const message = outcome.messages.find(ToolMessage.isInstance);
  if (message === undefined) throw new Error('no result');
  return { message, sandboxes, model };
}

describe('the budget of a result', () => {
  test(
    'a long result lies in a file that read_file reads; the model gets what it is, head, tail and the path',
    verifies('MW-2'),
    async () => {
      const text = Array.from({ length: 60_000 }, (_, index) => `${index} some words of a line`).join('\n');
      expect(text.length).toBeGreaterThan(1_200_000);
      const { message, sandboxes } = await run(text, { name: 'web/../fetch' });
      expect(message.text.length).toBeLessThan(5_000);
      const { path, characters } = message.additional_kwargs[EXTERNALIZED] as { path: string; characters: number };
      expect(path).toMatch(/^\/mnt\/user-data\/outputs\/\.tool-results\/web_fetch-[0-9a-f]{12}\.txt$/);
      expect(characters).toBe(text.length);
      expect(sandboxes.text(path)).toBe(text);
      expect(message.text).toContain(path);
      expect(message.text).toContain(String(text.length));
      expect(message.text).toContain('0 some words');
      // Whole lines: what is cut off in the middle reads as something else.
      for (const line of message.text.split('\n').filter((words) => /some/.test(words)))
        expect(line).toMatch(/^\d+ some words of a line$/);
      expect(message.text).toContain('59999 some words');
      expect(message.text).toContain('read_file');
      expect(message.text).toMatch(/^Type: text\. /m);
      // The reference really opens.
      const [reader] = coreTools(DEFAULT_CORE_TOOLS, { canExecute: false, pathStyle: 'virtual' }).filter(
        (candidate) => candidate.name === 'read_file',
      );
      const model = new FakeModel([
        {
          calls: [
            { name: 'read_file', args: { description: 'x', path, start_line: 30_001, end_line: 30_001 }, id: 'r' },
          ],
        },
        { text: 'ok' },
      ]);
      const read = await runLoop({
        model,
        tools: [reader] as never,
        middleware: [middleware()],
        sandboxes,
        input: [new HumanMessage('go')],
      });
      expect(read.messages.find(ToolMessage.isInstance)?.text).toBe('30000 some words of a line');
    },
  );

  test(
    'exactly at the limit passes; exempt tools and an override of 0 never go to a file',
    verifies('MW-2'),
    async () => {
      const exact = 'x'.repeat(DEFAULT_TOOL_OUTPUT.externalizeMinCharacters);
      expect((await run(exact)).message.text).toBe(exact);
      const over = `${exact}x`;
      expect((await run(over)).message.text).not.toBe(over);
      expect((await run(over, { name: 'read_file' })).message.text).toBe(over);
      expect((await run(over, { settings: { toolOverrides: { big: 0 } } })).message.text).toBe(over);
      expect((await run(over, { settings: { enabled: false } })).message.text).toBe(over);
      expect((await run('x'.repeat(600), { settings: { toolOverrides: { big: 500 } } })).message.text).toContain(
        '600 characters',
      );
    },
  );

  test('texts of several blocks are one result; one with a picture is left alone', verifies('MW-2'), async () => {
    const block = (text: string) => ({ type: 'text', text });
    const texts = new ToolMessage({ tool_call_id: 'c', content: [block('a'.repeat(9_000)), block('b'.repeat(9_000))] });
    const { message, sandboxes } = await run(texts);
    const { path } = message.additional_kwargs[EXTERNALIZED] as { path: string };
    expect(sandboxes.text(path)).toBe(`${'a'.repeat(9_000)}\n${'b'.repeat(9_000)}`);
    const image = { type: 'image_url', image_url: { url: 'data:image/png;base64,AA' } };
    const picture = new ToolMessage({ tool_call_id: 'c', content: [block('a'.repeat(20_000)), image] });
    expect((await run(picture)).message.content).toEqual(picture.content);
  });

  test('where no file can be written head and tail are kept, never more than the limit', verifies('MW-2'), async () => {
    class Broken extends MemorySandboxes {
      override files() {
        return {
          ...super.files(),
          write: async () => {
            throw new ReindeerError('forbidden', 'read-only');
          },
        };
      }
    }
    const text = `START\n${'middle\n'.repeat(20_000)}END`;
    const { message } = await run(text, { sandboxes: new Broken() });
    expect(message.text.length).toBeLessThanOrEqual(DEFAULT_TOOL_OUTPUT.fallbackMaxCharacters);
    expect(message.text).toMatch(/^START[\s\S]*left out[\s\S]*END$/);
    expect(message.additional_kwargs[EXTERNALIZED]).toBeUndefined();
    const tiny = await run(text, { sandboxes: new Broken(), settings: { fallbackMaxCharacters: 200 } });
    expect(tiny.message.text.length).toBeLessThanOrEqual(200);
    // Also one that has not even room for the note.
    const note = await run(text, { sandboxes: new Broken(), settings: { fallbackMaxCharacters: 20 } });
    expect(note.message.text).toHaveLength(20);
    // A file that does not hold everything is no file.
    class Short extends MemorySandboxes {
      override files() {
        return { ...super.files(), stat: async () => null };
      }
    }
    expect((await run(text, { sandboxes: new Short() })).message.additional_kwargs[EXTERNALIZED]).toBeUndefined();
  });

  test('old long results are cut in the request only', verifies('MW-2'), async () => {
    const long = new ToolMessage({ tool_call_id: 'old', name: 'old', content: 'x'.repeat(50_000) });
    const model = new FakeModel([{ text: 'ok' }]);
    const { messages } = await runLoop({
      model,
      middleware: [middleware()],
      input: [
        new HumanMessage('go'),
        { role: 'assistant', content: '', tool_calls: [{ name: 'old', args: {}, id: 'old', type: 'tool_call' }] },
        long,
        new HumanMessage('more'),
      ],
    });
    const sent = model.requests[0]?.find(ToolMessage.isInstance);
    expect(sent?.text.length).toBeLessThanOrEqual(30_000);
    expect(sent?.tool_call_id).toBe('old');
    expect(messages.find(ToolMessage.isInstance)?.text.length).toBe(50_000);
  });

  test('the folder for results is one name', verifies('MW-2'), () => {
    for (const storageSubfolder of ['../up', 'a/b', '', '..', '.'])
      expect(() => middleware({ storageSubfolder })).toThrow('storage_subdir');
  });
});

describe('what a long text is', () => {
  const type = (text: string): string => synopsisOf(text).type;

  test('json with key paths, also when it is too long to parse', verifies('MW-2'), () => {
    const json = synopsisOf(JSON.stringify({ items: [{ id: 1, name: 'x' }], total: 3 }));
    expect(json.type).toBe('json');
    expect(json.lines.join('\n')).toMatch(/items: array\(1\)[\s\S]*items\[\]\.id: number/);
    const long = synopsisOf(`[${'{"alpha":1,"beta":2},'.repeat(150_000)}{}]`);
    expect(long).toMatchObject({ type: 'json' });
    expect(long.lines.join('\n')).toMatch(/alpha, beta/);
    expect(type('{"a":1}\n{"a":2}\n{"a":3}\n')).toBe('json');
  });

  test(
    'tables, markup, code and settings; logs are no settings and indented scripts no tables',
    verifies('MW-2'),
    () => {
      expect(synopsisOf('id,name\n1,a\n2,"b, c"\n3,d\n')).toMatchObject({
        type: 'csv',
        lines: ['2 columns: id, name', expect.anything()],
      });
      expect(type('id\tname\n1\ta\n2\tb\n')).toBe('tsv');
      expect(type('<?xml version="1.0"?><feed><entry/></feed>')).toBe('xml');
      expect(synopsisOf('import os\n\ndef main():\n  pass\n\nclass Thing(object):\n  pass\n').lines[0]).toMatch(
        /def main, class Thing/,
      );
      expect(type('name: x\nitems:\n  - a\n  - b\nsize: 3\n')).toBe('yaml');
      expect(
        type('2026-01-01 10:00:00 INFO start: ok\n2026-01-01 10:00:01 ERROR it: failed\n2026-01-01 INFO a: b\n'),
      ).toBe('text');
      // Without times: the words of levels look like keys.
      expect(type('INFO: started\nWARN: slow\nERROR: gone\nINFO: again\n')).toBe('text');
      expect(type('if true; then\n\techo a\n\techo b\n\techo c\nfi\n')).not.toBe('tsv');
      expect(type('Well, yes, it is\nand then, no, it was not\nso it went, up, and down\n')).toBe('text');
      expect(type('a\0b')).toBe('unknown');
    },
  );
});
