import { verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { checkStdioPolicy, MASK, maskServers, unmaskServers } from './mcp-config.ts';

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
          url: 'https://other.example/mcp',
          headers: { 'x-api-key': 'new' },
          oauth: { token_url: 'https://id.example/token', client_secret: '', client_id: 'me' },
        },
      };
      expect(unmaskServers(written, STORED)).toEqual({
        remote: {
          type: 'http',
          url: 'https://other.example/mcp',
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

describe('programs that a client may start', () => {
  const check =
    (server: Record<string, unknown>, variables: Record<string, string> = {}) =>
    () =>
      checkStdioPolicy('s', server as never, variables);

  test.each([
    [{ command: 'npx', args: ['-y', '@scope/server', '-c', 'fine: of the server'] }],
    [{ command: 'uvx', args: ['--from', 'package', 'server', '--eval', 'x'] }],
    [{ command: 'npx', args: ['--', 'server'], env: { API_KEY: 'x' } }],
    [{ type: 'http', url: 'https://a.example', command: 'ignored' }],
  ])('%j is allowed', verifies('SEC-07', 'MCP-10'), (server) => {
    expect(check(server)).not.toThrow();
  });

  test.each([
    [{ command: 'bash', args: ['-c', 'id'] }, /command may be npx or uvx/],
    [{ command: '/usr/bin/npx' }, /command may be/],
    [{ command: 'npx; id' }, /command may be/],
    // A command beside an address is started: the reader takes the pair for a program.
    [{ command: 'bash', args: ['-c', 'id'], url: 'https://a.example' }, /command may be/],
    [{ type: '$KIND', command: 'bash', url: 'https://a.example' }, /command may be/],
    // The launcher takes the word behind an unknown option for its value, and what follows for an option of its own.
    [{ command: 'npx', args: ['--unheard-of', 'server', '-c', 'id'] }, /--unheard-of of npx is not known/],
    [{ command: 'npx', args: ['server'], env: { Npm_Config_Call: 'id' } }, /env.Npm_Config_Call/],
    [{ type: 'stdio' }, /command may be/],
    [{ command: 'npx', args: ['-c', 'id'] }, /-c makes npx run code/],
    [{ command: 'npx', args: ['--call=id'] }, /--call/],
    [{ command: 'npx', args: ['-y', '-p', 'x', '--node-options', '--import=/tmp/x'] }, /--node-options/],
    [{ command: 'npx', args: ['-yc', 'id'] }, /-yc/],
    [{ command: 'npx', args: ['server'], env: { NODE_OPTIONS: '--import x' } }, /env.NODE_OPTIONS/],
    [{ command: 'npx', args: ['server'], env: { LD_PRELOAD: '/tmp/x.so' } }, /env.LD_PRELOAD/],
    [{ command: 'uvx', args: ['server'], env: { PYTHONPATH: '/tmp' } }, /env.PYTHONPATH/],
    [{ command: 'uvx', args: ['server'], env: { PATH: '/tmp' } }, /env.PATH/],
  ])('%j is refused', verifies('SEC-07', 'MCP-10'), (server, reason) => {
    expect(check(server)).toThrow(reason);
  });

  test('an operator may allow more programs, not more options', verifies('SEC-07'), () => {
    const allowed = { REINDEER_MCP_STDIO_COMMAND_ALLOWLIST: 'node, deno' };
    expect(check({ command: 'node', args: ['server.js'] }, allowed)).not.toThrow();
    expect(check({ command: 'node', args: ['-e', 'x'] }, allowed)).toThrow(/-e makes node run code/);
    expect(check({ command: 'python' }, allowed)).toThrow(/npx or uvx or node or deno/);
  });
});
