import { expect, test } from 'vitest';
import { draftOf, EMPTY_SERVER, entryOf, generalProblems, isServerName, readServers, wrongLines } from './mcp.ts';

const answer = {
  mcp_servers: {
    files: { type: 'stdio', command: 'npx', args: ['-y', 'pkg'], env: { KEY: '***' }, routing: { mode: 'prefer' } },
    web: { url: 'https://example.org/mcp', enabled: false },
    odd: 7,
  },
  status: [
    { name: 'files', state: 'ready', tools: ['files_read', 5], reason: null },
    { name: '*', state: 'failed', reason: 'too many' },
  ],
};

test('servers with their state; one that is switched off has none', () => {
  expect(readServers(answer)).toMatchObject([
    { name: 'files', enabled: true, state: 'ready', tools: ['files_read'] },
    { name: 'web', enabled: false, state: null },
  ]);
  expect(generalProblems(answer)).toEqual(['too many']);
  expect(readServers(null)).toEqual([]);
});

test('what the form does not know stays, and so do masked secrets', () => {
  const [files] = readServers(answer);
  if (files === undefined) throw new Error('no server');
  const draft = draftOf(files);
  expect(draft).toMatchObject({ transport: 'stdio', args: '-y\npkg', secrets: 'KEY=***' });
  expect(entryOf({ ...draft, args: '-y\nother' }, files.entry)).toEqual({
    type: 'stdio',
    command: 'npx',
    args: ['-y', 'other'],
    env: { KEY: '***' },
    routing: { mode: 'prefer' },
    enabled: true,
  });
});

test('another kind of server leaves nothing of the old one behind', () => {
  const [files] = readServers(answer);
  const entry = entryOf(
    { ...EMPTY_SERVER, transport: 'http', url: ' https://a.example/ ', secrets: 'Authorization=Bearer a=b' },
    files?.entry ?? {},
  );
  expect(entry).toEqual({
    type: 'http',
    url: 'https://a.example/',
    headers: { Authorization: 'Bearer a=b' },
    routing: { mode: 'prefer' },
    enabled: true,
  });
});

test('names and lines', () => {
  expect(isServerName('my_server-1')).toBe(true);
  expect(isServerName('my server')).toBe(false);
  expect(wrongLines('A=1\nB\n  \nC D=2')).toEqual(['B', 'C D=2']);
});
