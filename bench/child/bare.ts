// The floor of the load rows: the lead agent's own graph behind Hono's own event stream. No database, no log, no lease, no checkpoints;
// nothing is checked, and nothing is kept once a run ends.
import { randomUUID } from 'node:crypto';
import { serve } from '@hono/node-server';
import type { AttemptContext, GraphFactory, RunRequest, WireMessage } from '@reindeer/protocol';
import { EMPTY_REQUEST, NO_USAGE, newRun } from '@reindeer/protocol';
import { Hono } from 'hono';
import { streamSSE } from 'hono/streaming';

/** Serves `POST /api/threads/:thread/runs/stream`. @returns the port */
export async function serveBare(agent: GraphFactory): Promise<number> {
  const app = new Hono();
  app.post('/api/threads/:thread/runs/stream', async (c) => {
    const body = await c.req.json();
    const thread = c.req.param('thread');
    return streamSSE(c, async (stream) => {
      let last: Promise<void> = Promise.resolve();
      const send = (event: string, data: unknown) => {
        last = stream.writeSSE({ event, data: JSON.stringify(data) });
        return last;
      };
      const attempt = bareAttempt(thread, body.input, (chunk, metadata) => void send('messages', [chunk, metadata]));
      const graph = await agent.forAttempt(attempt, undefined);
      const frames = await graph.stream(body.input, {
        configurable: { thread_id: thread },
        context: {},
        streamMode: ['values'],
        subgraphs: true,
        durability: 'sync',
      });
      for await (const [, mode, data] of frames) await send(mode, data);
      await last;
      await send('end', null);
    });
  });
  const server = serve({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' });
  await new Promise((resolve) => server.once('listening', resolve));
  const address = server.address();
  return typeof address === 'object' && address !== null ? address.port : 0;
}

/** An attempt that nobody holds: its tools are not journalled, its effects not counted. */
function bareAttempt(
  threadId: string,
  input: RunRequest['input'],
  push: (chunk: WireMessage, metadata: unknown) => void,
): AttemptContext {
  return {
    run: newRun({
      runId: randomUUID(),
      threadId,
      userId: 'default',
      assistantId: 'lead_agent',
      status: 'running',
      attempt: 1,
      request: { ...EMPTY_REQUEST, input, streamModes: ['messages-tuple', 'values'] },
      checkpointBefore: '',
      createdAt: 0,
      startedAt: 0,
    }),
    attempt: 1,
    signal: new AbortController().signal,
    journal: {
      begin: async () => ({ outcome: 'begin' }),
      finish: async ({ result }) => result,
      retract: async () => undefined,
      unpack: (packed) => packed,
    },
    effects: { track: (_name, work) => work(), stopped: async () => [], live: () => [] },
    tokens: { push },
    emit: () => undefined,
    nameTask: () => undefined,
    countUsage: () => undefined,
    usage: () => NO_USAGE,
    stopReason: () => undefined,
    fail: () => undefined,
  };
}
