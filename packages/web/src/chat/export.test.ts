import { expect, test } from 'vitest';
import { chatMarkdown, markdownName } from './export.ts';

const names = { you: 'You', agent: 'Reindeer' };
const row = (content: object) => ({ content });

test('a saved chat holds what was said, from its beginning on, and nothing else', async () => {
  const newest = [
    row({ type: 'ai', id: 'b', content: '<think>secretly</think>I look.', tool_calls: [{ name: 'ls', args: {} }] }),
    row({ type: 'tool', id: 'c', content: 'a-result', tool_call_id: 'x' }),
    row({ type: 'ai', id: 'd', content: 'It is **42**.' }),
    row({ type: 'human', id: 'e', content: 'unseen', additional_kwargs: { hide_from_ui: true } }),
  ];
  const oldest = [
    row({
      type: 'human',
      id: 'a',
      content: '<uploaded_files>x</uploaded_files>What is it?',
      additional_kwargs: { files: [{ filename: 'notes.txt', path: '/mnt/user-data/uploads/notes.txt' }] },
    }),
  ];
  const asked: string[] = [];
  const get = async (path: string) => {
    asked.push(path);
    return path.includes('before_seq=7')
      ? { data: oldest, next_before_seq: null }
      : { data: newest, next_before_seq: 7 };
  };
  expect(await chatMarkdown({ get }, { threadId: 't', title: 'The\nanswer', names })).toBe(
    '# The answer\n\n## You\n\nWhat is it?\n\n- notes.txt\n\n## Reindeer\n\nI look.\n\nIt is **42**.\n',
  );
  expect(asked).toHaveLength(2);
});

test('a log that has no end is read to a bound, and the file says that it is not whole', async () => {
  let reads = 0;
  const get = async () => {
    reads += 1;
    return { data: [row({ type: 'human', id: 'm', content: 'x' })], next_before_seq: 9 };
  };
  expect(await chatMarkdown({ get }, { threadId: 't', title: 'Long', names })).toContain('# Long (…)');
  expect(reads).toBe(100);
});

test('names of files are harmless', () => {
  expect(['../../etc: a/b?', '驯鹿 报告', '///', 'x'.repeat(500)].map(markdownName)).toEqual([
    'etc a b.md',
    '驯鹿 报告.md',
    'chat.md',
    `${'x'.repeat(60)}.md`,
  ]);
});
