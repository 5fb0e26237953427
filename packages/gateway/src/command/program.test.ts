import { EventEmitter } from 'node:events';
import { expect, test } from 'vitest';
import type { Host } from './host.ts';
import { program } from './program.ts';

test('an older Node is told what to do instead of failing at its first missing part', async () => {
  const said: string[] = [];
  const printed: string[] = [];
  const host: Host = {
    environment: {},
    cwd: '/',
    print: async (text) => void printed.push(text),
    say: (text) => void said.push(text),
    interactive: false,
    process: new EventEmitter(),
    exit: () => {},
    entry: import.meta.url,
    version: '1.2.3',
    nodeVersion: 'v20.20.2',
  };
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
