import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Logger } from '@reindeer/protocol';
import { systemSurroundings } from '@reindeer/runtime';
import { verifies } from '@reindeer/testkit';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { createAgents } from './agents.ts';
import { type ComposeOptions, compose } from './compose.ts';
import { loadConfig } from './config/load.ts';
import { resolveSettings } from './config/settings.ts';
import { Lifecycle } from './life/lifecycle.ts';
import { resourcesOf } from './resources.ts';

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'reindeer-compose-'));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

const ORDER = [
  'database',
  'sandboxes',
  'mcp',
  'memory',
  'connections',
  'agents',
  'runs',
  'batches',
  'scheduled tasks',
  'channels',
  'intake',
];

async function setUp(port = 0) {
  const steps: string[] = [];
  const record = (message: string, fields?: Readonly<Record<string, unknown>>) => {
    if (message === 'Started' || message === 'Stopped') steps.push(`${message} ${String(fields?.step)}`);
  };
  const logger: Logger = { debug: record, info: () => {}, warn: () => {}, error: () => {} };
  const surroundings = systemSurroundings({ logger });
  const lifecycle = new Lifecycle({ clock: surroundings.clock, logger });
  const settings = resolveSettings(await loadConfig({ cwd: folder, environment: {} }), { port });
  const options: ComposeOptions = {
    settings,
    surroundings,
    lifecycle,
    resources: resourcesOf(new URL('./main.ts', import.meta.url).href),
    version: '0.0.0',
    variables: { PATH: process.env.PATH },
    agents: createAgents,
    serve: true,
  };
  return { steps, lifecycle, options };
}

describe('the composition', () => {
  test(
    'starts in order and stops in reverse: runs before MCP sessions, those before sandboxes, sandboxes before the database',
    verifies('GW-08', 'GW-10', 'GW-11', 'GW-15'),
    async () => {
      const { steps, lifecycle, options } = await setUp();
      const composed = await compose(options);
      expect(steps).toEqual(ORDER.map((name) => `Started ${name}`));
      steps.length = 0;
      const [first, second] = await Promise.all([lifecycle.stop(), lifecycle.stop()]);
      expect(first).toBe(second);
      expect(first).toEqual({ unfinished: [], failed: [] });
      expect(steps).toEqual(ORDER.toReversed().map((name) => `Stopped ${name}`));
      await expect(fetch(`http://127.0.0.1:${composed.server?.port}/health`)).rejects.toThrow();
      // Each release means "ensure closed": asking again is no fault (GW-23).
      await composed.runtime.stop();
      await composed.sandboxes.shutdown();
      await composed.stores.close();
    },
  );

  test(
    'a fault at the last step releases all before it, and the folder is free again',
    verifies('GW-03', 'GW-04'),
    async () => {
      const blocker = createServer();
      await new Promise<void>((resolve) => blocker.listen(0, '127.0.0.1', resolve));
      const address = blocker.address();
      const { steps, options } = await setUp(typeof address === 'object' && address !== null ? address.port : 0);
      await expect(compose(options)).rejects.toMatchObject({
        code: 'configuration',
        message: expect.stringContaining('taken'),
      });
      expect(steps.filter((step) => step.startsWith('Stopped'))).toEqual(
        ORDER.toReversed().map((name) => `Stopped ${name}`),
      );
      await new Promise((resolve) => blocker.close(resolve));
      const again = await setUp();
      await compose(again.options);
      await again.lifecycle.stop();
    },
  );

  test('a fault between two steps releases what was started', verifies('GW-04'), async () => {
    const { steps, options } = await setUp();
    const fault = new Error('no agents');
    await expect(compose({ ...options, agents: () => Promise.reject(fault) })).rejects.toBe(fault);
    expect(steps.filter((step) => step.startsWith('Stopped'))).toEqual([
      'Stopped connections',
      'Stopped memory',
      'Stopped mcp',
      'Stopped sandboxes',
      'Stopped database',
    ]);
  });
});
