import { expect, test } from 'vitest';
import {
  type BubblewrapCommand,
  baseEnvironment,
  bubblewrapArguments,
  insideCommand,
  PRIVATE_GID,
} from './arguments.ts';

const command: BubblewrapCommand = {
  identity: { kind: 'user-namespace', disableNested: true },
  folders: { workspace: '/t/w', uploads: '/t/u', outputs: '/t/o', temporary: '/t/tmp', passwd: '/t/passwd' },
  skills: '/u/skills',
  system: {
    etc: '/h/etc',
    readOnly: ['/usr', '/etc/ssl/certs'],
    symlinks: [['usr/bin', '/bin']],
    hidden: ['/usr/src/app'],
    sizedTmpfs: true,
  },
  network: 'none',
  limits: { memoryBytes: 1, processes: 7, diskBytes: 2_048 },
  limitProcesses: true,
  inheritedDescriptors: [17],
  cwd: '/mnt/user-data/workspace',
  environment: { A: '1' },
  command: 'echo "$HOME"',
  blockDescriptor: 5,
  statusDescriptor: 3,
  filterDescriptor: 6,
};

/** Index of a run of words in the arguments; -1 when absent. */
function find(words: readonly string[], ...run: string[]): number {
  return words.findIndex((_, index) => run.every((word, offset) => words[index + offset] === word));
}

test('mounts what is needed, uploads read-only, and closes every writable memory file system', () => {
  const words = bubblewrapArguments(command);
  expect(find(words, '--bind', '/t/w', '/mnt/user-data/workspace')).toBeGreaterThan(0);
  expect(find(words, '--ro-bind', '/t/u', '/mnt/user-data/uploads')).toBeGreaterThan(0);
  expect(find(words, '--bind', '/t/u')).toBe(-1);
  expect(find(words, '--tmpfs', '/usr/src/app')).toBeGreaterThan(find(words, '--ro-bind', '/usr', '/usr'));
  expect(find(words, '--ro-bind', '/h/etc', '/etc')).toBeLessThan(
    find(words, '--ro-bind', '/etc/ssl/certs', '/etc/ssl/certs'),
  );
  for (const path of ['/', '/dev', '/usr/src/app']) expect(find(words, '--remount-ro', path)).toBeGreaterThan(0);
  expect(find(words, '--remount-ro', '/')).toBeGreaterThan(find(words, '--bind', '/t/w'));
  expect(find(words, '--perms', '1777', '--size', '67108864', '--tmpfs', '/dev/shm')).toBeGreaterThan(0);
  for (const unsized of words.flatMap((word, index) => (word === '--tmpfs' ? [words[index + 1]] : []))) {
    expect(['/dev/shm', '/usr/src/app']).toContain(unsized);
  }
  for (const word of ['--die-with-parent', '--new-session', '--unshare-pid', '--unshare-ipc', '--disable-userns']) {
    expect(words).toContain(word);
  }
  expect(find(words, '--cap-drop', 'ALL')).toBeGreaterThan(0);
  expect(words).not.toContain('echo "$HOME"');
});

test('the network is there only when it was asked for', () => {
  expect(bubblewrapArguments(command)).toContain('--unshare-net');
  expect(bubblewrapArguments({ ...command, network: 'host' })).not.toContain('--unshare-net');
});

test('an older bubblewrap gets no sized memory file system, and none without a size', () => {
  const words = bubblewrapArguments({ ...command, system: { ...command.system, sizedTmpfs: false, hidden: [] } });
  expect(words).not.toContain('--tmpfs');
  expect(find(words, '--bind', '/t/tmp', '/dev/shm')).toBeGreaterThan(0);
});

test('a private user id is taken before the command, and never root', () => {
  const identity = { kind: 'private-uid', uid: 1_900_000_000 } as const;
  const words = insideCommand({ ...command, identity });
  expect(words.slice(0, 7)).toEqual([
    'setpriv',
    '--reuid',
    '1900000000',
    '--regid',
    String(PRIVATE_GID),
    '--clear-groups',
    '--inh-caps=-all',
  ]);
  expect(words).toContain(command.command);
  expect(bubblewrapArguments({ ...command, identity })).not.toContain('--unshare-user');
});

test('a process sets its own limits before the command starts', () => {
  const script = insideCommand(command)[2] ?? '';
  expect(script).toContain('ulimit -c 0 -f 2');
  expect(script).toContain('ulimit -u 7');
  expect(script).toContain('exec 17>&-');
  expect(script.indexOf('ulimit -u')).toBeLessThan(script.indexOf('eval'));
  expect(insideCommand({ ...command, limitProcesses: false })[2]).not.toContain('ulimit -u');
});

test('the environment holds nothing of the server', () => {
  expect(Object.keys(baseEnvironment()).sort()).toEqual([
    'HOME',
    'LANG',
    'LOGNAME',
    'PATH',
    'SHELL',
    'TERM',
    'TMPDIR',
    'USER',
  ]);
});
