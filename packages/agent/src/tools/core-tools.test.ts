import { ToolMessage } from '@langchain/core/messages';
import { type ExecResult, ReindeerError } from '@reindeer/protocol';
import { verifies } from '@reindeer/testkit';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { crashPolicyOf } from '../loop/tool-node.ts';
import { toolCaller } from '../test-support/call-tool.ts';
import { exited, MemorySandboxes, type MemorySandboxOptions } from '../test-support/memory-sandbox.ts';
import { type CoreToolSettings, coreTools, DEFAULT_CORE_TOOLS } from './core-tools.ts';
import { shownPath, virtualPath } from './paths.ts';
import { numbered } from './read-file.ts';
import { type Cut, hiddenForms, masked, withoutMiddle } from './text.ts';
import { TOOL_META } from './tool-meta.ts';

const ROOT = '/mnt/user-data';

function setUp(options: MemorySandboxOptions = {}, settings: Partial<CoreToolSettings> = {}) {
  const sandboxes = new MemorySandboxes(options);
  const abilities = { canExecute: options.canExecute ?? true, pathStyle: 'virtual' as const };
  const tools = coreTools({ ...DEFAULT_CORE_TOOLS, ...settings }, abilities);
  return { sandboxes, tools, ...toolCaller(tools, sandboxes) };
}

describe('bash', () => {
  const ended = (result: Partial<ExecResult>): MemorySandboxOptions => ({
    exec: () => ({ ...exited('out\n'), ...result }),
  });

  test(
    'answers the output, the exit code when it is not 0, and what ended the command',
    verifies('TOOL-2'),
    async () => {
      expect(await setUp(ended({})).text('bash', { command: 'x' })).toBe('out');
      expect(await setUp(ended({ output: '' })).text('bash', { command: 'x' })).toBe('(no output)');
      expect(await setUp(ended({ exitCode: 3 })).text('bash', { command: 'x' })).toBe('out\n[exit code 3]');
      expect(await setUp(ended({ ended: 'timeout', exitCode: null })).text('bash', { command: 'x' })).toMatch(
        /^Error: out\n\[The command was ended after 600 s/,
      );
      expect(await setUp(ended({ ended: 'limit', limit: 'memory' })).text('bash', { command: 'x' })).toMatch(
        /the memory limit/,
      );
    },
  );

  test(
    'gives the sandbox the time limit and the signal of the run; an abort is no result',
    verifies('TOOL-2'),
    async () => {
      const { sandboxes, text } = setUp(ended({ ended: 'aborted' }));
      await expect(text('bash', { command: 'sleep 60' })).rejects.toSatisfy(
        (error) => ReindeerError.is(error) && error.code === 'aborted',
      );
      expect(sandboxes.commands[0]).toMatchObject({ command: 'sleep 60', timeoutMs: 600_000 });
      expect(sandboxes.commands[0]?.signal).toBeInstanceOf(AbortSignal);
    },
  );

  test(
    'long output loses its middle; with the marker and the exit code it keeps to the limit',
    verifies('TOOL-2', 'SL-18'),
    async () => {
      const output = `START${'x'.repeat(50_000)}END`;
      const answer = await setUp(ended({ output, exitCode: 1 })).text('bash', { command: 'x' });
      expect(answer.length).toBeLessThanOrEqual(20_000);
      expect(answer).toMatch(/^START[\s\S]*characters left out[\s\S]*END\n\[exit code 1\]$/);
    },
  );

  test('secrets do not come through; short ones would blot out words', verifies('TOOL-2'), async () => {
    const { text } = setUp(ended({ output: 'key=hunter2hunter2 and abc' }), { secrets: ['hunter2hunter2', 'abc'] });
    expect(await text('bash', { command: 'env' })).toBe('key=[secret] and abc');
  });

  test('is not offered where nothing can be executed', verifies('TOOL-1b'), () => {
    const names = setUp({ canExecute: false }).tools.map((tool) => tool.name);
    expect(names).not.toContain('bash');
  });
});

describe('read_file', () => {
  const lines = (count: number): string => Array.from({ length: count }, (_, index) => `line ${index + 1}`).join('\n');
  const reading = (content: string | Uint8Array) => {
    const set = setUp();
    set.sandboxes.put(`${ROOT}/workspace/a.txt`, content);
    return (args: Record<string, unknown> = {}) => set.text('read_file', { path: `${ROOT}/workspace/a.txt`, ...args });
  };

  test('whole files, ranges, empty files and wrong ranges', verifies('TOOL-3b', 'SL-19'), async () => {
    const read = reading(lines(5));
    expect(await read()).toBe(lines(5));
    expect(await read({ start_line: 2, end_line: 3 })).toBe('line 2\nline 3');
    expect(await read({ start_line: 4, end_line: 99 })).toBe('line 4\nline 5');
    expect(await read({ start_line: 4 })).toBe('line 4\nline 5');
    expect(await read({ end_line: 2 })).toBe('line 1\nline 2');
    expect(await read({ end_line: 0 })).toMatch(/^Error: end_line/);
    expect(await read({ start_line: 0 })).toMatch(/^Error: start_line must be 1/);
    expect(await read({ start_line: 3, end_line: 2 })).toMatch(/^Error: end_line/);
    expect(await read({ start_line: 6 })).toMatch(/^Error: .* has only 5 lines/);
    expect(await reading('')()).toBe('(empty file)');
  });

  test('binary files are named as such', verifies('TOOL-3b', 'SL-20'), async () => {
    expect(await reading(new Uint8Array([0x89, 0x50, 0, 1]))()).toMatch(/^Error: .*binary file/);
    expect(await reading(new Uint8Array([0x41, 0xff, 0xfe]))()).toMatch(/^Error: .*binary file/);
  });

  test('a file that begins with "Error:" was read all the same', verifies('MW-13b'), async () => {
    const { sandboxes, call } = setUp();
    sandboxes.put(`${ROOT}/workspace/log`, 'Error: disk full');
    const result = (await call('read_file', { path: `${ROOT}/workspace/log` })) as ToolMessage;
    expect(result.status).toBe('success');
    expect(result.additional_kwargs[TOOL_META]).toMatchObject({ status: 'success' });
  });

  test('a long file is read to its end by following the markers, losing nothing', verifies('TOOL-3b'), () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 0, max: 90 }), { minLength: 1, maxLength: 60 }), (lengths) => {
        const content = lengths.map((length, index) => `${index}:${'x'.repeat(length)}`).join('\n');
        const read: string[] = [];
        let start = 1;
        for (let step = 0; step < 100; step++) {
          const answer = numbered(content, 'f', start, undefined, 300);
          expect(answer.length).toBeLessThanOrEqual(300);
          const next = /\n\[Lines .*start_line=(\d+)\.\]$/.exec(answer);
          read.push(next === null ? answer : answer.slice(0, next.index));
          if (next === null) break;
          expect(Number(next[1])).toBeGreaterThan(start);
          start = Number(next[1]);
        }
        expect(read.join('\n')).toBe(content);
      }),
    );
  });

  test('a line that is longer than the answer is cut, and the next one can be reached', verifies('TOOL-3b'), () => {
    const answer = numbered(`${'x'.repeat(500)}\nnext`, 'f', 1, undefined, 300);
    expect(answer).toMatch(/Line 1 of 2 is longer.*start_line=2/);
    expect(answer.length).toBeLessThanOrEqual(300);
    expect(numbered(`${'x'.repeat(500)}\nnext`, 'f', 2, undefined, 300)).toBe('next');
  });
});

describe('writing', () => {
  test('write_file replaces or appends, within its limit', verifies('TOOL-3c', 'SL-21'), async () => {
    const { sandboxes, text } = setUp();
    const path = `${ROOT}/outputs/a.txt`;
    expect(await text('write_file', { path, content: 'one' })).toBe('OK');
    expect(await text('write_file', { path, content: ' two', append: true })).toBe('OK');
    expect(sandboxes.text(path)).toBe('one two');
    expect(await text('write_file', { path, content: 'é'.repeat(41_000) })).toMatch(
      /^Error: the content has 82000 bytes, more than the 81920.*append=true/,
    );
    expect(sandboxes.text(path)).toBe('one two');
    // To append is the way out, whatever the size.
    expect(await text('write_file', { path, content: 'é'.repeat(41_000), append: true })).toBe('OK');
    const unlimited = setUp({}, { writeFileMaxBytes: 0 });
    expect(await unlimited.text('write_file', { path, content: 'x'.repeat(200_000) })).toBe('OK');
  });

  test('str_replace needs one place, or says all', verifies('TOOL-3d'), async () => {
    const { sandboxes, text } = setUp();
    const path = `${ROOT}/workspace/a.txt`;
    sandboxes.put(path, 'a b a');
    expect(await text('str_replace', { path, old_str: 'a', new_str: 'c' })).toMatch(/^Error: old_str stands 2 times/);
    expect(sandboxes.text(path)).toBe('a b a');
    expect(await text('str_replace', { path, old_str: 'z', new_str: 'c' })).toMatch(/^Error: old_str does not stand/);
    expect(await text('str_replace', { path, old_str: 'b', new_str: "$& $' $1" })).toBe('OK');
    expect(sandboxes.text(path)).toBe("a $& $' $1 a");
    expect(await text('str_replace', { path, old_str: 'a', new_str: '$&', replace_all: true })).toBe('OK');
    expect(sandboxes.text(path)).toBe("$& $& $' $1 $&");
    sandboxes.put(path, '');
    expect(await text('str_replace', { path, old_str: '', new_str: 'x' })).toBe('OK');
    expect(sandboxes.text(path)).toBe('');
  });

  test('parallel edits of one file do not mix', verifies('SL-17'), async () => {
    const { sandboxes, text } = setUp();
    const path = `${ROOT}/workspace/a.txt`;
    sandboxes.put(path, 'one two three');
    const edit = (word: string) => text('str_replace', { path, old_str: word, new_str: word.toUpperCase() });
    expect(await Promise.all(['one', 'two', 'three'].map(edit))).toEqual(['OK', 'OK', 'OK']);
    expect(sandboxes.text(path)).toBe('ONE TWO THREE');
  });
});

describe('looking around', () => {
  const filled = (count: number) => {
    const set = setUp();
    for (let index = 0; index < count; index++)
      set.sandboxes.put(`${ROOT}/workspace/f${index}.txt`, `needle ${index}\nHay`);
    return set;
  };

  test('ls keeps to its limit and says what is left out', verifies('TOOL-3a'), async () => {
    expect(await filled(2).text('ls', { path: `${ROOT}/workspace` })).toBe(
      `${ROOT}/workspace/f0.txt\n${ROOT}/workspace/f1.txt`,
    );
    const looked = filled(1);
    await looked.text('ls', { path: 'workspace' });
    expect(looked.sandboxes.listings[0]).toMatchObject({ depth: 2 });
    expect(looked.sandboxes.listings[0]?.ignore).toEqual(
      expect.arrayContaining(['.git', 'node_modules', '__pycache__', '.venv', 'dist']),
    );
    const long = await filled(1_900).text('ls', { path: `${ROOT}/workspace` });
    expect(long.length).toBeLessThanOrEqual(20_000);
    expect(long).toMatch(/\[… \d+ more entries left out; look in a narrower folder\]$/);
    expect(await setUp().text('ls', { path: `${ROOT}/workspace` })).toBe('(empty folder)');
  });

  test('glob answers 200 results, on request up to 1000', verifies('TOOL-3e'), async () => {
    const { text } = filled(1_200);
    const count = (answer: string): number => answer.split('\n').filter((line) => line.endsWith('.txt')).length;
    const usual = await text('glob', { pattern: '*.txt', path: `${ROOT}/workspace` });
    expect(count(usual)).toBe(200);
    expect(usual).toMatch(/Only the first 200 results/);
    const { text: wide } = (() => {
      const set = setUp({}, { listMaxCharacters: 1_000_000 });
      for (let index = 0; index < 1_200; index++) set.sandboxes.put(`${ROOT}/workspace/f${index}.txt`, '');
      return set;
    })();
    expect(count(await wide('glob', { pattern: '*.txt', path: `${ROOT}/workspace`, max_results: 5_000 }))).toBe(1_000);
    expect(await text('glob', { pattern: '*.nope', path: `${ROOT}/workspace` })).toBe('No file matches *.nope.');
  });

  test('grep answers lines with places: 100, on request up to 500', verifies('TOOL-3f'), async () => {
    const { text } = filled(600);
    const path = `${ROOT}/workspace`;
    const count = (answer: string): number => answer.split('\n').filter((line) => line.includes(': needle')).length;
    expect(count(await text('grep', { pattern: 'NEEDLE', path }))).toBe(100);
    const wide = setUp({}, { listMaxCharacters: 1_000_000 });
    for (let index = 0; index < 600; index++) wide.sandboxes.put(`${path}/f${index}.txt`, `needle ${index}`);
    expect(count(await wide.text('grep', { pattern: 'needle', path, max_results: 9_999 }))).toBe(500);
    expect(await wide.text('grep', { pattern: 'needle', path, glob: '*.md' })).toBe('Nothing matches needle.');
    expect(await text('grep', { pattern: 'NEEDLE', path, case_sensitive: true })).toBe('Nothing matches NEEDLE.');
    expect(await text('grep', { pattern: 'needle 7$', path, case_sensitive: true })).toBe(`${path}/f7.txt:1: needle 7`);
    expect(await text('grep', { pattern: 'x(', path, literal: true })).toBe('Nothing matches x(.');
  });
});

describe('present_files', () => {
  test('only files in outputs, all or none', verifies('TOOL-4'), async () => {
    const { sandboxes, call, text } = setUp();
    sandboxes.put(`${ROOT}/outputs/a.md`, 'a').put(`${ROOT}/workspace/b.md`, 'b');
    sandboxes.put(`${ROOT}/outputs/folder`, '', 'directory').put(`${ROOT}/outputs/link.md`, 'a', 'link');
    const result = (await call('present_files', {
      filepaths: [`${ROOT}/outputs/a.md`, 'outputs/a.md'],
    })) as unknown as {
      update: { artifacts: string[] };
    };
    expect(result.update.artifacts).toEqual([`${ROOT}/outputs/a.md`, `${ROOT}/outputs/a.md`]);
    for (const wrong of [
      `${ROOT}/workspace/b.md`,
      `${ROOT}/outputs/none.md`,
      `${ROOT}/outputs/folder`,
      `${ROOT}/outputs/link.md`,
      `${ROOT}/outputs/../workspace/b.md`,
      '/etc/passwd',
    ]) {
      const refused = await call('present_files', { filepaths: [`${ROOT}/outputs/a.md`, wrong] });
      expect(refused).toBeInstanceOf(ToolMessage);
      expect(await text('present_files', { filepaths: [wrong] })).toMatch(/^Error: /);
    }
  });
});

describe('paths', () => {
  test('stay in the folders of the thread, whatever their form', () => {
    expect(virtualPath('a.txt')).toBe(`${ROOT}/workspace/a.txt`);
    expect(virtualPath('outputs/a.txt')).toBe(`${ROOT}/outputs/a.txt`);
    expect(virtualPath('../outputs/a.txt')).toBe(`${ROOT}/outputs/a.txt`);
    expect(virtualPath('\\mnt\\user-data\\outputs\\a.txt')).toBe(`${ROOT}/outputs/a.txt`);
    expect(virtualPath(`${ROOT}/outputs/`)).toBe(`${ROOT}/outputs`);
    for (const wrong of ['/etc/passwd', '../../x', `${ROOT}/../x`, `${ROOT}x/a`, 'a\0b', '', ' '])
      expect(() => virtualPath(wrong), wrong).toThrow();
    expect(shownPath(`${ROOT}/outputs/a`, 'relative')).toBe('../outputs/a');
    expect(shownPath(`${ROOT}/workspace/a`, 'relative')).toBe('a');
  });

  test('no path that is let through leaves them', () => {
    const part = fc.constantFrom('..', '.', 'a', 'outputs', 'mnt', 'user-data', '', '\\', 'workspace');
    fc.assert(
      fc.property(fc.array(part, { maxLength: 8 }), fc.boolean(), (parts, absolute) => {
        let resolved: string;
        try {
          resolved = virtualPath(`${absolute ? '/' : ''}${parts.join('/')}`);
        } catch {
          return;
        }
        expect(resolved === ROOT || resolved.startsWith(`${ROOT}/`)).toBe(true);
        expect(resolved).not.toMatch(/(^|\/)\.\.?(\/|$)/);
      }),
    );
  });

  test('errors of the file module reach the model as they are, without host paths', async () => {
    expect(await setUp().text('read_file', { path: `${ROOT}/workspace/none` })).toBe(
      `Error: ${ROOT}/workspace/none does not exist.`,
    );
    expect(await setUp().text('read_file', { path: '/etc/shadow' })).toMatch(
      /^Error: \/etc\/shadow is outside of this conversation/,
    );
  });
});

test('only tools that change nothing may run again after a crash', () => {
  const repeatable = setUp()
    .tools.filter((tool) => crashPolicyOf(tool).repeatable)
    .map((tool) => tool.name);
  expect(repeatable).toEqual([
    'ls',
    'read_file',
    'glob',
    'grep',
    'view_image',
    'list_uploaded_files',
    'present_files',
    'ask_clarification',
  ]);
});

test('cut and masked text', verifies('SL-18', 'SL-23'), () => {
  expect(withoutMiddle('short', 100)).toBe('short');
  fc.assert(
    fc.property(fc.integer({ min: 60, max: 500 }), fc.integer({ min: 0, max: 2_000 }), (limit, length) => {
      const cut = withoutMiddle('y'.repeat(length), limit);
      expect(cut.length).toBeLessThanOrEqual(limit);
      const left = /\n\[… (\d+) characters left out …\]\n/.exec(cut);
      expect(cut.replace(left?.[0] ?? '', '').length + Number(left?.[1] ?? 0)).toBe(length);
    }),
  );
  expect(masked('12345678 1234567', ['12345678', '1234567', ''])).toBe('[secret] 1234567');
  expect(masked('prefix-of-a-secret', ['prefix-of', 'prefix-of-a-secret'])).toBe('[secret]');
});

test(
  'no half of a secret is left where a text was cut, and what is shown costs what is shown',
  verifies('SK-8'),
  () => {
    const secret = 'rk-7Gq2mPz9LxT4';
    const hide = (text: string, cut?: Cut) => masked(text, hiddenForms([secret]), cut);
    fc.assert(
      fc.property(fc.nat(400), fc.nat(400), fc.integer({ min: 80, max: 300 }), (before, behind, limit) => {
        const cut = withoutMiddle(`${'.'.repeat(before)}${secret}${'.'.repeat(behind)}`, limit, hide);
        expect(cut.length).toBeLessThanOrEqual(limit);
        for (let at = 0; at + 5 <= secret.length; at++) expect(cut).not.toContain(secret.slice(at, at + 5));
      }),
    );
    let seen = 0;
    withoutMiddle('x'.repeat(1_000_000), 1_000, (text) => {
      seen += text.length;
      return text;
    });
    expect(seen).toBeLessThanOrEqual(2_000);
    expect(masked('a rk-7G', [secret], { end: true })).toBe('a [secret]');
    expect(masked('4LxT4 b', ['rk-7Gq2mPz94LxT4'], { start: true })).toBe('[secret] b');
    expect(masked('a rk-7G', [secret])).toBe('a rk-7G');
  },
);

test('a secret is hidden in the forms that programs give it by themselves', verifies('SK-8'), () => {
  const secret = 'p+q/r s?t~7Gq2mPz9';
  const hidden = hiddenForms([secret]);
  const of = (text: string) => masked(text, hidden);
  const base64 = (text: string) => Buffer.from(text).toString('base64');
  for (const before of ['', 'u', 'us', 'user:', '{"key":"'])
    for (const behind of ['', '\n', '"}', '@example.com']) {
      const text = base64(`${before}${secret}${behind}`);
      expect(of(`> Authorization: Basic ${text}`)).toContain('[secret]');
      const url = Buffer.from(`${before}${secret}${behind}`).toString('base64url');
      expect(of(url)).toContain('[secret]');
      // What is left around the mark says next to nothing of the value.
      const [left = '', right = ''] = of(text).split('[secret]');
      expect(left.length + right.length).toBeLessThanOrEqual(Math.ceil(((before.length + behind.length) * 8) / 6) + 6);
    }
  expect(of(`https://example.org/?key=${encodeURIComponent(secret)}&x=1`)).toBe(
    'https://example.org/?key=[secret]&x=1',
  );
  expect(of(new URLSearchParams({ key: 'abcdefgh ijk' }).toString())).toBe('key=abcdefgh+ijk');
  expect(masked(new URLSearchParams({ key: 'abcdefgh ijk' }).toString(), hiddenForms(['abcdefgh ijk']))).toBe(
    'key=[secret]',
  );
  expect(of(Buffer.from(secret).toString('hex'))).toBe('[secret]');
});
