// A server for the load rows; prints its port. Arguments: product|bare PIECES PAUSE_MS
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { serve } from '@hono/node-server';
import { END, MessagesAnnotation, START, StateGraph } from '@langchain/langgraph';
import { createLeadAgent, createModelRegistry } from '@reindeer/agent';
import { NO_LOG } from '@reindeer/protocol';
import { systemSurroundings } from '@reindeer/runtime';
import { Hono } from 'hono';
import { streamSSE } from 'hono/streaming';
import { compose } from '../../packages/gateway/src/compose.ts';
import { loadConfig } from '../../packages/gateway/src/config/load.ts';
import { resolveSettings } from '../../packages/gateway/src/config/settings.ts';
import { Lifecycle } from '../../packages/gateway/src/life/lifecycle.ts';
import { StepModel } from './model.ts';

const [kind, pieces, pauseMs] = process.argv.slice(2);
const model = new StepModel({ steps: 0, pieces: Number(pieces), pauseMs: Number(pauseMs) });
let port = 0;

if (kind === 'product') {
  const home = await mkdtemp(join(tmpdir(), 'reindeer-bench-'));
  const surroundings = systemSurroundings({ logger: NO_LOG });
  const loaded = await loadConfig({
    path: undefined,
    cwd: home,
    environment: { PATH: process.env.PATH, REINDEER_HOME: home },
  });
  const composed = await compose({
    settings: { ...resolveSettings(loaded, { port: 1 }), server: { ...resolveSettings(loaded, {}).server, port: 0 } },
    surroundings,
    lifecycle: new Lifecycle({ clock: surroundings.clock, logger: surroundings.logger }),
    resources: { databaseWorker: undefined, pageFolder: home },
    version: 'bench',
    variables: loaded.variables,
    serve: true,
    agents: ({ sandboxes }) => {
      const models = createModelRegistry({
        entries: [{ name: 'bench', use: 'bench', model: 'bench' }],
        environment: {},
        logger: NO_LOG,
        factories: { bench: () => model },
      });
      const agent = createLeadAgent({ models, sandboxes, surroundings });
      return { graphs: new Map([[agent.assistantId, agent]]), models: [] };
    },
  });
  port = composed.server?.port ?? 0;
} else {
  // The floor: the same model in a one-node graph behind Hono's own event stream; nothing persisted, nothing checked.
  const graph = new StateGraph(MessagesAnnotation)
    .addNode('model', async (state) => ({ messages: [await model.invoke(state.messages)] }))
    .addEdge(START, 'model')
    .addEdge('model', END)
    .compile();
  const app = new Hono();
  app.post('/api/threads/:thread/runs/stream', async (c) => {
    const body = await c.req.json();
    return streamSSE(c, async (stream) => {
      for await (const [mode, data] of await graph.stream(body.input, { streamMode: ['messages', 'values'] })) {
        await stream.writeSSE({ event: mode, data: JSON.stringify(data) });
      }
      await stream.writeSSE({ event: 'end', data: 'null' });
    });
  });
  const server = serve({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' });
  await new Promise((resolve) => server.once('listening', resolve));
  const address = server.address();
  port = typeof address === 'object' && address !== null ? address.port : 0;
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
