import { NO_LOG, ReindeerError } from '@reindeer/protocol';
import { afterEach, expect, test } from 'vitest';
import { Documents } from './documents.ts';

const open: Documents[] = [];
afterEach(async () => {
  await Promise.all(open.splice(0).map((documents) => documents.close()));
});
function documents(options: Partial<ConstructorParameters<typeof Documents>[0]> = {}): Documents {
  const made = new Documents({ logger: NO_LOG, ...options });
  open.push(made);
  return made;
}

const page = (html: string, charset: string | null = null, maxCharacters = 100_000) => ({
  kind: 'page' as const,
  body: new Uint8Array(Buffer.from(html, 'latin1')),
  charset,
  url: 'https://example.org/a/b.html',
  maxCharacters,
});
const LONG = 'The reindeer is a species of deer with a circumpolar distribution, native to the Arctic. '.repeat(10);

test('the main text of a page becomes Markdown: links complete, tables kept, scripts and navigation gone', async () => {
  const html = `<html><head><title> A  page </title><script>evil()</script></head><body>
    <nav><a href="/home">Home</a></nav>
    <article><h1>Reindeer</h1><p>${LONG}<a href="../c.html">more</a> <a href="javascript:evil()">click</a></p>
    <table><tr><th>Year</th><th>Count</th></tr><tr><td>2024</td><td>a|b</td></tr></table>
    <p>${LONG}</p><img src="data:image/png;base64,AAAA" alt="herd"></article>
    <footer>Imprint</footer></body></html>`;
  const read = await documents().read(page(html));
  expect(read.title).toBe('A page');
  expect(read.markdown).toContain('[more](https://example.org/c.html)');
  expect(read.markdown).toContain('| Year | Count |\n| --- | --- |\n| 2024 | a\\|b |');
  expect(read.markdown).not.toMatch(/evil|base64|Imprint|javascript/);
});

test('a page without a main text gives all its text; a character set is honoured', async () => {
  const read = await documents().read(page('<title>T</title><p>caf\xe9</p><script>no()</script>', 'iso-8859-1'));
  expect(read).toEqual({ title: 'T', markdown: 'café', characters: 4 });
  const declared = await documents().read(page('<meta charset="windows-1252"><p>\x80 5</p>'));
  expect(declared.markdown).toBe('€ 5');
});

/** A thread that never ends the job of one address, runs out of memory at another, and answers the rest. */
const FAULTY = new URL(
  `data:text/javascript,${encodeURIComponent(`
    import { parentPort } from 'node:worker_threads';
    parentPort.on('message', ({ id, job }) => {
      if (job.url === 'hang') for (;;);
      if (job.url === 'fill') { const all = []; for (;;) all.push(new Array(100_000).fill({})); }
      parentPort.postMessage({ id, result: { title: '', markdown: 'fine', characters: 4 } });
    });
    parentPort.postMessage('ready');
  `)}`,
);

test.each([
  ['hang', /more than 0\.2 s/],
  ['fill', /too much memory|ended|more than/],
])('a job that does not end (%s) fails alone; what waits goes on in a new thread', async (url, reason) => {
  const reader = documents({ workerUrl: FAULTY, timeoutMs: url === 'hang' ? 200 : 10_000, memoryMib: 16, threads: 1 });
  const hostile = reader.read({ ...page(''), url });
  const next = reader.read(page(''));
  await expect(hostile).rejects.toSatisfy(
    (error) => ReindeerError.is(error) && error.code === 'tool_failed' && reason.test(error.message),
  );
  expect((await next).markdown).toBe('fine');
});

test('one that takes long keeps no other waiting, and a third one waits for the thread that is free', async () => {
  const reader = documents({ workerUrl: FAULTY });
  const long = reader.read({ ...page(''), url: 'hang' });
  const answers = [reader.read(page('')), reader.read(page(''))];
  for (const { markdown } of await Promise.all(answers)) expect(markdown).toBe('fine');
  const closed = reader.close();
  await expect(long).rejects.toThrow(/being stopped/);
  await closed;
});

test('documents that wait are bounded by their size as well', async () => {
  const reader = documents({ maxQueuedBytes: 1_000, threads: 1 });
  const html = `<p>${'x'.repeat(600)}</p>`;
  const [first, second] = [reader.read(page(html)), reader.read(page(html))];
  await expect(reader.read(page(html))).rejects.toMatchObject({ code: 'over_capacity' });
  await Promise.all([first, second]);
  await reader.read(page(`<p>${'x'.repeat(5_000)}</p>`));
});

test('a full queue, an abort and a stop each have their answer', async () => {
  const reader = documents({ maxQueued: 1, threads: 1 });
  const stop = new AbortController();
  const first = reader.read(page('<p>1</p>'));
  const second = reader.read(page('<p>2</p>'), stop.signal);
  await expect(reader.read(page('<p>3</p>'))).rejects.toThrow(/Too many documents/);
  stop.abort();
  await expect(second).rejects.toThrow(/cut short/);
  expect((await first).markdown).toBe('1');
  const last = reader.read(page('<p>4</p>'));
  const closed = reader.close();
  await expect(last).rejects.toThrow(/being stopped/);
  await closed;
  await reader.close();
  await expect(reader.read(page('<p>5</p>'))).rejects.toThrow(/being stopped/);
});
