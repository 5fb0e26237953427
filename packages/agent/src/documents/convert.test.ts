import { NO_LOG } from '@reindeer/protocol';
import { verifies, type ZipEntry, zip } from '@reindeer/testkit';
import { afterAll, describe, expect, test } from 'vitest';
import { Documents } from './documents.ts';
import { CONVERTIBLE } from './jobs.ts';

const documents = new Documents({ logger: NO_LOG, timeoutMs: 60_000 });
afterAll(() => documents.close());
const convert = (name: string, body: Uint8Array, maxCharacters = 100_000) =>
  documents.read({ kind: 'convert', name, body: new Uint8Array(body), maxCharacters });

const W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"';
const paragraph = (text: string, style = ''): string =>
  `<w:p>${style === '' ? '' : `<w:pPr><w:pStyle w:val="${style}"/></w:pPr>`}<w:r><w:t>${text}</w:t></w:r></w:p>`;
const wordDocument = (body: string): string =>
  `<?xml version="1.0"?><w:document ${W}><w:body>${body}</w:body></w:document>`;
const docxParts = (body: string): ZipEntry[] => [
  {
    name: '[Content_Types].xml',
    content:
      '<?xml version="1.0"?><Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Override PartName="/word/document.xml" ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/><Override PartName="/word/styles.xml" ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.styles+xml"/></Types>',
  },
  {
    name: '_rels/.rels',
    content:
      '<?xml version="1.0"?><Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" Target="word/document.xml"/></Relationships>',
  },
  {
    name: 'word/styles.xml',
    content: `<?xml version="1.0"?><w:styles ${W}><w:style w:type="paragraph" w:styleId="Heading1"><w:name w:val="heading 1"/></w:style></w:styles>`,
  },
  {
    name: 'word/_rels/document.xml.rels',
    content:
      '<?xml version="1.0"?><Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/styles" Target="styles.xml"/></Relationships>',
  },
  {
    name: 'word/document.xml',
    content: wordDocument(body),
  },
];
const docx = (body: string): Buffer => zip(docxParts(body));

const xlsx = (): Buffer => zip(xlsxParts('417000'));
/** The same archive with another end. */
function withEnd(archive: Buffer, { count, offset, size }: { count?: number; offset?: number; size?: number }): Buffer {
  const changed = Buffer.from(archive);
  const end = changed.length - 22;
  if (count !== undefined) for (const at of [8, 10]) changed.writeUInt16LE(count, end + at);
  if (size !== undefined) changed.writeUInt32LE(size, end + 12);
  if (offset !== undefined) changed.writeUInt32LE(offset, end + 16);
  return changed;
}

const xlsxParts = (value: string): ZipEntry[] => {
  const S = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"';
  const R = 'http://schemas.openxmlformats.org/officeDocument/2006/relationships';
  return [
    {
      name: '[Content_Types].xml',
      content: '<?xml version="1.0"?><Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>',
    },
    {
      name: 'xl/workbook.xml',
      content: `<?xml version="1.0"?><workbook ${S} xmlns:r="${R}"><sheets><sheet name="Herds" sheetId="1" r:id="rId1"/></sheets></workbook>`,
    },
    {
      name: 'xl/_rels/workbook.xml.rels',
      content: `<?xml version="1.0"?><Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="rId1" Type="${R}/worksheet" Target="worksheets/sheet1.xml"/></Relationships>`,
    },
    {
      name: 'xl/worksheets/sheet1.xml',
      content: `<?xml version="1.0"?><worksheet ${S}><dimension ref="A1:B2"/><sheetData><row r="1"><c r="A1" t="inlineStr"><is><t>name</t></is></c><c r="B1" t="inlineStr"><is><t>a|b</t></is></c></row><row r="2"><c r="A2" t="inlineStr"><is><t>Taimyr</t></is></c><c r="B2"><v>${value}</v></c></row></sheetData></worksheet>`,
    },
  ];
};

const slide = (...lines: string[]): string =>
  `<p:sld xmlns:a="a" xmlns:p="p">${lines.map((line) => `<a:p><a:r><a:t>${line}</a:t></a:r></a:p>`).join('')}</p:sld>`;

/** A PDF of one page with one line of text for each entry. */
function pdf(...lines: string[]): Buffer {
  const content = `BT /F1 12 Tf 72 720 Td ${lines.map((line) => `(${line}) Tj 0 -16 Td`).join(' ')} ET`;
  const objects = [
    '<< /Type /Catalog /Pages 2 0 R >>',
    '<< /Type /Pages /Kids [3 0 R] /Count 1 >>',
    '<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>',
    `<< /Length ${content.length} >>\nstream\n${content}\nendstream`,
    '<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>',
  ];
  let text = '%PDF-1.4\n';
  const places = objects.map((object, at) => {
    const place = text.length;
    text += `${at + 1} 0 obj\n${object}\nendobj\n`;
    return place;
  });
  const start = text.length;
  text += `xref\n0 6\n0000000000 65535 f \n${places.map((place) => `${String(place).padStart(10, '0')} 00000 n \n`).join('')}trailer\n<< /Size 6 /Root 1 0 R >>\nstartxref\n${start}\n%%EOF\n`;
  return Buffer.from(text, 'latin1');
}

describe('documents as Markdown', () => {
  test('Word: headings, text, tables; no pictures as data', verifies('FILE-2'), async () => {
    const table = `<w:tbl><w:tr><w:tc>${paragraph('Year')}</w:tc><w:tc>${paragraph('Count')}</w:tc></w:tr><w:tr><w:tc>${paragraph('2024')}</w:tc><w:tc>${paragraph('7')}</w:tc></w:tr></w:tbl>`;
    const { markdown } = await convert(
      'report.DOCX',
      docx(paragraph('Herds', 'Heading1') + paragraph('They walk &amp; rest.') + table),
    );
    expect(markdown).toBe('# Herds\n\nThey walk & rest.\n\n| Year | Count |\n| --- | --- |\n| 2024 | 7 |');
  });

  test('Excel: each sheet as a table', verifies('FILE-2'), async () => {
    expect((await convert('a.xlsx', xlsx())).markdown).toBe(
      '## Herds\n\n| name | a\\|b |\n| --- | --- |\n| Taimyr | 417000 |',
    );
  });

  test('PowerPoint: slides in order, titles, points and notes', verifies('FILE-2'), async () => {
    const deck = zip([
      { name: 'ppt/slides/slide10.xml', content: slide('Last') },
      { name: 'ppt/slides/slide2.xml', content: slide('R&amp;D &#8211; &lt;now&gt;', 'one', 'two') },
      { name: 'ppt/notesSlides/notesSlide2.xml', content: slide('Say hello.', '2') },
      { name: 'ppt/media/image1.png', content: 'x' },
    ]);
    expect((await convert('a.pptx', deck)).markdown).toBe(
      '## Slide 1: R&D – <now>\n\n- one\n- two\n\n> Say hello.\n\n## Slide 2: Last',
    );
  });

  test('PDF: page by page; one without text is named', verifies('FILE-2'), async () => {
    const whole = await convert(
      'a.pdf',
      pdf('The herd crosses the river in the early morning light.', 'It rests on the other side.'),
    );
    expect(whole.markdown).toMatch(/^## Page 1\n\nThe herd crosses the river[\s\S]*It rests/);
    expect(whole.note).toBeNull();
    expect((await convert('a.pdf', pdf('7'))).note).toMatch(/scanned/);
  });

  test.each(['docx', 'xlsx', 'pptx'])(
    '%s: one that unpacks without an end is refused before it is read',
    verifies('FILE-2'),
    async (kind) => {
      const bomb = (claimedSize?: number) =>
        zip([
          {
            name: 'word/document.xml',
            content: Buffer.alloc(40 * 1024 * 1024),
            ...(claimedSize === undefined ? {} : { claimedSize }),
          },
        ]);
      const many = zip(Array.from({ length: 10_001 }, (_, at) => ({ name: `part-${at}` })));
      await expect(convert(`a.${kind}`, many)).rejects.toMatchObject({
        cause: expect.stringMatching(/unpacks to more than/),
      });
      await expect(convert(`a.${kind}`, bomb(300 * 1024 * 1024))).rejects.toMatchObject({
        cause: expect.stringMatching(/unpacks to more than/),
      });
      // The list lies: more comes than it says.
      await expect(convert(`a.${kind}`, bomb(1_000))).rejects.toMatchObject({
        cause: expect.stringMatching(/too many bytes/),
      });
    },
  );

  test(
    'nothing is read of an office file but what was measured: each reader finds the parts in its own way',
    verifies('FILE-2'),
    async () => {
      // The list goes on beyond the number of parts that the archive names.
      const shown = [
        ...docxParts(paragraph('shown')),
        { name: 'word/document.xml', content: wordDocument(paragraph('beyond')) },
      ];
      expect((await convert('a.docx', withEnd(zip(shown), { count: shown.length - 1 }))).markdown).toBe('shown');
      // A second list, which those find who take the first one's place for moved.
      const real = zip(docxParts(paragraph('shown')));
      const other = zip(docxParts(paragraph('elsewhere')));
      const first = real.subarray(0, -22);
      const two = Buffer.concat([first, other]);
      const size = real.readUInt32LE(real.length - 10);
      expect(other.readUInt32LE(other.length - 10)).toBe(size);
      expect((await convert('a.docx', withEnd(two, { offset: first.length - size }))).markdown).toBe('shown');
      // A part that no list names.
      const sheets = xlsxParts('417000');
      const unlisted = zip([...sheets, ...xlsxParts('13').slice(-1)]);
      const body = unlisted.subarray(0, unlisted.readUInt32LE(unlisted.length - 6));
      const list = zip(sheets).subarray(-22 - zip(sheets).readUInt32LE(zip(sheets).length - 10), -22);
      const hidden = Buffer.concat([body, list, unlisted.subarray(-22)]);
      const { markdown } = await convert(
        'a.xlsx',
        withEnd(hidden, { count: sheets.length, offset: body.length, size: list.length }),
      );
      expect(markdown).toContain('417000');
    },
  );

  test('HTML, and text that is cut', verifies('FILE-2'), async () => {
    const page = Buffer.from('<html><head><title>T</title></head><body><h2>A</h2><p>text</p></body></html>');
    expect((await convert('a.html', page)).markdown).toBe('# T\n\n## A\n\ntext');
    expect(await convert('a.html', page, 5)).toMatchObject({ markdown: '# T\n\n', characters: 15 });
  });

  test.each([
    ['a.pdf', Buffer.from('no pdf')],
    ['a.docx', Buffer.from('no zip')],
    ['a.xlsx', zip([{ name: 'x', content: 'y' }])],
    ['a.pptx', zip([{ name: 'x', content: 'y' }])],
    ['a.exe', Buffer.from('MZ')],
  ])('%s that is damaged fails alone', verifies('FILE-2'), async (name, bytes) => {
    await expect(convert(name, bytes)).rejects.toThrow(/could not be read/);
    expect(CONVERTIBLE).not.toContain('.exe');
  });
});
