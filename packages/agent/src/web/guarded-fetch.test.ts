import type { lookup as systemLookup } from 'node:dns';
import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { gzipSync } from 'node:zlib';
import { ReindeerError } from '@reindeer/protocol';
import { verifies } from '@reindeer/testkit';
import { afterEach, expect, test } from 'vitest';
import { refusedAddress } from './address.ts';
import { createGuardedFetch } from './guarded-fetch.ts';

const servers: Server[] = [];
afterEach(async () => {
  await Promise.all(
    servers.splice(0).map((server) => {
      server.closeAllConnections();
      return new Promise((resolve) => server.close(resolve));
    }),
  );
});

async function serve(listener: RequestListener): Promise<{ port: number; seen: string[] }> {
  const seen: string[] = [];
  const server = createServer((request, response) => {
    seen.push(`${request.headers.host}${request.url}`);
    listener(request, response);
  });
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return { port: (server.address() as AddressInfo).port, seen };
}

/** A name server: each name has answers, one list per question; the last one stays. */
function names(answers: Record<string, string[][]>): { lookup: typeof systemLookup; asked: string[] } {
  const asked: string[] = [];
  const lookup = ((host: string, _options: unknown, done: (error: Error | null, found: unknown) => void) => {
    asked.push(host);
    const left = answers[host] ?? [];
    const found = (left.length > 1 ? left.shift() : left[0]) ?? [];
    if (found.length === 0) return done(Object.assign(new Error('no such name'), { code: 'ENOTFOUND' }), []);
    done(
      null,
      found.map((address) => ({ address, family: address.includes(':') ? 6 : 4 })),
    );
  }) as unknown as typeof systemLookup;
  return { lookup, asked };
}

/** The test's own address stands for the public internet; every other internal address stays internal. */
const refused = (address: string): string | null => (address === '127.0.0.1' ? null : refusedAddress(address));
const REQUEST = { timeoutMs: 5_000, maxBytes: 1_000_000 };
const codeOf = (work: Promise<unknown>): Promise<string> =>
  work.then(
    () => 'open',
    (error: unknown) => (ReindeerError.is(error) ? error.code : String(error)),
  );

test('reads a page: where it ended up, its type, its text', verifies('WEB-2'), async () => {
  const { port } = await serve((request, response) => {
    if (request.url === '/old') response.writeHead(301, { location: '/new' }).end();
    else response.writeHead(200, { 'content-type': 'text/html; charset=ISO-8859-1' }).end('<p>x');
  });
  const { lookup } = names({ 'public.test': [['127.0.0.1']] });
  const page = await createGuardedFetch({ lookup, refused })(`http://public.test:${port}/old`, REQUEST);
  expect(page).toMatchObject({
    url: `http://public.test:${port}/new`,
    status: 200,
    mediaType: 'text/html',
    charset: 'iso-8859-1',
    truncated: false,
  });
  expect(new TextDecoder().decode(page.body)).toBe('<p>x');
});

test('a name that leads inside is refused, also when only one of its answers does', verifies('WEB-4'), async () => {
  const { port, seen } = await serve((_request, response) => response.end('secret'));
  const { lookup } = names({
    'inside.test': [['10.0.0.5']],
    'both.test': [['127.0.0.1', '10.0.0.5']],
    'six.test': [['::ffff:10.0.0.5']],
  });
  const get = createGuardedFetch({ lookup, refused });
  for (const host of ['inside.test', 'both.test', 'six.test'])
    expect(await codeOf(get(`http://${host}:${port}/`, REQUEST))).toBe('forbidden');
  expect(seen).toEqual([]);
});

test('a redirect is judged as the first address was', verifies('WEB-4'), async () => {
  const targets = [
    'http://127.0.0.1/',
    'http://169.254.169.254/latest',
    'http://inside.test/',
    '//[::1]/',
    'file:///etc/passwd',
  ];
  const { port, seen } = await serve((request, response) => {
    const target = targets[Number(request.url?.slice(1))] ?? '';
    response.writeHead(302, { location: target }).end();
  });
  const { lookup } = names({ 'public.test': [['127.0.0.1']], 'inside.test': [['192.168.0.1']] });
  const get = createGuardedFetch({ lookup, refused });
  for (const at of targets.keys())
    expect(await codeOf(get(`http://public.test:${port}/${at}`, REQUEST))).toBe('forbidden');
  expect(seen).toHaveLength(targets.length);
});

test(
  'a name that changes its answer gains nothing: the address that was judged is the one connected to',
  verifies('WEB-4'),
  async () => {
    const { port, seen } = await serve((request, response) => {
      if (request.url === '/again') response.end('second');
      else response.writeHead(307, { location: '/again' }).end();
    });
    const { lookup, asked } = names({ 'rebind.test': [['127.0.0.1'], ['10.0.0.5']] });
    const get = createGuardedFetch({ lookup, refused });
    expect(await codeOf(get(`http://rebind.test:${port}/first`, REQUEST))).toBe('forbidden');
    // One question for each connection, and no connection without one.
    expect(asked).toEqual(['rebind.test', 'rebind.test']);
    expect(seen).toEqual([`rebind.test:${port}/first`]);
  },
);

test('an operator may open the own network', async () => {
  const { port } = await serve((_request, response) => response.end('wiki'));
  const page = await createGuardedFetch({ allowPrivate: true })(`http://127.0.0.1:${port}/`, REQUEST);
  expect(new TextDecoder().decode(page.body)).toBe('wiki');
});

test('a body is bounded after it was unpacked', async () => {
  const { port } = await serve((_request, response) => {
    response.writeHead(200, { 'content-encoding': 'gzip' }).end(gzipSync(Buffer.alloc(50_000_000)));
  });
  const page = await createGuardedFetch({ allowPrivate: true })(`http://127.0.0.1:${port}/`, {
    ...REQUEST,
    maxBytes: 1_000,
  });
  expect([page.body.length, page.truncated]).toEqual([1_000, true]);
});

test('redirects in a circle, a silent server, a stopped run and an unknown name each have their answer', async () => {
  const { port } = await serve((request, response) => {
    if (request.url === '/circle') response.writeHead(302, { location: '/circle' }).end();
  });
  const { lookup } = names({});
  const get = createGuardedFetch({ allowPrivate: true });
  const url = `http://127.0.0.1:${port}`;
  await expect(get(`${url}/circle`, REQUEST)).rejects.toThrow(/more than 5 times/);
  await expect(get(`${url}/silent`, { ...REQUEST, timeoutMs: 50 })).rejects.toThrow(/did not arrive/);
  expect(await codeOf(get(`${url}/silent`, { ...REQUEST, signal: AbortSignal.abort() }))).toBe('aborted');
  await expect(createGuardedFetch({ lookup, refused })('http://nowhere.test/', REQUEST)).rejects.toThrow(
    /host name is not known/,
  );
});
