import { expect, test } from 'vitest';
import { readHits } from './hits.ts';

test('what a search found becomes a list; of a picture the page that shows it', () => {
  const results = [
    { title: 'Reindeer', url: 'https://example.org/deer', snippet: 'They see ultraviolet.' },
    { title: '', url: 'https://example.org/moss' },
    { title: 'no address' },
    { title: 'A picture', image_url: 'https://example.org/a.png', source_url: 'https://example.org/gallery' },
    null,
  ];
  expect(readHits('web_search', JSON.stringify({ query: 'deer', results }))).toEqual([
    { title: 'Reindeer', address: 'https://example.org/deer', snippet: 'They see ultraviolet.' },
    { title: 'https://example.org/moss', address: 'https://example.org/moss', snippet: '' },
    { title: 'A picture', address: 'https://example.org/gallery', snippet: '' },
  ]);
});

test('anything else stays the text that it is', () => {
  const found = JSON.stringify({ query: 'deer', results: [{ title: 'x', url: 'https://example.org' }] });
  expect(readHits('bash', found)).toBeNull();
  for (const text of ['', 'null', '[]', `${found}…`, '{"error":"No results found","query":"x"}', '{"results":[]}'])
    expect(readHits('web_search', text), text).toBeNull();
});
