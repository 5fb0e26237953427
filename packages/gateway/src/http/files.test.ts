import { ReindeerError } from '@reindeer/protocol';
import { verifies } from '@reindeer/testkit';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type FakeFiles, type Fixture, rawRequest, startFixture } from '../testing/http-fixture.ts';
import { contentDisposition, parseRange } from './artifacts.ts';
import { distinctName, safeFileName } from './uploads.ts';

let fixture: Fixture;
let files: FakeFiles;
beforeEach(async () => {
  fixture = await startFixture();
  files = fixture.sandboxes.files({ userId: 'default', threadId: 't' });
});
afterEach(() => fixture.close());

const artifact = (path: string, headers: Record<string, string> = {}, method = 'GET') =>
  fetch(`${fixture.url}/api/threads/t/artifacts/${path}`, { headers, method });

describe('artifacts', () => {
  test('text is shown, active content is always saved', verifies('SEC-04', 'FILE-3a', 'API-08'), async () => {
    files.put('/mnt/user-data/outputs/report.md', '# Rentier 🦌');
    const report = await artifact('mnt/user-data/outputs/report.md');
    expect(report.status).toBe(200);
    expect(report.headers.get('content-type')).toBe('text/markdown; charset=utf-8');
    expect(report.headers.get('content-disposition')).toContain('inline');
    expect(await report.text()).toBe('# Rentier 🦌');
    for (const name of [
      'a.html',
      'a.htm',
      'a.HTML',
      'a.svg',
      'a.xhtml',
      'a.xml',
      'a.xsl',
      'a.rss',
      'a.mhtml',
      'a.shtml',
    ]) {
      files.put(`/mnt/user-data/outputs/${name}`, '<script>1</script>');
      const answer = await artifact(`mnt/user-data/outputs/${name}`);
      const type = answer.headers.get('content-type') ?? '';
      // Either saved, or of a type that no browser renders.
      const harmless =
        (answer.headers.get('content-disposition') ?? '').startsWith('attachment') ||
        type === 'application/octet-stream';
      expect([name, harmless]).toEqual([name, true]);
      expect(answer.headers.get('content-security-policy')).toMatch(/^sandbox;/);
      expect(answer.headers.get('x-content-type-options')).toBe('nosniff');
    }
    files.put('/mnt/user-data/outputs/a.js', 'alert(1)');
    expect((await artifact('mnt/user-data/outputs/a.js')).headers.get('content-type')).toContain('text/plain');
    expect(
      (await artifact('mnt/user-data/outputs/report.md?download=true')).headers.get('content-disposition'),
    ).toContain('attachment');
  });

  test('ranges', verifies('FILE-3a', 'API-08'), async () => {
    files.put('/mnt/user-data/outputs/a.bin', '0123456789');
    const get = (range: string, more = {}) => artifact('mnt/user-data/outputs/a.bin', { range, ...more });
    const part = await get('bytes=2-4');
    expect([
      part.status,
      await part.text(),
      part.headers.get('content-range'),
      part.headers.get('content-length'),
    ]).toEqual([206, '234', 'bytes 2-4/10', '3']);
    expect(await (await get('bytes=-3')).text()).toBe('789');
    expect(await (await get('bytes=8-100')).text()).toBe('89');
    const none = await get('bytes=10-');
    expect([none.status, none.headers.get('content-range')]).toEqual([416, 'bytes */10']);
    const whole = await get('bytes=0-1,4-5');
    expect([whole.status, await whole.text()]).toEqual([200, '0123456789']);
    const etag = whole.headers.get('etag') ?? '';
    expect((await artifact('mnt/user-data/outputs/a.bin', { 'if-none-match': etag })).status).toBe(304);
    expect((await get('bytes=0-1', { 'if-range': '"old"' })).status).toBe(200);
    expect((await get('bytes=0-1', { 'if-range': etag })).status).toBe(206);
  });

  test('an empty file is an empty answer', async () => {
    files.put('/mnt/user-data/outputs/empty.txt', '');
    const answer = await artifact('mnt/user-data/outputs/empty.txt');
    expect([answer.status, answer.headers.get('content-length'), await answer.text()]).toEqual([200, '0', '']);
  });

  test('HEAD opens nothing', async () => {
    files.put('/mnt/user-data/outputs/a.bin', '0123456789');
    const head = await artifact('mnt/user-data/outputs/a.bin', {}, 'HEAD');
    expect([head.status, head.headers.get('content-length'), await head.text()]).toEqual([200, '10', '']);
    expect(files.opened).toBe(0);
  });

  test('traversal, other roots, folders, missing files', verifies('SEC-03', 'API-08'), async () => {
    files.put('/mnt/user-data/outputs/a', 'x');
    files.put('/mnt/user-data/outputs/link', '', 'link');
    const raw = async (path: string) =>
      (await rawRequest(fixture.port, { path: `/api/threads/t/artifacts/${path}`, headers: { host: '127.0.0.1' } }))
        .status;
    for (const path of [
      'etc/passwd',
      'mnt/user-data/outputs/..%2f..%2f..%2fetc%2fpasswd',
      'mnt/user-data/outputs%2F..%2F..%2Fetc/passwd',
      'mnt/user-data-evil/x',
      'mnt/user-data/outputs/a%00b',
      'mnt/user-data/outputs/..%5c..%5cx',
      'mnt/user-data/outputs/link',
    ])
      expect([path, await raw(path)]).toEqual([path, 403]);
    // Dot segments are resolved before any routing: what is left is another address.
    expect(await raw('mnt/user-data/outputs/../../../../../../etc/passwd')).toBe(404);
    expect(await raw('mnt/user-data/outputs/none')).toBe(404);
    expect(await raw('mnt/user-data/outputs')).toBe(400);
    expect(await raw('mnt/user-data/outputs/%ff')).toBe(400);
  });

  test('files of other threads and users do not exist', verifies('SEC-01'), async () => {
    fixture.sandboxes.files({ userId: 'somebody', threadId: 't' }).put('/mnt/user-data/outputs/secret', 'x');
    fixture.sandboxes.files({ userId: 'default', threadId: 'other' }).put('/mnt/user-data/outputs/secret', 'x');
    expect((await artifact('mnt/user-data/outputs/secret')).status).toBe(404);
  });

  test('names of any script survive', () => {
    expect(contentDisposition('attachment', 'Бericht "1" (ü).md')).toBe(
      `attachment; filename="_ericht _1_ (_).md"; filename*=UTF-8''%D0%91ericht%20%221%22%20%28%C3%BC%29.md`,
    );
    expect(contentDisposition('inline', 'a\r\nx: y')).not.toMatch(/[\r\n]/);
    expect(parseRange('bytes=5-2', 10)).toBeNull();
    expect(parseRange('bytes=-0', 10)).toBe('unsatisfiable');
    expect(parseRange('items=0-1', 10)).toBeNull();
  });
});

const upload = async (parts: [string, string | Uint8Array][], field = 'files') => {
  const form = new FormData();
  for (const [name, content] of parts)
    form.append(field, new File([typeof content === 'string' ? content : new Uint8Array(content)], name));
  const response = await fetch(`${fixture.url}/api/threads/t/uploads`, { method: 'POST', body: form });
  return {
    status: response.status,
    body: (await response.json()) as Record<string, unknown> & {
      files: Record<string, unknown>[];
      skipped_files: unknown[];
    },
  };
};
const stored = () => [...files.tree.keys()].map((path) => path.replace('/mnt/user-data/uploads/', '')).sort();

describe('uploads', () => {
  test('are stored, listed, readable as artifacts, deleted', verifies('FILE-1a', 'API-08'), async () => {
    const { status, body } = await upload([
      ['notes.txt', 'one'],
      ['notes.txt', 'two'],
    ]);
    expect(status).toBe(200);
    expect(body).toMatchObject({
      success: true,
      skipped_files: [],
      files: [
        { filename: 'notes.txt', size: 3, virtual_path: '/mnt/user-data/uploads/notes.txt' },
        { filename: 'notes_1.txt', original_filename: 'notes.txt' },
      ],
    });
    const url = body.files[0]?.artifact_url;
    expect(await (await fetch(`${fixture.url}${url}`)).text()).toBe('one');
    const list = (await (await fetch(`${fixture.url}/api/threads/t/uploads/list`)).json()) as { count: number };
    expect(list.count).toBe(2);
    expect(await (await fetch(`${fixture.url}/api/threads/t/uploads/limits`)).json()).toEqual({
      max_files: 3,
      max_file_size: 1000,
      max_total_size: 2500,
    });
    const remove = (name: string) => fetch(`${fixture.url}/api/threads/t/uploads/${name}`, { method: 'DELETE' });
    expect((await remove('notes.txt')).status).toBe(200);
    expect((await remove('notes.txt')).status).toBe(404);
    expect((await remove('..%2Fnotes_1.txt')).status).toBe(400);
    expect(stored()).toEqual(['notes_1.txt']);
  });

  test('an empty thread has an empty list', async () => {
    expect(await (await fetch(`${fixture.url}/api/threads/none/uploads/list`)).json()).toEqual({ files: [], count: 0 });
  });

  test('limits answer 413 and leave nothing new behind', verifies('FILE-1a', 'FILE-1b', 'API-08'), async () => {
    const cases: [string, [string, string][]][] = [
      [
        'one too large',
        [
          ['ok', 'x'],
          ['big', 'x'.repeat(1001)],
        ],
      ],
      [
        'too large together',
        [
          ['a', 'x'.repeat(900)],
          ['b', 'x'.repeat(900)],
          ['c', 'x'.repeat(900)],
        ],
      ],
      [
        'too many',
        [
          ['a', '1'],
          ['b', '2'],
          ['c', '3'],
          ['d', '4'],
        ],
      ],
    ];
    for (const [what, parts] of cases) {
      const { status, body } = await upload(parts);
      expect([what, status, body.code]).toEqual([what, 413, 'too_large']);
      expect(stored()).toEqual([]);
    }
    expect((await upload([['full', 'x'.repeat(1000)]])).status).toBe(200);
    expect(stored()).toEqual(['full']);
  });

  test('what was there before stays when a later file breaks a limit', async () => {
    files.put('/mnt/user-data/uploads/ok', 'old');
    expect(
      (
        await upload([
          ['ok', 'new'],
          ['big', 'x'.repeat(1001)],
        ])
      ).status,
    ).toBe(413);
    expect(stored()).toEqual(['ok']);
  });

  test(
    'bad names are skipped, not fatal; links are not followed',
    verifies('FILE-1b', 'SEC-03', 'API-08'),
    async () => {
      files.put('/mnt/user-data/uploads/link', '', 'link');
      const { body } = await upload([
        ['..', 'x'],
        ['link', 'y'],
        ['../../etc/passwd', 'z'],
      ]);
      expect(body.files.map((file) => file.filename)).toEqual(['passwd']);
      expect(body.skipped_files).toHaveLength(2);
      expect(stored()).toEqual(['link', 'passwd']);
    },
  );

  test('a link that is put there in the meantime costs that file only', verifies('FILE-1b'), async () => {
    const write = files.writeStream.bind(files);
    files.writeStream = async (path, source, options) => {
      if (path.endsWith('/raced')) throw new ReindeerError('path_refused', 'A link stands in the way.');
      return write(path, source, options);
    };
    const { status, body } = await upload([
      ['raced', 'x'.repeat(500)],
      ['after', 'y'],
    ]);
    expect([status, body.files.map((file) => file.filename)]).toEqual([200, ['after']]);
    expect(body.skipped_files).toEqual([{ filename: 'raced', reason: 'A link stands in the way.' }]);
    expect(stored()).toEqual(['after']);
  });

  test('a malformed or cut body is answered', async () => {
    const send = (body: string, type = 'multipart/form-data; boundary=b') =>
      rawRequest(fixture.port, {
        method: 'POST',
        path: '/api/threads/t/uploads',
        headers: { host: '127.0.0.1', 'content-type': type },
        body,
      });
    expect((await send('--b\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\nhalf')).status).toBe(
      400,
    );
    expect((await send('x', 'multipart/form-data; x=1')).status).toBe(415);
    expect((await send('{}', 'application/json')).status).toBe(415);
    expect((await send('--b--\r\n')).status).toBe(200);
    expect(stored()).toEqual([]);
  });

  test('names', () => {
    expect(safeFileName('/a/b/c.txt')).toBe('c.txt');
    expect(safeFileName('a\u202egpj.exe')).toBe('agpj.exe');
    expect(safeFileName('ü.md')).toBe('ü.md');
    for (const bad of ['', '.', '..', 'a\\b', 'a\0b', '.upload-x', ' ', 'x'.repeat(256), 'ü'.repeat(128)])
      expect(safeFileName(bad)).toBeNull();
    expect(distinctName('a.tar.gz', new Set(['a.tar.gz', 'a.tar_1.gz']))).toBe('a.tar_2.gz');
    expect(Buffer.byteLength(distinctName('x'.repeat(255), new Set(['x'.repeat(255)])))).toBeLessThanOrEqual(255);
    expect(distinctName('.env', new Set(['.env']))).toBe('.env_1');
  });
});
