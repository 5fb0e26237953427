import { mkdir, readFile, stat, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { type Script, type ScriptedProvider, startScriptedProvider } from '@reindeer/scripted';
import { verifies } from '@reindeer/testkit';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { projectFolder, ReindeerProcess, say, scriptedConfig, startServer } from '../support/server.ts';

const script: Script = (request) => {
  const newest = request.messages.findLastIndex((message) => message.role === 'user');
  const asked = request.messages[newest]?.text ?? '';
  const done = request.messages.slice(newest + 1).filter((message) => message.role === 'tool').length;
  if (asked.includes('fail')) return { fault: { kind: 'status', status: 400, message: 'No such thing.' } };
  if (asked.includes('ask me'))
    return {
      toolCalls: [{ name: 'ask_clarification', args: { question: 'Which one?', clarification_type: 'missing_info' } }],
    };
  if (asked.includes('sleep'))
    return done === 0
      ? { toolCalls: [{ name: 'bash', args: { description: 'x', command: 'sleep 60' } }] }
      : { text: 'Awake.' };
  if (asked.includes('slow')) return { text: 'word '.repeat(80), delayMs: 25, pieceSize: 5 };
  if (asked.includes('file') && done === 0)
    return {
      text: 'Writing.',
      toolCalls: [
        { name: 'write_file', args: { description: 'x', path: '/mnt/user-data/outputs/a.md', content: 'x' } },
      ],
    };
  return { text: 'All done.' };
};

let provider: ScriptedProvider;
beforeAll(async () => {
  provider = await startScriptedProvider({ script });
});
afterAll(() => provider.close());

let project: Awaited<ReturnType<typeof projectFolder>>;
let folder: string;
const started: ReindeerProcess[] = [];
beforeEach(async () => {
  project = await projectFolder(scriptedConfig(provider.openAiUrl));
  ({ folder } = project);
});
afterEach(async () => {
  for (const child of started.splice(0)) await child.end('SIGKILL');
  await project.remove();
});

const reindeer = (words: readonly string[], environment: Readonly<Record<string, string>> = {}) => {
  const child = new ReindeerProcess(words, { folder, environment });
  started.push(child);
  return child;
};
const complete = async (words: readonly string[], environment: Readonly<Record<string, string>> = {}) => {
  const child = reindeer(words, environment);
  const { code } = await child.finished;
  return { code, stdout: child.stdout, stderr: child.stderr };
};
const serve = async (options: Parameters<typeof startServer>[1] = {}) => {
  const server = await startServer(folder, options);
  started.push(server.process);
  return server;
};

describe('serve', () => {
  test('--check boots, reports its time and ends well', verifies('API-18'), async () => {
    const { code, stdout } = await complete(['serve', '--check']);
    expect(stdout).toMatch(/^Healthy after \d+\.\d\d s\.\n$/);
    expect(code).toBe(0);
    expect((await stat(join(folder, '.reindeer/data/reindeer.db'))).mode & 0o077).toBe(0);
  });

  test('faults at start are one clear line, and nothing stays', verifies('GW-01', 'GW-04'), async () => {
    const blocker = createServer();
    await new Promise<void>((resolve) => blocker.listen(0, '127.0.0.1', resolve));
    const address = blocker.address();
    const port = typeof address === 'object' && address !== null ? address.port : 0;
    const taken = await complete(['serve', '--port', String(port)]);
    expect([taken.code, taken.stderr]).toEqual([
      1,
      expect.stringMatching(/^reindeer: Port \d+ on 127\.0\.0\.1 is taken .*--port/m),
    ]);
    await new Promise((resolve) => blocker.close(resolve));
    // Everything was released: the same folder serves at once.
    expect((await complete(['serve', '--check'])).code).toBe(0);

    await writeFile(join(folder, 'config.yaml'), 'log_level: loud\n');
    const config = await complete(['serve']);
    expect([config.code, config.stderr]).toEqual([
      1,
      expect.stringMatching(/config\.yaml, line 1: log_level must be one of/),
    ]);
    const open = await complete(['serve', '--host', '0.0.0.0', '--config', 'config.yaml']);
    expect(open.code).toBe(1);
    const word = await complete(['sevre']);
    expect([word.code, word.stderr]).toEqual([2, expect.stringContaining('Did you mean "serve"?')]);
  });

  test('a second process on one data folder is told so', async () => {
    await serve();
    const second = await complete(['serve', '--port', '0']);
    expect([second.code, second.stderr]).toEqual([
      1,
      expect.stringMatching(/in use by another Reindeer \(process \d+\)/),
    ]);
  });

  test('a sandbox that reaches the server makes every client need the token', verifies('SEC-09'), async () => {
    await writeFile(
      join(folder, 'config.yaml'),
      scriptedConfig(provider.openAiUrl, 'sandbox:\n  use: local\n  allow_host_bash: true\n'),
    );
    const server = await serve();
    expect(server.token).toMatch(/^[A-Za-z0-9_-]{40,}$/);
    expect((await fetch(`${server.url}/api/models`)).status).toBe(401);
    expect(await server.client.assistants.search()).toHaveLength(1);
    expect((await stat(join(folder, '.reindeer/token'))).mode & 0o077).toBe(0);
    await server.process.end();
    expect((await serve()).token).toBe(server.token);
  });

  test(
    'SIGTERM lets a short run finish; the reader hears its end',
    verifies('GW-08', 'GW-09', 'GW-24', 'GW-26'),
    async () => {
      const server = await serve();
      const { thread_id: id } = await server.client.threads.create();
      const events: string[] = [];
      for await (const part of server.client.runs.stream(id, 'lead_agent', {
        input: say('slow'),
        streamMode: ['messages-tuple', 'values'],
      })) {
        events.push(part.event);
        if (part.event === 'messages' && events.filter((event) => event === 'messages').length === 2) {
          server.process.child.kill('SIGTERM');
          server.process.child.kill('SIGTERM');
          server.process.child.kill('SIGINT');
        }
      }
      expect(events.at(-1)).toBe('end');
      expect(await server.process.finished).toEqual({ code: 0, signal: null });
      const again = await serve();
      const state = await again.client.threads.getState<{ messages: { content: string }[] }>(id);
      expect(state.values.messages.at(-1)?.content).toBe('word '.repeat(80));
      expect((await again.client.runs.list(id)).map((run) => run.status)).toEqual(['success']);
    },
  );

  test('while it stops it takes nothing new and says so', verifies('GW-20', 'GW-28'), async () => {
    const server = await serve();
    const { thread_id: id } = await server.client.threads.create();
    const other = await server.client.threads.create();
    let status = 0;
    let ready = 0;
    for await (const part of server.client.runs.stream(id, 'lead_agent', {
      input: say('slow'),
      streamMode: ['messages-tuple'],
    })) {
      if (part.event !== 'messages' || status !== 0) continue;
      server.process.child.kill('SIGTERM');
      while (ready !== 503) ready = (await fetch(`${server.url}/health/ready`)).status;
      expect((await fetch(`${server.url}/health`)).status).toBe(200);
      ({ status } = await fetch(`${server.url}/api/threads/${other.thread_id}/runs`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: '{"input":null}',
      }));
    }
    expect([status, ready]).toEqual([503, 503]);
    expect((await server.process.finished).code).toBe(0);
  });

  test(
    'a run that outlasts the drain is interrupted, and its thread goes on after the restart',
    verifies('GW-09', 'RT-18'),
    async () => {
      await writeFile(join(folder, 'config.yaml'), scriptedConfig(provider.openAiUrl, 'runs:\n  drain_timeout: 0\n'));
      const server = await serve();
      const { thread_id: id } = await server.client.threads.create();
      const run = await server.client.runs.create(id, 'lead_agent', { input: say('sleep') });
      for await (const part of server.client.runs.joinStream(id, run.run_id, { streamMode: ['updates'] }))
        if ((part.data as { model?: unknown }).model !== undefined) break;
      expect((await server.process.end()).signal).toBeNull();
      const again = await serve();
      expect((await again.client.runs.get(id, run.run_id)).status).toBe('interrupted');
      const next = (await again.client.runs.wait(id, 'lead_agent', { input: say('hello') })) as unknown as {
        messages: { content: string }[];
      };
      expect(next.messages.at(-1)?.content).toBe('All done.');
    },
  );

  test('SIGQUIT leaves at once with the list', async () => {
    const server = await serve();
    const { thread_id: id } = await server.client.threads.create();
    const run = await server.client.runs.create(id, 'lead_agent', { input: say('sleep') });
    for await (const part of server.client.runs.joinStream(id, run.run_id, { streamMode: ['updates'] }))
      if (part.event === 'updates') break;
    server.process.child.kill('SIGTERM');
    server.process.child.kill('SIGQUIT');
    expect((await server.process.finished).code).toBe(131);
    expect(server.process.stderr).toMatch(/Leaving at once\. Unfinished: .*database/);
  });
});

describe('run', () => {
  test('prints the words to standard output and the rest to standard error', async () => {
    const { code, stdout, stderr } = await complete(['run', 'make a file']);
    expect(stdout).toBe('Writing.\nAll done.\n');
    expect(stderr).toContain('→ write_file');
    // The hint can be copied as it stands.
    expect(stderr).toMatch(/Continue with: node \S*main\.(ts|js) run --thread [0-9a-f-]{36}/);
    expect(code).toBe(0);
    const npm = await complete(['run', 'hello'], { npm_lifecycle_event: 'reindeer' });
    expect(npm.stderr).toMatch(/Continue with: npm run reindeer -- run --thread [0-9a-f-]{36}/);
  });

  test('--json prints one event per line; exit codes tell the outcome', verifies('CLI-2'), async () => {
    const good = await complete(['run', 'hello', '--json', '--thread', 'mine']);
    const events = good.stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as { event: string; data: { thread_id?: string } });
    expect([good.code, events[0]?.event, events[0]?.data.thread_id, events.at(-1)?.event]).toEqual([
      0,
      'metadata',
      'mine',
      'end',
    ]);
    const failed = await complete(['run', 'fail please']);
    expect(failed.code).toBe(1);
    expect((await complete(['run', 'ask me'])).code).toBe(3);
    expect((await complete(['run', 'x', '--model', 'scriptd'])).stderr).toContain('Did you mean "scripted"?');
    expect((await complete(['run'])).code).toBe(2);
    // The same thread goes on in another process.
    await complete(['run', 'again', '--thread', 'mine']);
    const server = await serve();
    expect((await server.client.threads.getState<{ messages: unknown[] }>('mine')).values.messages).toHaveLength(4);
  });

  test('with a server on the folder it says so; --attach lets the server do it', async () => {
    const server = await serve();
    const locked = await complete(['run', 'hello']);
    expect([locked.code, locked.stderr]).toEqual([1, expect.stringMatching(/in use by another Reindeer.*--attach/s)]);
    const attached = await complete(['run', 'hello', '--attach', '--port', String(server.port), '--thread', 'mine']);
    expect([attached.code, attached.stdout]).toEqual([0, 'All done.\n']);
    expect((await server.client.threads.getState<{ messages: unknown[] }>('mine')).values.messages).toHaveLength(2);
    await server.process.end();
    const nobody = await complete(['run', 'hello', '--attach', '--port', String(server.port)]);
    expect([nobody.code, nobody.stderr]).toEqual([1, expect.stringContaining('No server answers')]);
  });

  test('Ctrl-C ends the run and what it started', async () => {
    const child = reindeer(['run', 'sleep', '--thread', 'mine', '--json']);
    await child.output(/"tool_calls":\[\{"name":"bash"/);
    child.child.kill('SIGINT');
    expect((await child.finished).code).toBe(130);
    const server = await serve();
    expect((await server.client.runs.list('mine')).map((run) => run.status)).toEqual(['interrupted']);
  });
});

describe('doctor and backup', () => {
  test('doctor finds things in order, or names what is not', async () => {
    const good = await complete(['doctor', '--json', '--port', '0']);
    expect(good.code).toBe(0);
    const report = JSON.parse(good.stdout) as {
      ok: boolean;
      findings: { name: string; state: string; fix?: string }[];
    };
    expect(report.ok).toBe(true);
    expect(report.findings.map((finding) => finding.name)).toEqual(
      expect.arrayContaining(['node', 'configuration', 'data folder', 'port', 'models', 'sandbox']),
    );
    await writeFile(join(folder, 'config.yaml'), 'server:\n  port: many\n');
    const bad = await complete(['doctor']);
    expect([bad.code, bad.stdout]).toEqual([
      1,
      expect.stringMatching(/✗ configuration .*line 2: server\.port.*\n\s+→ /s),
    ]);
    await writeFile(join(folder, 'config.yaml'), '');
    const demo = await complete(['doctor', '--port', '0']);
    expect([demo.code, demo.stdout]).toEqual([
      0,
      expect.stringMatching(/! models .*demo model.*\n\s+→ put OPENAI_API_KEY/),
    ]);
  });

  test('backup copies a database in use, and never overwrites', async () => {
    const server = await serve();
    await server.client.threads.create({ threadId: 'kept' });
    const first = await complete(['backup', 'copy.db']);
    expect([first.code, first.stdout]).toEqual([0, `Backed up to ${join(folder, 'copy.db')}\n`]);
    const second = await complete(['backup', 'copy.db']);
    expect([second.code, second.stderr]).toEqual([1, expect.stringContaining('exists')]);
    await server.process.end();

    // The copy serves as a data folder.
    const restored = join(folder, 'restored');
    await mkdir(join(restored, 'data'), { recursive: true });
    await writeFile(join(restored, 'data/reindeer.db'), await readFile(join(folder, 'copy.db')));
    const again = await serve({ environment: { REINDEER_HOME: restored } });
    expect((await again.client.threads.get('kept')).thread_id).toBe('kept');
    const check = new DatabaseSync(join(folder, 'copy.db'), { readOnly: true });
    expect(check.prepare('PRAGMA integrity_check').get()).toEqual({ integrity_check: 'ok' });
    check.close();
  });
});
