import { NO_LOG } from '@reindeer/protocol';
import { verifies } from '@reindeer/testkit';
import { afterAll, expect, test } from 'vitest';
import { Documents } from '../../documents/documents.ts';
import type { FetchedPage } from '../guarded-fetch.ts';
import { ownReader } from './reader.ts';

const documents = new Documents({ logger: NO_LOG });
afterAll(() => documents.close());

const read = (page: Partial<FetchedPage> & { text?: string }) =>
  ownReader({
    documents,
    timeoutMs: 1_000,
    get: async (url) => ({
      url,
      status: 200,
      mediaType: 'text/html',
      charset: null,
      truncated: false,
      ...page,
      body: page.body ?? new TextEncoder().encode(page.text ?? ''),
    }),
  }).fetch('https://a.example/', { signal: undefined });

test(
  'a page, a text and data in JSON are read; pictures, binary data, errors and empty pages are named',
  verifies('WEB-2'),
  async () => {
    const html = '<html><head><title>Deer</title></head><body><p>They walk.</p></body></html>';
    expect(await read({ text: html })).toEqual({ title: 'Deer', markdown: 'They walk.' });
    expect(await read({ text: html, mediaType: '' })).toEqual({ title: 'Deer', markdown: 'They walk.' });
    expect(await read({ text: '{"a":1}', mediaType: 'application/json' })).toEqual({
      title: 'https://a.example/',
      markdown: '{"a":1}',
    });
    expect(await read({ body: new Uint8Array([0xe9]), mediaType: 'text/plain', charset: 'latin1' })).toMatchObject({
      markdown: 'é',
    });
    await expect(read({ text: 'x', mediaType: 'image/png' })).rejects.toThrow(/image\/png, which cannot be read/);
    await expect(read({ body: new Uint8Array([1, 0, 2]), mediaType: 'text/plain' })).rejects.toThrow(/binary data/);
    await expect(read({ text: html, status: 404 })).rejects.toThrow(/404: there is no such page/);
    await expect(read({ text: '<script>1</script>' })).rejects.toThrow(/No content found/);
    await expect(read({ text: '' })).rejects.toThrow(/empty/);
  },
);
