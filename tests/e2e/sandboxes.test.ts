import { randomUUID } from 'node:crypto';
import { glob, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Script, type ScriptedProvider, startScriptedProvider } from '@reindeer/scripted';
import {
  dockerMissing,
  postgresMissing,
  redisMissing,
  type ThrowawayDocker,
  throwawayDocker,
  verifies,
} from '@reindeer/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Cluster, cluster } from '../support/cluster.ts';
import { projectFolder, type RunningServer, say, scriptedConfig, startServer } from '../support/server.ts';

const SOURCES = {
  server: fileURLToPath(new URL('../../packages/sandbox/src/server/main.ts', import.meta.url)),
  launcher: fileURLToPath(new URL('../../images/sandbox/start.sh', import.meta.url)),
};

/** The newest message of the user is the command; what it printed is the answer. */
const script: Script = (request) => {
  const newest = request.messages.findLastIndex((message) => message.role === 'user');
  const result = request.messages.slice(newest + 1).find((message) => message.role === 'tool');
  if (result !== undefined) return { text: 'Done.' };
  const command = /\$ (.*)/.exec(request.messages[newest]?.text ?? '')?.[1] ?? '';
  return { toolCalls: [{ name: 'bash', args: { description: 'x', command } }] };
};

interface Listed {
  readonly id: string;
  readonly name: string;
  readonly state: string;
  readonly thread_id: string | null;
  readonly memory_bytes: number | null;
}

const ADOPTIONS = 'reindeer_sandbox_adoptions_total';
const missing = await dockerMissing();

const tests = (): void => {
  let docker: ThrowawayDocker;
  let provider: ScriptedProvider;
  beforeAll(async () => {
    [docker, provider] = await Promise.all([throwawayDocker(SOURCES), startScriptedProvider({ script })]);
  });
  afterAll(async () => {
    await provider?.close();
    await docker?.stop();
  });

  /** @param prefix of the containers' names: every test has its own, as every deployment has */
  const sandboxConfig = (prefix: string, more: readonly string[] = []): string =>
    [
      'sandbox:',
      '  use: container',
      `  image: ${docker.image}`,
      `  container_prefix: ${prefix}`,
      `  engine_socket: ${docker.socket}`,
      '  memory_limit: 134217728',
      '  memory_reserve: 0',
      '  replicas: 8',
      ...more.map((line) => `  ${line}`),
      '',
    ].join('\n');
  const prefixOf = (name: string): string => `${docker.prefix}-${name}`;
  const containersOf = async (prefix: string): Promise<readonly string[]> =>
    (await docker.containers()).filter((name) => name.startsWith(`${prefix}-`)).sort();
  /** Ids of the engine: another container of the same name has another one. */
  const engineIds = async (prefix: string): Promise<readonly string[]> => {
    const filters = encodeURIComponent(JSON.stringify({ name: [`^/${prefix}-`] }));
    const { body } = await docker.ask('GET', `/containers/json?filters=${filters}`);
    return (body as { Id: string }[]).map(({ Id }) => Id).sort();
  };

  const headersOf = (server: RunningServer): Record<string, string> =>
    server.token === null ? {} : { authorization: `Bearer ${server.token}` };
  const listed = async (server: RunningServer): Promise<readonly Listed[]> => {
    const answer = await fetch(`${server.url}/api/sandboxes`, { headers: headersOf(server) });
    return ((await answer.json()) as { sandboxes: Listed[] }).sandboxes;
  };
  const metric = async (server: RunningServer, line: string): Promise<number> => {
    const text = await (await fetch(`${server.url}/metrics`, { headers: headersOf(server) })).text();
    return Number(
      text
        .split('\n')
        .find((candidate) => candidate.startsWith(`${line} `))
        ?.split(' ')
        .at(-1),
    );
  };
  /** Runs a command as a turn of the thread; answers what it printed. */
  const turn = async (server: RunningServer, threadId: string, command: string): Promise<string> => {
    await server.client.runs.wait(threadId, 'lead_agent', { input: say(`$ ${command}`), ifNotExists: 'create' });
    const state = await server.client.threads.getState<{ messages: { type: string; content: unknown }[] }>(threadId);
    return String(state.values.messages.findLast((message) => message.type === 'tool')?.content ?? '');
  };
  const until = async (what: () => Promise<boolean>): Promise<void> => {
    while (!(await what())) await new Promise<void>((resolve) => setTimeout(resolve, 50));
  };
  const threads = (count: number): string[] => Array.from({ length: count }, () => randomUUID());

  test(
    'kill -9 with three live sandboxes: the next start adopts them, and their threads go on in them',
    verifies('SB-55', 'SB-59', 'SEED-001-05'),
    async () => {
      const prefix = prefixOf('kill');
      const project = await projectFolder(scriptedConfig(provider.openAiUrl, sandboxConfig(prefix)));
      try {
        const first = await startServer(project.folder);
        const ids = threads(3);
        // Outside of the thread's own folders: only this very container has it.
        await Promise.all(ids.map((thread, index) => turn(first, thread, `echo mark-${index} > /tmp/mark`)));
        for (const { memory_bytes } of await listed(first)) expect(memory_bytes).toBeGreaterThan(100_000);
        const before = await engineIds(prefix);
        expect(before).toHaveLength(3);
        await first.process.end('SIGKILL');
        expect(await engineIds(prefix)).toEqual(before);

        const second = await startServer(project.folder);
        expect(await metric(second, ADOPTIONS)).toBe(3);
        expect((await listed(second)).map(({ state, thread_id }) => [state, thread_id])).toEqual([
          ['warm', null],
          ['warm', null],
          ['warm', null],
        ]);
        const marks = await Promise.all(ids.map((thread) => turn(second, thread, 'cat /tmp/mark')));
        expect(marks.map((text) => text.trim())).toEqual(['mark-0', 'mark-1', 'mark-2']);
        expect(await engineIds(prefix)).toEqual(before);
        expect((await listed(second)).map(({ thread_id }) => thread_id).sort()).toEqual(ids.toSorted());
        expect(await second.process.end()).toEqual({ code: 0, signal: null });
        expect(await containersOf(prefix)).toEqual([]);
      } finally {
        await project.remove();
      }
    },
  );

  test(
    'signals during a run that writes: its file is complete, then the containers go, and the exit code is 0',
    verifies('SEED-002-05', 'GW-11', 'GW-14', 'GW-24'),
    async () => {
      const prefix = prefixOf('term');
      const config = `${sandboxConfig(prefix)}runs:\n  drain_timeout: 30\n`;
      const project = await projectFolder(scriptedConfig(provider.openAiUrl, config));
      try {
        const server = await startServer(project.folder);
        const [thread = '', idle = ''] = threads(2);
        await turn(server, idle, 'true');
        const out = '/mnt/user-data/outputs/lines.txt';
        const writing = `for i in $(seq 1 30); do echo line $i >> ${out}; sleep 0.1; done; echo END >> ${out}`;
        await server.client.threads.create({ threadId: thread });
        await server.client.runs.create(thread, 'lead_agent', { input: say(`$ ${writing}`) });
        const file = `${server.url}/api/threads/${thread}/artifacts${out}`;
        await until(async () => (await fetch(file, { headers: headersOf(server) })).ok);
        expect(await containersOf(prefix)).toHaveLength(2);
        for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGTERM'] as const) server.process.child.kill(signal);
        expect(await server.process.finished).toEqual({ code: 0, signal: null });
        expect(await containersOf(prefix)).toEqual([]);

        const files: string[] = [];
        for await (const path of glob(`.reindeer/**/${thread}/**/lines.txt`, { cwd: project.folder })) files.push(path);
        expect(files).toHaveLength(1);
        const text = await readFile(join(project.folder, files[0] ?? ''), 'utf8');
        expect(text.trimEnd().split('\n')).toEqual([...Array.from({ length: 30 }, (_, n) => `line ${n + 1}`), 'END']);
      } finally {
        await project.remove();
      }
    },
  );

  /** Leases of 2.5 s, a timeout of 1 s, sweeps of 0.5 s: what takes minutes in the field takes seconds here. */
  const QUICK = ['idle_timeout: 1', 'ownership:', '  renewal_interval_seconds: 0.5', '  ttl_multiplier: 5'];
  const BEYOND_ALL_MS = 4_500;

  /** A turn that lasts until the file `go` is uploaded to its thread. */
  const WAIT =
    'echo begun > /mnt/user-data/outputs/begun; while [ ! -e /mnt/user-data/uploads/go ]; do sleep 0.1; done; cat /tmp/mark';
  const begin = async (server: RunningServer, thread: string): Promise<{ readonly answer: Promise<string> }> => {
    const answer = turn(server, thread, `echo ${thread} > /tmp/mark; ${WAIT}`);
    answer.catch(() => {});
    const begun = `${server.url}/api/threads/${thread}/artifacts/mnt/user-data/outputs/begun`;
    await until(async () => (await fetch(begun, { headers: headersOf(server) })).ok);
    return { answer };
  };
  const go = async (server: RunningServer, thread: string): Promise<void> => {
    const form = new FormData();
    form.append('files', new File(['go'], 'go'));
    const answer = await fetch(`${server.url}/api/threads/${thread}/uploads`, {
      method: 'POST',
      body: form,
      headers: headersOf(server),
    });
    expect(answer.status).toBe(200);
  };
  const elapse = (milliseconds: number) => new Promise<void>((resolve) => setTimeout(resolve, milliseconds));

  test.each([{ withRedis: false }, { withRedis: true }])(
    'two gateways on one engine (Redis: $withRedis): the peer starts, reconciles and idles, and a turn of the other one still works',
    verifies('SB-47', 'SB-57', 'SB-64', 'SB-65'),
    async ({ withRedis }) => {
      const lacking = (await postgresMissing()) ?? (withRedis ? await redisMissing() : null);
      if (lacking !== null) throw new Error(lacking);
      const prefix = prefixOf(withRedis ? 'redis' : 'postgres');
      const world: Cluster = await cluster({
        openAiUrl: provider.openAiUrl,
        withRedis,
        config: sandboxConfig(prefix, QUICK),
      });
      try {
        const a = await world.start('a');
        const [ofA = '', ofB = ''] = threads(2);
        const turnA = await begin(a, ofA);
        const [container] = await engineIds(prefix);
        const b = await world.start('b');
        if (!withRedis) {
          // Lease, timeout and several sweeps of both pass under the turn.
          await elapse(BEYOND_ALL_MS);
          expect(await listed(b)).toEqual([]);
        }
        if (withRedis) {
          // The store forgets everything, and then goes away for a moment, under two live turns.
          const turnB = await begin(b, ofB);
          const both = await engineIds(prefix);
          expect(both).toHaveLength(2);
          const { createClient } = await import('redis');
          const admin = await createClient({ url: world.redis?.url ?? '' }).connect();
          await admin.flushAll();
          // Their owners put the leases back.
          await until(async () => (await admin.keys('deerflow:sandbox:owner:*')).length === 2);
          await admin.close();
          await world.redis?.restart();
          await elapse(BEYOND_ALL_MS);
          expect(await engineIds(prefix)).toEqual(both);
          expect([(await listed(a)).length, (await listed(b)).length]).toEqual([1, 1]);
          await go(b, ofB);
          expect((await turnB.answer).trim()).toBe(ofB);
        }
        expect([await metric(a, ADOPTIONS), await metric(b, ADOPTIONS)]).toEqual([0, 0]);
        expect(await engineIds(prefix)).toContain(container);
        await go(a, ofA);
        expect((await turnA.answer).trim()).toBe(ofA);
        // Idle now: whoever owns them stops them, and nobody else does.
        await until(async () => (await containersOf(prefix)).length === 0);
        expect(await turn(b, ofA, 'cat /mnt/user-data/outputs/begun')).toContain('begun');
        expect((await Promise.all([a.process.end(), b.process.end()])).map(({ code }) => code)).toEqual([0, 0]);
        expect(await containersOf(prefix)).toEqual([]);
      } finally {
        await world.stop();
      }
    },
  );
};

const TITLE = 'sandboxes that live between turns, on a real engine';
if (missing === null) describe(TITLE, tests);
else test(TITLE, (context) => context.skip(missing));
