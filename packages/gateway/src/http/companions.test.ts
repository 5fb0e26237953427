import { verifies } from '@reindeer/testkit';
import { afterEach, expect, test } from 'vitest';
import { type Fixture, startFixture } from '../testing/http-fixture.ts';

let fixture: Fixture;
afterEach(() => fixture.close());

const UPLOADS = '/mnt/user-data/uploads';

async function start() {
  const asked: string[] = [];
  fixture = await startFixture({
    uploads: {
      maxFiles: 10,
      maxFileSize: 10_000,
      maxTotalSize: 50_000,
      convert: async (name, bytes) => {
        asked.push(name);
        if (bytes.length === 3) throw new Error('damaged');
        return { markdown: `# Text of ${name}`, characters: 10, note: name.startsWith('scan') ? 'Scanned.' : null };
      },
    },
  });
  const upload = async (...files: [string, string][]) => {
    const form = new FormData();
    for (const [name, content] of files) form.append('files', new File([content], name));
    const answer = await fetch(`${fixture.url}/api/threads/t/uploads`, { method: 'POST', body: form });
    return (await answer.json()) as { success: boolean; files: Record<string, unknown>[] };
  };
  const remove = (name: string) => fetch(`${fixture.url}/api/threads/t/uploads/${name}`, { method: 'DELETE' });
  const text = async (path: string) => (await fetch(`${fixture.url}/api/threads/t/artifacts${path}`)).text();
  const names = async () =>
    (
      (await (await fetch(`${fixture.url}/api/threads/t/uploads/list`)).json()) as { files: { filename: string }[] }
    ).files
      .map((file) => file.filename)
      .sort();
  return { asked, upload, remove, text, names };
}

test('a document gets its Markdown beside it, and loses it when it is deleted', verifies('FILE-2'), async () => {
  const { asked, upload, remove, text, names } = await start();
  const { files } = await upload(['report.pdf', 'pdf…'], ['notes.txt', 'text'], ['scan.PDF', 'pdf…']);
  expect(asked).toEqual(['report.pdf', 'scan.PDF']);
  expect(files[0]).toMatchObject({
    filename: 'report.pdf',
    markdown_file: 'report.md',
    markdown_virtual_path: `${UPLOADS}/report.md`,
  });
  expect(files[1]).not.toHaveProperty('markdown_file');
  expect(await text(`${UPLOADS}/report.md`)).toBe('<!-- Converted from report.pdf -->\n\n# Text of report.pdf\n');
  expect(await text(`${UPLOADS}/scan.md`)).toContain('> Scanned.');
  await upload(['report.pdf', 'newer']);
  expect((await remove('report.pdf')).status).toBe(200);
  expect(await names()).toEqual(['notes.txt', 'scan.PDF', 'scan.md']);
});

test('a file of the user’s own is neither overwritten nor deleted with the document', verifies('FILE-2'), async () => {
  const { upload, remove, text, names } = await start();
  await upload(['report.md', 'mine']);
  const { files } = await upload(['report.pdf', 'pdf…']);
  expect(files[0]).toMatchObject({ markdown_file: 'report.pdf.md' });
  expect(await text(`${UPLOADS}/report.md`)).toBe('mine');
  await remove('report.pdf');
  expect(await names()).toEqual(['report.md']);
  await upload(['report.pdf.md', 'mine too']);
  expect((await upload(['report.pdf', 'pdf…'])).files[0]).not.toHaveProperty('markdown_file');
  await remove('report.pdf');
  expect(await names()).toEqual(['report.md', 'report.pdf.md']);
});

test('two documents of one name but for its ending have a Markdown each', verifies('FILE-2'), async () => {
  const { upload, remove, text, names } = await start();
  const { files } = await upload(['a.pdf', 'pdf…'], ['a.docx', 'word']);
  expect(files.map((file) => file.markdown_file)).toEqual(['a.md', 'a.docx.md']);
  expect(await text(`${UPLOADS}/a.docx.md`)).toContain('Text of a.docx');
  await upload(['a.docx', 'word again']);
  expect(await names()).toEqual(['a.docx', 'a.docx.md', 'a.md', 'a.pdf']);
  await remove('a.docx');
  expect(await names()).toEqual(['a.md', 'a.pdf']);
});

test('a document that cannot be read is kept as it is', verifies('FILE-2'), async () => {
  const { upload, names } = await start();
  const { success, files } = await upload(['bad.docx', 'bad']);
  expect([success, files[0]?.markdown_file]).toEqual([true, undefined]);
  expect(await names()).toEqual(['bad.docx']);
});
