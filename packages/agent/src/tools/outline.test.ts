import { verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { outlineOf } from './outline.ts';

const titles = (text: string) => outlineOf(text).entries.map((entry) => `${entry.line} ${entry.title}`);

test(
  'headings in Markdown, in bold as converters write them, split into parts, in Chinese; nothing inside of code',
  verifies('FILE-2b'),
  () => {
    expect(
      titles(
        [
          '# One #',
          'text',
          '**Item 1. Business**',
          'This is **important** text.',
          '**A whole bold sentence, which ends as one.**',
          '**2** **Related work**',
          '```',
          '# not a heading',
          '```',
          '第三章 结论',
          '### **Three**',
          '**!!!**',
        ].join('\n'),
      ),
    ).toEqual(['1 One', '3 Item 1. Business', '6 2 Related work', '10 第三章 结论', '11 Three']);
  },
);

test('no line makes it slow: it runs on the thread that serves everybody', verifies('FILE-2b'), () => {
  const begun = performance.now();
  for (const line of [
    `#${' '.repeat(390)}a\ra`,
    `**a${' '.repeat(390)}**`,
    `**a**${' '.repeat(380)}x`,
    '#'.repeat(400),
  ])
    outlineOf(Array(100).fill(line).join('\n'));
  expect(performance.now() - begun).toBeLessThan(2_000);
});

test('fifty at most, and it says that there are more', verifies('FILE-2b'), () => {
  const { entries, truncated } = outlineOf(Array.from({ length: 60 }, (_, at) => `# ${at}`).join('\n'));
  expect([entries.length, truncated]).toEqual([50, true]);
});
