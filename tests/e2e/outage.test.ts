import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type Script, type ScriptedProvider, startScriptedProvider } from '@reindeer/scripted';
import { postgresMissing, verifies } from '@reindeer/testkit';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type Cluster, cluster } from '../support/cluster.ts';
import { type RunningServer, say } from '../support/server.ts';

const missing = await postgresMissing();
const WORKSPACE = '/mnt/user-data/workspace';

/** `wait:<file>` runs a command that leaves a line and then waits until the file is there. */
const script: Script = (request) => {
  const newest = request.messages.findLastIndex((message) => message.role === 'user');
  const asked = request.messages[newest]?.text ?? '';
  const answer = request.messages.slice(newest + 1).find((message) => message.role === 'tool');
  if (answer !== undefined) return { text: `The tool said: ${answer.text}` };
  const file = /wait:(\S+)/.exec(asked)?.[1];
  if (file === undefined) return { text: 'Here I am.' };
  const command = `echo once >> ${WORKSPACE}/effects.txt; while [ ! -e ${WORKSPACE}/${file} ]; do sleep 0.1; done; echo done`;
  return { text: 'I begin.', toolCalls: [{ name: 'bash', args: { description: 'wait', command } }] };
};

describe('Postgres goes away while an instance works, and comes back', () => {
  let provider: ScriptedProvider;
  let instances: Cluster;
  let server: RunningServer;
  beforeAll(async () => {
    if (missing !== null) return;
    provider = await startScriptedProvider({ script });
    instances = await cluster({
      openAiUrl: provider.openAiUrl,
      config: 'run_ownership:\n  lease_seconds: 5\n  grace_seconds: 1\nruns:\n  drain_timeout: 1\n',
    });
    server = await instances.start('a');
  });
  afterAll(async () => {
    await instances?.stop();
    await provider?.close();
  });
  beforeEach((ctx) => {
    if (missing !== null) ctx.skip(missing);
  });

  /** A run whose command is at work. */
  async function begin(file: string): Promise<{ threadId: string; runId: string }> {
    const { thread_id: threadId } = await server.client.threads.create();
    const run = await server.client.runs.create(threadId, 'lead_agent', { input: say(`wait:${file}`) });
    while ((await effects(threadId)) === '') await pause(50);
    return { threadId, runId: run.run_id };
  }

  const pause = (milliseconds: number) => new Promise((resolve) => setTimeout(resolve, milliseconds));
  async function effects(threadId: string): Promise<string> {
    const response = await fetch(`${server.url}/api/threads/${threadId}/artifacts${WORKSPACE}/effects.txt`);
    return response.ok ? (await response.text()).trim() : '';
  }
  const leave = (threadId: string, file: string): Promise<void> =>
    writeFile(join(instances.folder, '.reindeer/users/default/threads', threadId, 'user-data/workspace', file), '');
  const asked = (path: string, body?: object) =>
    fetch(`${server.url}/api${path}`, {
      ...(body === undefined ? {} : { method: 'POST', body: JSON.stringify(body) }),
      headers: { 'content-type': 'application/json' },
    });

  test(
    'for a moment: requests hear 503 with Retry-After, the process lives, and the run goes on',
    verifies('RL-03'),
    async () => {
      const { threadId, runId } = await begin('short');
      await instances.postgres.halt();
      for (const response of [
        await asked(`/threads/${threadId}`),
        await asked(`/threads/${threadId}/runs`, {
          assistant_id: 'lead_agent',
          input: say('now'),
          multitask_strategy: 'enqueue',
        }),
      ]) {
        expect(response.status).toBe(503);
        expect(Number(response.headers.get('retry-after'))).toBeGreaterThan(0);
        expect(await response.json()).toMatchObject({ code: 'store_unavailable' });
      }
      expect((await fetch(`${server.url}/health`)).status).toBe(200);
      await instances.postgres.restart();
      await leave(threadId, 'short');
      await server.client.runs.join(threadId, runId);
      expect(await server.client.runs.get(threadId, runId)).toMatchObject({ status: 'success' });
      expect(await attemptsOf(threadId, runId)).toEqual([1]);
      // The refused request left nothing behind.
      expect(await server.client.runs.list(threadId)).toHaveLength(1);
    },
  );

  test(
    'for longer than a lease: the holder stops, and the run goes on when it is back, its command unknown and not run twice',
    verifies('RL-04', 'GW-22'),
    async () => {
      const { threadId, runId } = await begin('long');
      await instances.postgres.halt();
      // The lease and a beat.
      await pause(7_000);
      await leave(threadId, 'long');
      await instances.postgres.restart();
      const begun = performance.now();
      let run = null;
      while (run?.status !== 'success') {
        expect(performance.now() - begun).toBeLessThan(20_000);
        await pause(200);
        run = await server.client.runs.get(threadId, runId).catch(() => null);
      }
      expect(await attemptsOf(threadId, runId)).toEqual([1, 2]);
      expect(await effects(threadId)).toBe('once');
      const state = await server.client.threads.getState<{ messages: { type: string; content: string }[] }>(threadId);
      expect(state.values.messages.map(({ type }) => type)).toEqual(['human', 'ai', 'tool', 'ai']);
      expect(state.values.messages[2]?.content).toMatch(/unknown/i);
      // The thread is usable, and the server that went through all of it still stops cleanly.
      await server.client.runs.wait(threadId, 'lead_agent', { input: say('hello') });
      expect(await server.process.end()).toMatchObject({ code: 0 });
    },
  );

  async function attemptsOf(threadId: string, runId: string): Promise<number[]> {
    const rows = await instances.postgres.query<{ attempt: string }>(
      instances.databaseUrl,
      'select attempt from runs where run_id = $1 and thread_id = $2',
      [runId, threadId],
    );
    return Array.from({ length: Number(rows[0]?.attempt ?? 0) }, (_, index) => index + 1);
  }
});
