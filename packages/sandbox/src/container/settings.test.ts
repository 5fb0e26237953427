import { describe, expect, test } from 'vitest';
import { type ContainerSettings, checkContainerSettings, DEFAULT_CONTAINER_SETTINGS } from './settings.ts';

const check = (part: Partial<ContainerSettings>) => () =>
  checkContainerSettings({ ...DEFAULT_CONTAINER_SETTINGS, ...part });
const mount = (containerPath: string, hostPath = '/data') => check({ mounts: [{ hostPath, containerPath }] });

describe('settings of containers', () => {
  test('the defaults hold', () => {
    expect(check({})).not.toThrow();
    expect(mount('/data/tools')).not.toThrow();
  });

  test.each([
    [{ image: '-v /:/host' }, /image/],
    [{ containerPrefix: 'a b' }, /container_prefix/],
    [{ port: 0 }, /port/],
    [{ cpus: 0 }, /cpus/],
    [{ bindHost: '' }, /bind_host/],
    [{ bindHost: 'localhost' }, /bind_host/],
    [{ environment: { 'A B': 'secret-value' } }, /environment: "A B"/],
    [{ memoryBytes: 1 }, /memory_limit/],
    [{ processes: 1 }, /pids_limit/],
    [{ outputBytes: 10, outputEndBytes: 5 }, /outputEndBytes/],
  ] satisfies [Partial<ContainerSettings>, RegExp][])('%j is refused by its name', (part, name) => {
    expect(check(part)).toThrow(name);
  });

  test('mounts stay away from what Reindeer mounts itself, and from each other', () => {
    for (const path of [
      '/mnt/user-data',
      '/mnt/user-data/workspace',
      '/mnt',
      '/',
      '/run',
      '/run/reindeer/x',
      '/proc/1',
      '/mnt/../proc',
      // The engine refuses a place that is filled twice, and without our server nothing runs.
      '/tmp',
      '/var/tmp/',
      '/etc/passwd',
      '/opt/reindeer',
      '/opt',
    ])
      expect(mount(path), path).toThrow(/mounts\[0\]\.container_path/);
    for (const path of ['/mnt/user-data2', '/tmp/data', '/opt/tools', '/var']) expect(mount(path), path).not.toThrow();
    expect(mount('/x', 'relative')).toThrow(/mounts\[0\]\.host_path/);
    expect(
      check({
        mounts: [
          { hostPath: '/a', containerPath: '/x' },
          { hostPath: '/b', containerPath: '/x/' },
        ],
      }),
    ).toThrow(/mounts\[1\].*mounted twice/);
  });
});
