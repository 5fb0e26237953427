import { type BaseMessage, HumanMessage, RemoveMessage, ToolMessage } from '@langchain/core/messages';
import { MemorySaver } from '@langchain/langgraph';
import { ReindeerError } from '@reindeer/protocol';
import { verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import type { Middleware } from '../loop/middleware.ts';
import { defineMiddleware } from '../loop/middleware.ts';
import { FakeModel, type Turn } from '../test-support/fake-model.ts';
import { MemorySandboxes } from '../test-support/memory-sandbox.ts';
import { runLoop } from '../test-support/run-loop.ts';
import { coreTools, DEFAULT_CORE_TOOLS } from '../tools/core-tools.ts';
import { TOOL_META } from '../tools/tool-meta.ts';
import { readBeforeWriteMiddleware } from './read-before-write.ts';

const FILE = '/mnt/user-data/workspace/a.txt';
const read = (path = FILE, more: object = {}) => ({ name: 'read_file', args: { description: 'x', path, ...more } });
const write = (content: string, path = FILE, more: object = {}) => ({
  name: 'write_file',
  args: { description: 'x', path, content, ...more },
});
const replace = (old_str: string, new_str: string, path = FILE) => ({
  name: 'str_replace',
  args: { description: 'x', path, old_str, new_str },
});

async function play(
  steps: readonly Turn['calls'][],
  options: { files?: Record<string, string>; sandboxes?: MemorySandboxes; more?: Middleware[]; gate?: boolean } = {},
) {
  const sandboxes = options.sandboxes ?? new MemorySandboxes();
  for (const [path, text] of Object.entries(options.files ?? {})) sandboxes.put(path, text);
  const turns: Turn[] = steps.map((calls) => ({ calls: calls ?? [] }));
  const { messages } = await runLoop({
    model: new FakeModel([...turns, { text: 'done' }]),
    tools: coreTools(DEFAULT_CORE_TOOLS, { canExecute: false, pathStyle: 'virtual' }),
    middleware: [...(options.gate === false ? [] : [readBeforeWriteMiddleware()]), ...(options.more ?? [])],
    sandboxes,
    saver: new MemorySaver(),
    input: [new HumanMessage('go')],
  });
  const results = messages.filter(ToolMessage.isInstance);
  return { sandboxes, results, texts: results.map((message) => message.text) };
}
const REFUSED = /^Error: nothing was written/;

describe('read before write', () => {
  test(
    'an existing file that was never read is not overwritten, extended or edited',
    verifies('SG-01', 'MW-11'),
    async () => {
      const { texts, sandboxes, results } = await play(
        [[write('new')], [write('more', FILE, { append: true })], [replace('old', 'new')]],
        { files: { [FILE]: 'old' } },
      );
      for (const text of texts) expect(text).toMatch(REFUSED);
      expect(sandboxes.text(FILE)).toBe('old');
      expect(results[0]?.status).toBe('error');
      expect(results[0]?.additional_kwargs[TOOL_META]).toMatchObject({ status: 'error', error_type: 'permission' });
    },
  );

  test(
    'a new file is free, and a replacement in a missing one gets the tool’s own error',
    verifies('SG-02'),
    async () => {
      const { texts } = await play([[write('new')], [replace('a', 'b', '/mnt/user-data/workspace/none.txt')]]);
      expect(texts[0]).toBe('OK');
      expect(texts[1]).toMatch(/does not exist/);
    },
  );

  test('a few lines are enough: the mark is the hash of the whole file', verifies('SG-03', 'SG-04'), async () => {
    const files = { [FILE]: 'one\ntwo\nthree' };
    const { texts, sandboxes } = await play([[read(FILE, { start_line: 2, end_line: 2 })], [replace('three', '3')]], {
      files,
    });
    expect(texts).toEqual(['two', 'OK']);
    expect(sandboxes.text(FILE)).toBe('one\ntwo\n3');
  });

  test(
    'the mark is that of the bytes that were shown, though the file changes while it is read',
    verifies('SG-04'),
    async () => {
      class Changing extends MemorySandboxes {
        override files() {
          const files = super.files();
          return {
            ...files,
            read: async (path: string, options: { maxBytes: number }) => {
              const bytes = await files.read(path, options);
              // Somebody writes right after the bytes were handed over.
              this.put(path, 'changed by another');
              return bytes;
            },
          };
        }
      }
      const { texts, sandboxes } = await play([[read()], [write('mine')]], {
        sandboxes: new Changing().put(FILE, 'seen'),
      });
      expect(texts[0]).toBe('seen');
      expect(texts[1]).toMatch(REFUSED);
      expect(sandboxes.text(FILE)).toBe('changed by another');
    },
  );

  test('a file that anybody changed after it was read is not written', verifies('SG-05'), async () => {
    const sandboxes = new MemorySandboxes();
    const meddle = defineMiddleware({
      name: 'meddle',
      beforeModel(state) {
        if (state.messages.some(ToolMessage.isInstance) && sandboxes.text(FILE) === 'old')
          sandboxes.put(FILE, 'theirs');
        return undefined;
      },
    });
    const { texts } = await play([[read()], [write('mine')]], { sandboxes, files: { [FILE]: 'old' }, more: [meddle] });
    expect(texts[1]).toMatch(/has changed since/);
    expect(sandboxes.text(FILE)).toBe('theirs');
  });

  test('the newest mark counts, and a write uses it up', verifies('SG-06'), async () => {
    const { texts, sandboxes } = await play(
      [[read()], [write('one')], [write('two')], [read()], [read()], [write('three')], [replace('three', 'four')]],
      { files: { [FILE]: 'zero' } },
    );
    expect(texts.map((text) => (REFUSED.test(text) ? 'refused' : text))).toEqual([
      'zero',
      'OK',
      'refused',
      'one',
      'one',
      'OK',
      'refused',
    ]);
    expect(sandboxes.text(FILE)).toBe('three');
  });

  test('writing the same content again uses the mark up too', verifies('SG-06'), async () => {
    const { texts } = await play([[read()], [write('same')], [write('same')]], { files: { [FILE]: 'same' } });
    expect(texts[1]).toBe('OK');
    expect(texts[2]).toMatch(REFUSED);
  });

  test(
    'a mark that was used up stays so after a restart, although the file is the same',
    verifies('SG-06'),
    async () => {
      const sandboxes = new MemorySandboxes().put(FILE, 'same');
      const saver = new MemorySaver();
      const turn = async (calls: Turn['calls']) => {
        const { messages } = await runLoop({
          model: new FakeModel([{ calls: calls ?? [] }, { text: 'done' }]),
          tools: coreTools(DEFAULT_CORE_TOOLS, { canExecute: false, pathStyle: 'virtual' }),
          middleware: [readBeforeWriteMiddleware()],
          sandboxes,
          saver,
          ids: String(ids++),
          input: [new HumanMessage('go')],
        });
        return messages.findLast(ToolMessage.isInstance)?.text;
      };
      let ids = 0;
      await turn([read()]);
      expect(await turn([write('same')])).toBe('OK');
      expect(await turn([write('same')])).toMatch(REFUSED);
    },
  );

  test('a mark that a compaction removed does not count', verifies('SG-07'), async () => {
    let done = false;
    const forget = defineMiddleware({
      name: 'forget',
      beforeModel(state) {
        const position = state.messages.findIndex(ToolMessage.isInstance);
        if (done || position < 0) return undefined;
        done = true;
        const gone = state.messages.slice(position - 1, position + 1);
        return { messages: gone.map((message: BaseMessage) => new RemoveMessage({ id: message.id ?? '' })) };
      },
    });
    const { texts } = await play([[read()], [write('new')]], { files: { [FILE]: 'old' }, more: [forget] });
    expect(texts).toHaveLength(1);
    expect(texts[0]).toMatch(REFUSED);
  });

  test(
    'a file that cannot be inspected may be written; a failed reading gives no mark',
    verifies('SG-08'),
    async () => {
      class Blind extends MemorySandboxes {
        override files() {
          return {
            ...super.files(),
            stat: async () => {
              throw new ReindeerError('store_unavailable', 'cannot tell');
            },
          };
        }
      }
      const blind = await play([[write('new')]], { sandboxes: new Blind().put(FILE, 'old') });
      expect(blind.texts).toEqual(['OK']);
      const failed = await play([[read(FILE, { start_line: 99 })], [write('new')]], { files: { [FILE]: 'old' } });
      expect(failed.texts[0]).toMatch(/^Error/);
      expect(failed.texts[1]).toMatch(REFUSED);
    },
  );

  test('other spellings of a path are the same path', verifies('SG-09'), async () => {
    const { texts } = await play(
      [[read('workspace/./a.txt')], [write('new', '/mnt/user-data//workspace/b/../a.txt')]],
      {
        files: { [FILE]: 'old' },
      },
    );
    expect(texts[1]).toBe('OK');
    const other = await play([[read('a.txt')], [write('new', 'workspace\\a.txt')]], { files: { [FILE]: 'old' } });
    expect(other.texts[1]).toBe('OK');
    // Another spelling is no way around the gate.
    for (const path of ['workspace/./a.txt', 'a.txt', '/mnt/user-data/workspace/b/../a.txt']) {
      const around = await play([[write('new', path)]], { files: { [FILE]: 'old' } });
      expect(around.texts[0]).toMatch(REFUSED);
      expect(around.sandboxes.text(FILE)).toBe('old');
    }
  });

  test('of several parallel writes on one mark exactly one goes through', verifies('SG-10'), async () => {
    const append = (text: string) => write(text, FILE, { append: true });
    const { texts, sandboxes } = await play([[read()], [append('a'), append('b'), append('c')]], {
      files: { [FILE]: '0' },
    });
    expect(texts.slice(1).filter((text) => text === 'OK')).toHaveLength(1);
    expect(texts.slice(1).filter((text) => REFUSED.test(text))).toHaveLength(2);
    expect(sandboxes.text(FILE)).toHaveLength(2);
    // The same content does not help.
    const same = await play([[read()], [write('0'), write('0')]], { files: { [FILE]: '0' } });
    expect(same.texts.slice(1).filter((text) => text === 'OK')).toHaveLength(1);
  });
});
