import { createServer, type Server } from 'node:http';
import { leakCheck, verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { createGuardedFetch, type GuardedFetchOptions } from './guarded-fetch.ts';

const SOON = { timeoutMs: 80, maxBytes: 1_000 };

async function serving(answer: (server: Server) => void, work: (port: number) => Promise<void>): Promise<void> {
  const server = createServer();
  answer(server);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  try {
    await work(typeof address === 'object' && address !== null ? address.port : 0);
  } finally {
    server.closeAllConnections();
    await new Promise<void>((resolve) => server.close(() => resolve()));
  }
}

describe('a page that never comes is waited for no longer than was said', () => {
  leakCheck();
  const local: GuardedFetchOptions = { allowPrivate: true };
  const late = { code: 'tool_failed', retryable: true, message: expect.stringContaining('did not arrive within') };

  test('whose name nobody answers', verifies('ND-10'), async () => {
    const fetch = createGuardedFetch({ lookup: (() => {}) as never });
    await expect(fetch('http://name.example/', SOON)).rejects.toMatchObject(late);
  });

  test('whose server takes the request and says nothing', verifies('ND-10'), async () => {
    const silent = (server: Server) => void server.on('request', () => {});
    await serving(silent, async (port) => {
      const fetch = createGuardedFetch(local);
      await expect(fetch(`http://127.0.0.1:${port}/`, SOON)).rejects.toMatchObject(late);
    });
  });

  test('whose body stops in the middle, and whose redirects never end in time', verifies('ND-10'), async () => {
    const halting = (server: Server) =>
      void server.on('request', (request, response) => {
        if (request.url === '/body') response.writeHead(200, { 'content-type': 'text/plain' }).write('half');
        else {
          const later = setTimeout(() => response.writeHead(302, { location: '/next' }).end(), 50);
          request.once('close', () => clearTimeout(later));
        }
      });
    await serving(halting, async (port) => {
      const fetch = createGuardedFetch(local);
      await expect(fetch(`http://127.0.0.1:${port}/body`, SOON)).rejects.toMatchObject(late);
      // The time is that of all of them together.
      await expect(fetch(`http://127.0.0.1:${port}/`, SOON)).rejects.toMatchObject(late);
    });
  });
});
