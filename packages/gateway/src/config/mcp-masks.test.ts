import { verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { MASK, maskServers, unmaskServers } from './mcp-masks.ts';

const STORED = {
  remote: {
    type: 'http',
    url: 'https://user:hush@mcp.example/mcp',
    headers: { 'x-api-key': 'hush-1', authorization: '$MCP_TOKEN' },
    oauth: {
      token_url: 'https://id.example/token',
      client_id: 'me',
      client_secret: 'hush-2',
      refresh_token: 'hush-3',
      extra_token_params: { resource: 'r', api_key: 'hush-4' },
    },
    my_secret: 'hush-5',
    routing: { mode: 'prefer', priority: 5 },
    note: 'kept',
  },
  local: { command: 'npx', args: ['-y', 'server'], env: { TOKEN: 'hush-6', MODE: 'fast' } },
};

describe('what a client sees of MCP servers', () => {
  test(
    'no value of env and headers, no secret of oauth, no password; placeholders are names and stay',
    verifies('MCP-10', 'SEC-05', 'SAFE-4'),
    () => {
      const masked = maskServers(STORED);
      expect(JSON.stringify(masked)).not.toContain('hush');
      expect(masked).toMatchObject({
        remote: {
          headers: { 'x-api-key': MASK, authorization: '$MCP_TOKEN' },
          oauth: { token_url: 'https://id.example/token', client_id: 'me', client_secret: null, refresh_token: null },
          my_secret: MASK,
          note: 'kept',
        },
        local: { command: 'npx', args: ['-y', 'server'], env: { TOKEN: MASK, MODE: MASK } },
      });
    },
  );

  test('written back as it was shown, everything is as it was', verifies('MCP-10'), () => {
    expect(unmaskServers(maskServers(STORED), STORED)).toEqual(STORED);
  });

  test(
    'a new value replaces, empty text takes an OAuth secret away, keys that a page does not know are kept',
    verifies('MCP-10'),
    () => {
      const written = {
        remote: {
          type: 'http',
          url: 'https://user:***@mcp.example/mcp',
          headers: { 'x-api-key': 'new' },
          oauth: { token_url: 'https://id.example/token', client_secret: '', client_id: 'me' },
        },
      };
      expect(unmaskServers(written, STORED)).toEqual({
        remote: {
          type: 'http',
          url: 'https://user:hush@mcp.example/mcp',
          headers: { 'x-api-key': 'new' },
          oauth: { token_url: 'https://id.example/token', client_id: 'me', refresh_token: 'hush-3' },
          my_secret: 'hush-5',
          routing: { mode: 'prefer', priority: 5 },
          note: 'kept',
        },
      });
    },
  );

  test('a mask that stands for nothing is refused: it would become the value', verifies('MCP-10'), () => {
    expect(() => unmaskServers({ remote: { headers: { 'x-other': MASK } } }, STORED)).toThrow(
      /remote: headers.x-other is "\*\*\*"/,
    );
    expect(() => unmaskServers({ fresh: { env: { A: MASK } } }, {})).toThrow(/fresh: env.A/);
  });
});

describe('a stored secret stays where it was sent', () => {
  const remote = (change: object) => ({ remote: { ...(maskServers(STORED).remote as object), ...change } });
  const local = (change: object) => ({ local: { ...(maskServers(STORED).local as object), ...change } });
  const oauth = (change: object) =>
    remote({
      headers: {},
      oauth: { ...STORED.remote.oauth, client_secret: null, refresh_token: null, extra_token_params: {}, ...change },
    });

  test.each([
    [
      'another address',
      remote({ url: 'https://evil.example/mcp' }),
      /headers.x-api-key stands for .* url is another one/,
    ],
    [
      'the password is not for it either',
      remote({ url: 'https://user:***@evil.example/mcp', headers: {} }),
      /url has a "\*\*\*"/,
    ],
    ['another path', remote({ url: 'https://mcp.example/other' }), /url is another one/],
    ['a program in its place', remote({ type: 'stdio', command: 'npx', args: ['evil'] }), /type is another one/],
    ['another program', local({ args: ['-y', 'evil'] }), /env.TOKEN stands for .* args is another one/],
    ['another command', local({ command: 'uvx' }), /command is another one/],
    [
      'an address among the variables',
      local({ env: { TOKEN: MASK, API_BASE_URL: 'https://evil.example' } }),
      /env.API_BASE_URL is another one/,
    ],
    ['a proxy', local({ env: { TOKEN: MASK, HTTPS_PROXY: 'evil:80' } }), /env.HTTPS_PROXY is another one/],
    [
      'another token address',
      oauth({ token_url: 'https://evil.example/token' }),
      /oauth.client_secret stands for .* oauth.token_url is another one/,
    ],
    [
      'the token itself',
      remote({ url: 'https://evil.example', headers: {} }),
      /oauth.\w+ stands for .* the address of the server is another one/,
    ],
    [
      'secrets that were left out',
      { remote: { type: 'http', url: 'https://evil.example', oauth: { token_url: 'https://id.example/token' } } },
      /oauth.client_secret stands for/,
    ],
    [
      'a parameter of the token',
      oauth({
        token_url: 'https://evil.example',
        client_secret: '',
        refresh_token: '',
        extra_token_params: { api_key: MASK },
      }),
      /extra_token_params.api_key stands for/,
    ],
    ['another server', { fresh: { url: 'https://evil.example', headers: { 'x-api-key': MASK } } }, /no stored value/],
  ])('%s', verifies('MCP-10', 'SEC-05'), (_what, written, reason) => {
    expect(() => unmaskServers(written as never, STORED)).toThrow(reason);
  });

  test(
    'what goes nowhere may change; what is written anew may go anywhere; a secret nobody knows goes',
    verifies('MCP-10'),
    () => {
      expect(
        unmaskServers(local({ env: { TOKEN: MASK, MODE: 'slow', LEVEL: '3' } }) as never, STORED).local,
      ).toMatchObject({
        env: { TOKEN: 'hush-6', MODE: 'slow', LEVEL: '3' },
      });
      expect(
        unmaskServers(remote({ headers: { 'x-api-key': MASK }, description: 'new' }) as never, STORED).remote,
      ).toMatchObject({
        headers: { 'x-api-key': 'hush-1' },
      });
      const moved = {
        remote: {
          type: 'http',
          url: 'https://new.example',
          headers: { 'x-api-key': 'a.b.c', authorization: '$MCP_TOKEN' },
        },
      };
      expect(unmaskServers(moved, STORED)).toEqual({
        remote: { ...moved.remote, routing: STORED.remote.routing, note: 'kept' },
      });
    },
  );

  test(
    'secrets in addresses and arguments are not shown, and come back with what was shown',
    verifies('MCP-10', 'SEC-05'),
    () => {
      const stored = {
        hosted: { url: 'https://mcp.example/?apiKey=hush-1&lang=en' },
        named: { url: 'https://hush-2@mcp.example/mcp' },
        local: {
          command: 'npx',
          args: [
            '-y',
            'server',
            '--access-token',
            'hush-3',
            '--api-key=hush-4',
            '--header',
            'Authorization: Bearer hush-5',
            '-e',
            'TOKEN=hush-6',
            'https://x.example/?token=hush-7',
            '--keys',
            '--port',
            '80',
            '--password',
            '$PASSWORD',
          ],
        },
      };
      const shown = maskServers(stored);
      expect(JSON.stringify(shown)).not.toContain('hush');
      expect(shown).toMatchObject({
        hosted: { url: `https://mcp.example/?apiKey=${MASK}&lang=en` },
        local: {
          args: [
            '-y',
            'server',
            '--access-token',
            MASK,
            `--api-key=${MASK}`,
            '--header',
            `Authorization: ${MASK}`,
            '-e',
            `TOKEN=${MASK}`,
            `https://x.example/?token=${MASK}`,
            '--keys',
            '--port',
            '80',
            '--password',
            '$PASSWORD',
          ],
        },
      });
      expect(unmaskServers(shown, stored)).toEqual(stored);
      const args = (shown.local as { args: string[] }).args;
      expect(() => unmaskServers({ local: { command: 'npx', args: [...args, 'more'] } }, stored)).toThrow(/args has a/);
      expect(() => unmaskServers({ hosted: { url: `https://evil.example/?apiKey=${MASK}` } }, stored)).toThrow(
        /url has a/,
      );
    },
  );
});
