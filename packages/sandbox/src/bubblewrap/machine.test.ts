import { mkdir } from 'node:fs/promises';
import { expect, test } from 'vitest';
import { temporaryHome } from '../test-support.ts';
import { parseMounts, parseOwnGroups } from './cgroups.ts';
import { findProgram, installCommand } from './machine.ts';
import { hiddenBelow } from './system-view.ts';

test('reads both versions of control groups', () => {
  expect(parseOwnGroups('9:name=systemd:/\n4:memory:/a/b\n3:cpu,cpuacct:/c\n0::/user.slice/x.scope\n')).toEqual(
    new Map([
      ['name=systemd', '/'],
      ['memory', '/a/b'],
      ['cpu', '/c'],
      ['cpuacct', '/c'],
      ['', '/user.slice/x.scope'],
    ]),
  );
  const mounts = parseMounts(
    '30 23 0:26 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n' +
      '31 23 0:27 /docker/x /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n' +
      '32 1 8:1 / / rw - ext4 /dev/sda1 rw\n',
  );
  expect(mounts).toEqual([
    { root: '/', point: '/sys/fs/cgroup/memory', version: 1, controllers: ['rw', 'memory'] },
    { root: '/docker/x', point: '/sys/fs/cgroup', version: 2, controllers: ['rw', 'nsdelegate'] },
  ]);
});

test('covers private folders below mounted ones, never what programs need', async () => {
  const home = await temporaryHome();
  await mkdir(`${home}/src/app/data`, { recursive: true });
  const mounted = [home];
  expect(
    await hiddenBelow([`${home}/src/app`, `${home}/src/app/data`, `${home}/none`, home, '/usr/lib', '/'], mounted),
  ).toEqual([`${home}/src/app`]);
  expect(await hiddenBelow(['/usr/lib', '/usr'], ['/usr'])).toEqual([]);
});

test('names the command that installs bubblewrap', async () => {
  expect(await installCommand('bubblewrap', 'ID=ubuntu\nID_LIKE=debian\n')).toMatch(/apt-get install bubblewrap$/);
  expect(await installCommand('bubblewrap', 'ID="fedora"\n')).toMatch(/dnf install bubblewrap$/);
  expect(await installCommand('bubblewrap', 'ID=manjaro\nID_LIKE=arch\n')).toMatch(/pacman -S bubblewrap$/);
  expect(await installCommand('bubblewrap', '')).toMatch(/apt-get install bubblewrap$/);
});

test('finds programs in absolute folders of the search path only', async () => {
  expect(await findProgram('bash', '.:/nowhere:/usr/bin:/bin')).toMatch(/^\/(usr\/)?bin\/bash$/);
  expect(await findProgram('no-such-program', '/usr/bin:/bin')).toBeNull();
});
