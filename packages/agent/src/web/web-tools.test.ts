import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { ToolMessage } from '@langchain/core/messages';
import { NO_LOG } from '@reindeer/protocol';
import { verifies } from '@reindeer/testkit';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { Documents } from '../documents/documents.ts';
import { toolCaller } from '../test-support/call-tool.ts';
import { MemorySandboxes } from '../test-support/memory-sandbox.ts';
import { TOOL_META } from '../tools/tool-meta.ts';
import { type WebToolSettings, webTools } from './web-tools.ts';

interface Seen {
  readonly method: string;
  readonly url: URL;
  readonly headers: IncomingMessage['headers'];
  readonly body: string;
}
interface Reply {
  readonly status?: number;
  readonly json?: unknown;
  readonly text?: string;
  readonly type?: string;
  readonly location?: string;
}

/** A stand-in for the providers' APIs, at their network boundary. */
let api: Server;
let base: string;
let seen: Seen[] = [];
let reply: (request: Seen) => Reply = () => ({ json: {} });
const documents = new Documents({ logger: NO_LOG });

beforeAll(async () => {
  api = createServer(async (request, response) => {
    let body = '';
    for await (const chunk of request) body += String(chunk);
    const asked = {
      method: request.method ?? '',
      url: new URL(request.url ?? '', base),
      headers: request.headers,
      body,
    };
    seen.push(asked);
    const { status = 200, json, text = '', type, location } = reply(asked);
    response.writeHead(status, {
      'content-type': type ?? (json === undefined ? 'text/html' : 'application/json'),
      ...(location === undefined ? {} : { location }),
    });
    response.end(json === undefined ? text : JSON.stringify(json));
  });
  await new Promise<void>((resolve) => api.listen(0, '127.0.0.1', resolve));
  base = `http://127.0.0.1:${(api.address() as AddressInfo).port}`;
});
afterEach(() => {
  seen = [];
});
afterAll(async () => {
  api.closeAllConnections();
  await new Promise((resolve) => api.close(resolve));
  await documents.close();
});

function tools(entry: WebToolSettings, environment: Record<string, string> = {}) {
  const made = webTools({
    settings: [{ ...entry, options: { base_url: base, ...entry.options } }],
    documents,
    environment,
    logger: NO_LOG,
  });
  const { call } = toolCaller(made, new MemorySandboxes());
  return async (args: Record<string, unknown>): Promise<{ text: string; json: unknown; meta: unknown }> => {
    const message = (await call(entry.tool, args)) as ToolMessage;
    const json = ((): unknown => {
      try {
        return JSON.parse(message.text);
      } catch {
        return null;
      }
    })();
    return { text: message.text, json, meta: message.additional_kwargs[TOOL_META] };
  };
}

const HIT = { title: 'T', url: 'https://a.example/', snippet: 'S' };
/** Request and answer of each API, as its documentation shows them. */
const SEARCHES = {
  tavily: {
    key: 'TAVILY_API_KEY',
    json: { results: [{ title: 'T', url: HIT.url, content: 'S', score: 0.9 }] },
    sent: (request: Seen) => [
      request.method,
      request.url.pathname,
      request.headers.authorization,
      JSON.parse(request.body),
    ],
    expected: ['POST', '/search', 'Bearer the-key', { query: 'deer', max_results: 3 }],
  },
  firecrawl: {
    key: 'FIRECRAWL_API_KEY',
    json: { success: true, data: [{ title: 'T', url: HIT.url, description: 'S' }] },
    sent: (request: Seen) => [request.url.pathname, request.headers.authorization, JSON.parse(request.body)],
    expected: ['/v1/search', 'Bearer the-key', { query: 'deer', limit: 3 }],
  },
  exa: {
    key: 'EXA_API_KEY',
    json: { results: [{ title: 'T', url: HIT.url, text: 'S' }] },
    sent: (request: Seen) => [request.url.pathname, request.headers['x-api-key'], JSON.parse(request.body)],
    expected: [
      '/search',
      'the-key',
      { query: 'deer', type: 'auto', numResults: 3, contents: { text: { maxCharacters: 1000 } } },
    ],
  },
  infoquest: {
    key: 'INFOQUEST_API_KEY',
    json: {
      search_result: {
        results: [
          {
            content: {
              results: {
                organic: [
                  { title: 'T', url: HIT.url, desc: 'S' },
                  { title: 'Again', url: HIT.url, desc: 'S' },
                ],
                top_stories: { items: [{ title: 'Again', url: HIT.url, source: 'Paper', time_frame: '1 hour ago' }] },
              },
            },
          },
        ],
      },
    },
    sent: (request: Seen) => [
      request.method,
      request.url.pathname,
      request.headers.authorization,
      JSON.parse(request.body),
    ],
    expected: ['POST', '/', 'Bearer the-key', { search_type: 'Web', format: 'JSON', query: 'deer' }],
  },
  searxng: {
    key: null,
    json: { results: [{ title: 'T', url: HIT.url, content: 'S' }] },
    sent: (request: Seen) => [request.method, request.url.pathname, Object.fromEntries(request.url.searchParams)],
    expected: ['GET', '/search', { q: 'deer', format: 'json', language: 'auto' }],
  },
  serper: {
    key: 'SERPER_API_KEY',
    json: { organic: [{ title: 'T', link: HIT.url, snippet: 'S' }] },
    sent: (request: Seen) => [request.url.pathname, request.headers['x-api-key'], JSON.parse(request.body)],
    expected: ['/search', 'the-key', { q: 'deer', num: 3 }],
  },
  brave: {
    key: 'BRAVE_SEARCH_API_KEY',
    json: { web: { results: [{ title: 'T', url: HIT.url, description: '<strong>S</strong>' }] } },
    sent: (request: Seen) => [
      request.method,
      request.url.pathname,
      request.headers['x-subscription-token'],
      Object.fromEntries(request.url.searchParams),
    ],
    expected: ['GET', '/res/v1/web/search', 'the-key', { q: 'deer', count: '3' }],
  },
} as const;

const ROW: Record<string, string> = {
  tavily: 'WEB-5c',
  firecrawl: 'WEB-5d',
  exa: 'WEB-5e',
  searxng: 'WEB-5f',
  serper: 'WEB-5g',
  brave: 'WEB-5h',
  infoquest: 'WEB-5i',
};

describe('web_search', () => {
  for (const [provider, { key, json, sent, expected }] of Object.entries(SEARCHES)) {
    test(
      `${provider}: the request of its API, and the one shape of results`,
      verifies('WEB-1', ROW[provider] ?? ''),
      async () => {
        reply = () => ({ json });
        const search = tools(
          { tool: 'web_search', provider, options: { max_results: '3' } },
          key === null ? {} : { [key]: 'the-key' },
        );
        const found = await search({ query: ' deer ' });
        expect(found.json).toEqual({ query: 'deer', results: [HIT] });
        expect(found.meta).toMatchObject({ status: 'success' });
        expect(seen.map(sent)).toEqual([expected]);
      },
    );
  }

  test(
    'DuckDuckGo without a key: hits of the page, advertising and the way over the provider left out',
    verifies('WEB-1', 'WEB-5a'),
    async () => {
      const hit = (target: string, text: string, kind = '') =>
        `<div class="result ${kind}"><h2><a class="result__a" href="${target}">${text}</a></h2><a class="result__snippet">About <b>${text}</b></a></div>`;
      reply = () => ({
        text: `<html><body>${hit('//duckduckgo.com/y.js?ad=1', 'Ad', 'result--ad')}
        ${hit(`//duckduckgo.com/l/?uddg=${encodeURIComponent('https://one.example/?a=1&b=2')}&rut=x`, 'One')}
        ${hit(`//duckduckgo.com/l/?uddg=${encodeURIComponent('http://169.254.169.254/')}`, 'Inside')}
        ${hit('https://two.example/', 'Two')}</body></html>`,
      });
      const found = await tools({ tool: 'web_search', provider: 'duckduckgo', options: { region: 'de-de' } })({
        query: 'deer',
      });
      expect(found.json).toEqual({
        query: 'deer',
        results: [
          { title: 'One', url: 'https://one.example/?a=1&b=2', snippet: 'About One' },
          { title: 'Two', url: 'https://two.example/', snippet: 'About Two' },
        ],
      });
      expect(seen.map((request) => [request.method, request.body])).toEqual([['POST', 'q=deer&kl=de-de&kp=-1']]);
    },
  );

  test(
    'no more hits than were asked for, five where nothing is said; a page for robots is told, not taken for no hits',
    verifies('WEB-1', 'WEB-5a'),
    async () => {
      const many = Array.from({ length: 20 }, (_, at) => `https://site.example/${at}`);
      reply = () => ({ json: { results: many.map((url) => ({ title: 'T', url, content: 'S' })) } });
      const tavily = tools({ tool: 'web_search', provider: 'tavily', options: { max_results: 2, api_key: 'the-key' } });
      expect((await tavily({ query: 'deer' })).json).toMatchObject({ results: [{ url: many[0] }, { url: many[1] }] });
      expect(((await tavily({ query: 'deer' })).json as { results: unknown[] }).results).toHaveLength(2);
      const keyless = tools({ tool: 'web_search', provider: 'duckduckgo', options: {} });
      const page = many.map((url) => `<div class="result"><a class="result__a" href="${url}">T</a></div>`).join('');
      reply = () => ({ text: `<html><body>${page}</body></html>` });
      expect(((await keyless({ query: 'deer' })).json as { results: unknown[] }).results).toHaveLength(5);
      reply = () => ({ text: '<html><body><div class="anomaly-modal__title">Are you a robot?</div></body></html>' });
      expect((await keyless({ query: 'deer' })).json).toMatchObject({ error: expect.stringContaining('for a robot') });
    },
  );

  test(
    'nothing found, a missing key, a refused one, too many requests: an error in JSON that the metadata tells from a success',
    verifies('WEB-1'),
    async () => {
      const ask = (environment: Record<string, string> = { TAVILY_API_KEY: 'a-secret-key' }) =>
        tools({ tool: 'web_search', provider: 'tavily', options: {} }, environment)({ query: 'deer' });
      reply = () => ({ json: { results: [] } });
      const nothing = await ask();
      expect(nothing.json).toEqual({ error: 'No results found', query: 'deer' });
      expect(nothing.meta).toMatchObject({
        status: 'error',
        error_type: 'no_results',
        recommended_next_action: 'rewrite_query',
      });

      const missing = await ask({});
      expect(missing.json).toMatchObject({ error: expect.stringContaining('TAVILY_API_KEY'), query: 'deer' });
      expect(seen).toHaveLength(1);

      reply = () => ({ status: 401, text: 'a-secret-key is wrong' });
      const refusedKey = await ask();
      expect(refusedKey.json).toMatchObject({ error: expect.stringContaining('refused the API key') });
      expect(refusedKey.text).not.toContain('a-secret-key');

      reply = () => ({ status: 429 });
      expect((await ask()).meta).toMatchObject({ status: 'error', error_type: 'rate_limited' });
    },
  );

  test('a key is not carried to wherever an answer points', async () => {
    reply = ({ url }) =>
      url.pathname === '/search' ? { status: 302, json: {}, location: `${base}/elsewhere` } : { json: { results: [] } };
    const found = await tools({ tool: 'web_search', provider: 'exa', options: { api_key: 'the-key' } })({
      query: 'deer',
    });
    expect(found.json).toMatchObject({ error: expect.stringContaining('cannot be reached') });
    expect(seen.map((request) => request.url.pathname)).toEqual(['/search']);
  });

  test('a query longer than a provider takes is cut, not refused', verifies('WEB-5h'), async () => {
    reply = () => ({ json: SEARCHES.brave.json });
    await tools({ tool: 'web_search', provider: 'brave', options: { api_key: 'the-key' } })({
      query: 'x'.repeat(1000),
    });
    expect(seen[0]?.url.searchParams.get('q')).toHaveLength(400);
  });

  test('a value that makes no sense, or a provider for another tool, stops the start with what would be right', () => {
    const make = (entry: WebToolSettings) => () =>
      webTools({ settings: [entry], documents, environment: {}, logger: NO_LOG });
    expect(make({ tool: 'web_search', provider: 'tavily', options: { max_results: true } })).toThrow(
      /max_results must be a number/,
    );
    expect(make({ tool: 'web_search', provider: 'jina', options: {} })).toThrow(/Providers that can: .*tavily/);
    expect(make({ tool: 'web_search', provider: 'duckduckgo', options: { safesearch: 'maybe' } })).toThrow(
      /off, moderate, strict/,
    );
  });
});

describe('web_fetch', () => {
  const LONG = 'Word after word of a long page. '.repeat(400);

  test('title and text, at most 4,096 characters, and how to go on until the end', verifies('WEB-2'), async () => {
    const fetchPage = tools({ tool: 'web_fetch', provider: 'jina', options: {} });
    reply = () => ({ json: { data: { title: 'Long', content: LONG.trim() } } });
    const first = await fetchPage({ url: 'https://long.example/page' });
    expect(first.text.length).toBeLessThanOrEqual(4096);
    expect(first.text).toMatch(/^# Long\n\nWord after word/);
    let text = '';
    let part = first.text.replace(/^# Long\n\n/, '');
    for (let round = 0; round < 10; round += 1) {
      const more = /\n\n\[… \d+ more characters: go on with offset (\d+)\]$/.exec(part);
      text += more === null ? part : part.slice(0, more.index);
      if (more === null) break;
      part = (await fetchPage({ url: 'https://long.example/page', offset: Number(more[1]) })).text;
      expect(part.length).toBeLessThanOrEqual(4096);
    }
    expect(text).toBe(LONG.trim());
  });

  test('internal addresses are refused before any provider hears of them', verifies('WEB-4'), async () => {
    for (const provider of ['reader', 'jina', 'tavily', 'firecrawl', 'exa', 'infoquest']) {
      const fetchPage = tools({ tool: 'web_fetch', provider, options: { api_key: 'the-key' } });
      for (const url of ['http://127.0.0.1:2026/', 'http://[::1]/', 'http://169.254.169.254/latest/meta-data/'])
        expect((await fetchPage({ url })).text).toMatch(/^Error: .*internal address/);
    }
    expect(seen).toEqual([]);
  });

  test('an operator may open the own network to the built-in reader', async () => {
    reply = () => ({ text: 'of the house', type: 'text/plain' });
    const options = { allow_private_addresses: true };
    const fetchPage = tools({ tool: 'web_fetch', provider: 'reader', options });
    expect((await fetchPage({ url: `${base}/page` })).text).toContain('of the house');
    expect((await fetchPage({ url: 'file:///etc/passwd' })).text).toMatch(/^Error: /);
  });

  test('Jina works without a key and uses one that is there', verifies('WEB-5b'), async () => {
    reply = () => ({ json: { data: { title: 'Page', content: 'Text' } } });
    const read = async (environment: Record<string, string>) =>
      (
        await tools(
          { tool: 'web_fetch', provider: 'jina', options: {} },
          environment,
        )({ url: 'https://a.example/?q=1' })
      ).text;
    expect(await read({})).toBe('# Page\n\nText');
    expect(await read({ JINA_API_KEY: 'the-key' })).toBe('# Page\n\nText');
    expect(seen.map((request) => [request.url.href.slice(base.length), request.headers.authorization])).toEqual([
      ['/https://a.example/?q=1', undefined],
      ['/https://a.example/?q=1', 'Bearer the-key'],
    ]);
  });

  const bearer = { authorization: 'Bearer the-key' };
  const READS = [
    [
      'tavily',
      'WEB-5c',
      '/extract',
      bearer,
      { urls: ['https://a.example/'], format: 'markdown' },
      { results: [{ title: 'Page', raw_content: 'Text' }] },
    ],
    [
      'firecrawl',
      'WEB-5d',
      '/v1/scrape',
      bearer,
      { url: 'https://a.example/', formats: ['markdown'] },
      { data: { markdown: 'Text', metadata: { title: 'Page' } } },
    ],
    [
      'exa',
      'WEB-5e',
      '/contents',
      { 'x-api-key': 'the-key' },
      { urls: ['https://a.example/'], text: true },
      { results: [{ title: 'Page', text: 'Text' }] },
    ],
    [
      'infoquest',
      'WEB-5i',
      '/',
      bearer,
      { url: 'https://a.example/', format: 'HTML', fetch_time: 10, timeout: 10, navi_timeout: 30 },
      { reader_result: '<html><head><title>Page</title></head><body><p>Text</p></body></html>' },
    ],
  ] as const;
  for (const [provider, row, path, headers, body, json] of READS)
    test(`${provider} reads pages with its own API`, verifies('WEB-2', row), async () => {
      reply = () => ({ json });
      const fetchPage = tools({ tool: 'web_fetch', provider, options: { api_key: 'the-key' } });
      expect((await fetchPage({ url: 'https://a.example/' })).text).toBe('# Page\n\nText');
      expect(seen).toMatchObject([{ method: 'POST', headers }]);
      expect(seen.map((request) => [request.url.pathname, JSON.parse(request.body)])).toEqual([[path, body]]);
      reply = () => ({ json: {} });
      expect((await fetchPage({ url: 'https://a.example/' })).text).toMatch(/^Error: .*[Nn]o content found/);
    });

  test(
    'InfoQuest: limits that are off are not sent; a page without an envelope is read too',
    verifies('WEB-5i'),
    async () => {
      reply = () => ({ text: '<html><head><title>Page</title></head><body><p>Text</p></body></html>' });
      const off = { timeout: -1, fetch_time: '-1', navigation_timeout: -1, api_key: 'the-key' };
      const fetchPage = tools({ tool: 'web_fetch', provider: 'infoquest', options: off });
      expect((await fetchPage({ url: 'https://a.example/' })).text).toBe('# Page\n\nText');
      expect(JSON.parse(seen[0]?.body ?? '')).toEqual({ url: 'https://a.example/', format: 'HTML' });
    },
  );
});

describe('image_search', () => {
  const images = [
    {
      imageUrl: 'https://a.example/1.png',
      thumbnailUrl: 'https://a.example/1s.png',
      title: 'One',
      link: 'https://a.example/',
    },
    {
      imageUrl: 'http://10.0.0.1/2.png',
      thumbnailUrl: 'https://a.example/2s.png',
      title: 'Two',
      link: 'https://a.example/',
    },
    { imageUrl: 'http://10.0.0.1/3.png', thumbnailUrl: 'data:image/png;base64,AA', title: 'Three', link: '' },
  ];
  test(
    'internal addresses become empty and do not fall back to their sibling; a picture without any is left out',
    verifies('WEB-3', 'WEB-5g'),
    async () => {
      reply = () => ({ json: { images } });
      const found = await tools({ tool: 'image_search', provider: 'serper', options: { api_key: 'the-key' } })({
        query: 'deer',
      });
      expect(found.json).toMatchObject({
        query: 'deer',
        results: [
          {
            title: 'One',
            image_url: 'https://a.example/1.png',
            thumbnail_url: 'https://a.example/1s.png',
            source_url: 'https://a.example/',
          },
          { title: 'Two', image_url: '', thumbnail_url: 'https://a.example/2s.png' },
        ],
        usage_hint: expect.any(String),
      });
      expect(seen.map(({ method, url, headers, body }) => [method, url.pathname, headers['x-api-key'], body])).toEqual([
        ['POST', '/images', 'the-key', JSON.stringify({ q: 'deer', num: 5 })],
      ]);
    },
  );

  test('DuckDuckGo: a token first, then the pictures with the filters', verifies('WEB-3', 'WEB-5a'), async () => {
    reply = ({ url }) =>
      url.pathname === '/i.js'
        ? {
            json: {
              results: [{ title: 'P', image: 'https://a.example/p.png', thumbnail: '', url: 'https://a.example/' }],
            },
          }
        : { text: '<script>vqd="4-123";</script>' };
    const found = await tools({ tool: 'image_search', provider: 'duckduckgo', options: {} })({
      query: 'deer',
      size: 'Large',
    });
    expect(found.json).toMatchObject({
      results: [{ title: 'P', image_url: 'https://a.example/p.png', thumbnail_url: '' }],
    });
    expect([seen[1]?.url.searchParams.get('vqd'), seen[1]?.url.searchParams.get('f')]).toEqual([
      '4-123',
      ',size:Large,,,',
    ]);
  });

  test('Brave', verifies('WEB-5h'), async () => {
    reply = () => ({
      json: {
        results: [
          {
            title: 'P',
            url: 'https://a.example/',
            properties: { url: 'https://a.example/p.png' },
            thumbnail: { src: 'https://a.example/s.png' },
          },
        ],
      },
    });
    const found = await tools({ tool: 'image_search', provider: 'brave', options: { api_key: 'the-key' } })({
      query: 'deer',
      max_results: 7,
    });
    expect(found.json).toMatchObject({
      results: [{ image_url: 'https://a.example/p.png', thumbnail_url: 'https://a.example/s.png' }],
    });
    expect(seen[0]).toMatchObject({ method: 'GET', headers: { 'x-subscription-token': 'the-key' } });
    expect(seen[0]?.url.pathname).toBe('/res/v1/images/search');
    expect(Object.fromEntries(seen[0]?.url.searchParams ?? [])).toEqual({ q: 'deer', count: '7' });
  });

  test('InfoQuest: pictures of a size and an age, each once', verifies('WEB-3', 'WEB-5i'), async () => {
    const picture = { title: 'P', original: 'https://a.example/p.png' };
    reply = () => ({
      json: { search_result: { results: [{ content: { results: { images_results: [picture, picture, {}] } } }] } },
    });
    const options = { api_key: 'the-key', image_size: 'i', image_search_time_range: 7 };
    const search = tools({ tool: 'image_search', provider: 'infoquest', options });
    const found = (await search({ query: 'deer' })).json as { results: unknown[] };
    expect(found.results).toEqual([
      { title: 'P', image_url: 'https://a.example/p.png', thumbnail_url: '', source_url: '' },
    ]);
    await search({ query: 'deer', size: 'Large' });
    const body = { format: 'JSON', search_type: 'Images', query: 'deer', time_range: 7 };
    expect(seen.map((request) => [request.headers.authorization, JSON.parse(request.body)])).toEqual([
      ['Bearer the-key', { ...body, image_size: 'i' }],
      ['Bearer the-key', { ...body, image_size: 'l' }],
    ]);
    reply = () => ({ json: { content: 'x' } });
    expect((await search({ query: 'deer' })).json).toMatchObject({ error: expect.stringContaining('makes no sense') });
  });
});
