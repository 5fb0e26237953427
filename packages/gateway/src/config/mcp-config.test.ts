import { verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { checkStdioPolicy } from './mcp-config.ts';

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
