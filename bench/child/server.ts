// A server for the load rows; prints its port. Arguments: product|plain|bare PIECES PAUSE_MS
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { createLeadAgent, createModelRegistry } from '@reindeer/agent';
import { compose, Lifecycle, loadConfig, resolveSettings } from '@reindeer/gateway';
import { NO_LOG, type SandboxProvider } from '@reindeer/protocol';
import { systemSurroundings } from '@reindeer/runtime';
import { createSandboxProvider } from '@reindeer/sandbox';
import { serveBare } from './bare.ts';
import { StepModel } from './model.ts';
import { plainAgent } from './plain.ts';

const [kind, pieces, pauseMs] = process.argv.slice(2);
const model = new StepModel({ steps: 0, pieces: Number(pieces), pauseMs: Number(pauseMs) });
const home = await mkdtemp(join(tmpdir(), 'reindeer-bench-'));
const surroundings = systemSurroundings({ logger: NO_LOG });
/** The agent of both servers. */
const leadAgent = (sandboxes: SandboxProvider) => {
  const models = createModelRegistry({
    entries: [{ name: 'bench', use: 'bench', model: 'bench' }],
    environment: {},
    logger: NO_LOG,
    factories: { bench: () => model },
  });
  return createLeadAgent({ models, sandboxes, surroundings });
};
let port = 0;

if (kind === 'product' || kind === 'plain') {
  const loaded = await loadConfig({
    path: undefined,
    cwd: home,
    environment: { PATH: process.env.PATH, REINDEER_HOME: home },
  });
  const composed = await compose({
    settings: { ...resolveSettings(loaded, { port: 1 }), server: { ...resolveSettings(loaded, {}).server, port: 0 } },
    surroundings,
    lifecycle: new Lifecycle({ clock: surroundings.clock, logger: surroundings.logger }),
    resources: {
      databaseWorker: undefined,
      documentWorker: undefined,
      skillsFolder: join(home, 'skills'),
      pageFolder: home,
    },
    version: 'bench',
    variables: loaded.variables,
    serve: true,
    agents: ({ sandboxes }) => {
      const agent = kind === 'plain' ? plainAgent(model) : leadAgent(sandboxes);
      return { graphs: new Map([[agent.assistantId, agent]]), models: [] };
    },
  });
  port = composed.server?.port ?? 0;
} else {
  const sandboxes = await createSandboxProvider({ home, surroundings, environment: process.env });
  port = await serveBare(leadAgent(sandboxes));
}

const delay = monitorEventLoopDelay({ resolution: 1 });
delay.enable();
process.on('message', (message) => {
  if (message === 'reset') delay.reset();
  const { user, system } = process.cpuUsage();
  process.send?.({
    cpuMs: (user + system) / 1000,
    delayP99Ms: delay.percentile(99) / 1e6,
    rssMiB: process.memoryUsage().rss / 1048576,
  });
});
process.send?.({ port });
