import { EventEmitter } from 'node:events';
import { ShutdownOwnership } from '@reindeer/protocol';
import { verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import type { Host } from './host.ts';
import { program } from './program.ts';

function hostOf(part: Partial<Host> = {}) {
  const said: string[] = [];
  const printed: string[] = [];
  const host: Host = {
    environment: {},
    cwd: '/',
    print: async (text) => void printed.push(text),
    say: (text) => void said.push(text),
    interactive: false,
    process: Object.assign(new EventEmitter(), { pid: 1, kill: () => {} }),
    shutdownOwnership: new ShutdownOwnership(),
    exit: () => {},
    entry: import.meta.url,
    version: '1.2.3',
    nodeVersion: 'v24.0.0',
    ...part,
  };
  return { host, said, printed };
}

test('an older Node is told what to do instead of failing at its first missing part', async () => {
  const { host, said, printed } = hostOf({ nodeVersion: 'v20.20.2' });
  for (const words of [['doctor'], ['serve'], ['run', 'x'], ['backup', '/nowhere/x']]) {
    said.length = 0;
    expect(await program(host, words)).toBe(1);
    expect(said.join('')).toBe(
      "reindeer: Reindeer runs on Node 24, and this is v20.20.2. In the project's folder, npm start and npm run reindeer -- COMMAND bring it along.\n",
    );
  }
  // What needs nothing of it still answers.
  expect(await program(host, ['--version'])).toBe(0);
  expect(await program(host, ['--help'])).toBe(0);
  expect(printed[0]).toBe('reindeer 1.2.3 (node v20.20.2)\n');
});

test.each([['serve'], ['run', 'x']])(
  '"%s" owns the stop of sandboxes before it reads its configuration, and no longer than it runs',
  verifies('SEED-002-06', 'GW-01'),
  async (...words) => {
    const shutdownOwnership = new ShutdownOwnership();
    const observed: boolean[] = [];
    const environment = new Proxy<Record<string, string>>(
      {},
      {
        get: (_target, name) => {
          if (name !== 'REINDEER_CONFIG_PATH') return undefined;
          observed.push(shutdownOwnership.declared);
          return '/nowhere/stop-start-up-here.yaml';
        },
        ownKeys: () => ['REINDEER_CONFIG_PATH'],
        getOwnPropertyDescriptor: () => ({ enumerable: true, configurable: true }),
      },
    );
    const { host, said } = hostOf({ shutdownOwnership, environment });
    expect(shutdownOwnership.declared).toBe(false);
    expect(await program(host, words)).toBe(1);
    expect(said.join('')).toContain('stop-start-up-here.yaml does not exist');
    expect(observed.length).toBeGreaterThan(0);
    expect(observed).not.toContain(false);
    expect(shutdownOwnership.declared).toBe(false);
  },
);
