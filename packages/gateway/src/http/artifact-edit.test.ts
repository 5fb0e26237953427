import { createHash } from 'node:crypto';
import { verifies, zip } from '@reindeer/testkit';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type FakeFiles, type Fixture, startFixture } from '../testing/http-fixture.ts';

let fixture: Fixture;
let files: FakeFiles;
beforeEach(async () => {
  fixture = await startFixture();
  files = fixture.sandboxes.files({ userId: 'default', threadId: 't' });
  await fetch(`${fixture.url}/api/threads`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ thread_id: 't' }),
  });
});
afterEach(() => fixture.close());

const OUT = '/mnt/user-data/outputs';
const hash = (text: string | Uint8Array): string => createHash('sha256').update(text).digest('hex');
const put = async (path: string, content: string, expected: string) => {
  const answer = await fetch(`${fixture.url}/api/threads/t/artifacts${path}`, {
    method: 'PUT',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ content, expected_sha256: expected }),
  });
  return { status: answer.status, body: (await answer.json()) as Record<string, unknown> };
};
const text = async (path: string): Promise<string> =>
  (await fetch(`${fixture.url}/api/threads/t/artifacts${path}`)).text();

describe('editing a deliverable', () => {
  test('replaces what was read, and answers the new hash', verifies('FILE-3b'), async () => {
    files.put(`${OUT}/a.md`, 'one');
    expect(await put(`${OUT}/a.md`, 'zwei ü', hash('one'))).toEqual({
      status: 200,
      body: { path: `${OUT}/a.md`, sha256: hash('zwei ü'), size: 7 },
    });
    expect(await text(`${OUT}/a.md`)).toBe('zwei ü');
  });

  test(
    'what changed meanwhile, is no text, too large, elsewhere, or missing is refused and stays',
    verifies('FILE-3b'),
    async () => {
      files.put(`${OUT}/a.md`, 'one');
      files.put(`${OUT}/b.bin`, new Uint8Array([0xff, 0xfe, 0]));
      files.put(`${OUT}/c.skill`, 'x');
      files.put('/mnt/user-data/workspace/d.md', 'one');
      const status = async (path: string, content: string, expected: string): Promise<number> =>
        (await put(path, content, expected)).status;
      expect(await status(`${OUT}/a.md`, 'two', hash('other'))).toBe(412);
      expect(await status(`${OUT}/b.bin`, 'two', hash(new Uint8Array([0xff, 0xfe, 0])))).toBe(415);
      expect(await status(`${OUT}/c.skill`, 'two', hash('x'))).toBe(415);
      expect(await status('/mnt/user-data/workspace/d.md', 'two', hash('one'))).toBe(400);
      expect(await status(`${OUT}/none.md`, 'two', hash('one'))).toBe(404);
      expect(await status(`${OUT}/a.md`, 'x'.repeat(2 * 1024 * 1024 + 1), hash('one'))).toBe(413);
      expect(await status(`${OUT}/a.md`, 'two', 'ABC')).toBe(422);
      expect(await text(`${OUT}/a.md`)).toBe('one');
    },
  );

  test('while a run is active it is a conflict', verifies('FILE-3b'), async () => {
    files.put(`${OUT}/a.md`, 'one');
    fixture.threads.updateOutcome = 'busy';
    expect((await put(`${OUT}/a.md`, 'two', hash('one'))).status).toBe(409);
    expect(await text(`${OUT}/a.md`)).toBe('one');
  });
});

describe('a look into a .skill archive', () => {
  const archive = zip([
    { name: 'chart/SKILL.md', content: '# Chart' },
    { name: 'chart/page.html', content: '<script>1</script>' },
    { name: 'chart/link', content: '/etc/passwd', mode: 0o120777 },
  ]);
  test(
    'reads one file, with or without the folder, in parts; active content is a download',
    verifies('FILE-3c', 'SEC-04'),
    async () => {
      files.put(`${OUT}/chart.skill`, archive);
      expect(await text(`${OUT}/chart.skill/SKILL.md`)).toBe('# Chart');
      expect(await text(`${OUT}/chart.skill/chart/SKILL.md`)).toBe('# Chart');
      const part = await fetch(`${fixture.url}/api/threads/t/artifacts${OUT}/chart.skill/SKILL.md`, {
        headers: { range: 'bytes=2-4' },
      });
      expect([
        part.status,
        await part.text(),
        part.headers.get('content-range'),
        part.headers.get('cache-control'),
      ]).toEqual([206, 'Cha', 'bytes 2-4/7', 'private, max-age=300']);
      const page = await fetch(`${fixture.url}/api/threads/t/artifacts${OUT}/chart.skill/page.html`);
      expect(page.headers.get('content-disposition')).toMatch(/^attachment/);
      const status = async (path: string): Promise<number> =>
        (await fetch(`${fixture.url}/api/threads/t/artifacts${path}`)).status;
      expect(await status(`${OUT}/chart.skill/none`)).toBe(404);
      expect(await status(`${OUT}/chart.skill/link`)).toBe(404);
      expect(await status(`${OUT}/chart.skill/../../x`)).toBe(404);
      files.put(`${OUT}/bad.skill`, 'no zip');
      expect(await status(`${OUT}/bad.skill/SKILL.md`)).toBe(422);
      expect(await status(`${OUT}/chart.skill`)).toBe(200);
    },
  );
});
