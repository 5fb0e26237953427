import { request } from 'node:http';
import { type Script, type ScriptedProvider, startScriptedProvider } from '@reindeer/scripted';
import { verifies } from '@reindeer/testkit';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { projectFolder, type RunningServer, say, scriptedConfig, startServer } from '../support/server.ts';

/** `do:<command>` runs the command; `read:<path>` reads a file with the agent's own tool. */
const script: Script = (request) => {
  const newest = request.messages.findLastIndex((message) => message.role === 'user');
  const asked = request.messages[newest]?.text ?? '';
  if (request.messages.slice(newest + 1).some((message) => message.role === 'tool')) return { text: 'Done.' };
  const command = /do:(.*)/s.exec(asked)?.[1];
  if (command !== undefined) return { toolCalls: [{ name: 'bash', args: { description: 'x', command } }] };
  const path = /read:(\S+)/.exec(asked)?.[1] ?? '/';
  return { toolCalls: [{ name: 'read_file', args: { description: 'x', path } }] };
};

let provider: ScriptedProvider;
let project: Awaited<ReturnType<typeof projectFolder>>;
let server: RunningServer;
let canExecute = false;
beforeAll(async () => {
  provider = await startScriptedProvider({ script });
  project = await projectFolder(scriptedConfig(provider.openAiUrl));
  server = await startServer(project.folder);
  const health = (await (await fetch(`${server.url}/health`)).json()) as { sandbox: { canExecute: boolean } };
  canExecute = health.sandbox.canExecute;
});
afterAll(async () => {
  await server.process.end();
  await provider.close();
  await project.remove();
});
beforeEach((ctx) => {
  if (!canExecute) ctx.skip('this machine has no sandbox that runs commands');
});

const ask = async (threadId: string, text: string): Promise<string> => {
  const values = (await server.client.runs.wait(threadId, 'lead_agent', {
    input: say(text),
    ifNotExists: 'create',
  })) as {
    messages?: { type: string; content: string }[];
  };
  return values.messages?.findLast((message) => message.type === 'tool')?.content ?? '';
};

/** A GET whose path is sent exactly as it stands. */
const status = (path: string): Promise<number> =>
  new Promise((resolve, reject) => {
    const call = request({ host: '127.0.0.1', port: server.port, path, timeout: 10_000 }, (response) => {
      response.resume();
      response.on('end', () => resolve(response.statusCode ?? 0));
    });
    call.on('error', reject);
    call.on('timeout', () => call.destroy(new Error(`${path} hung`)));
    call.end();
  });

describe('what a command plants in the shared folders', () => {
  test(
    'links, hard links and pipes neither fool nor hang artifacts and file tools',
    verifies('SEC-03', 'FILE-3a'),
    async () => {
      const thread = 'planted';
      const output = await ask(
        thread,
        [
          'do:cd /mnt/user-data/outputs',
          'ln -s /etc/passwd link',
          'ln -s /mnt folder',
          'ln -s /proc/self/environ environ',
          'mkfifo pipe1 pipe2 pipe3 pipe4 pipe5 pipe6',
          'echo good > good && ln good hard && echo fine > fine.txt',
          'mkdir inner && ln -s /etc inner/etc && ls | wc -l',
        ].join(' && '),
      );
      expect(output).toContain('13');
      const artifact = (path: string) => status(`/api/threads/${thread}/artifacts/mnt/user-data/outputs/${path}`);
      expect(await artifact('fine.txt')).toBe(200);
      for (const path of ['link', 'environ', 'hard', 'good', 'folder/user-data/outputs/fine.txt', 'inner/etc/passwd'])
        expect([path, [403, 404]]).toEqual([path, expect.arrayContaining([await artifact(path)])]);
      // Six pipes are more than Node has threads for files: one that blocked would freeze everything here.
      expect(await Promise.all([1, 2, 3, 4, 5, 6].map((n) => artifact(`pipe${n}`)))).toEqual(Array(6).fill(403));
      expect(await status('/health')).toBe(200);
      for (const path of ['link', 'pipe1', 'inner/etc/passwd']) {
        const told = await ask(thread, `read:/mnt/user-data/outputs/${path}`);
        expect(told).not.toContain('root:');
      }
    },
  );

  test('uploads replace what is theirs and follow nothing', verifies('SEC-03', 'FILE-1b'), async () => {
    const thread = 'uploads';
    const upload = async (name: string, content: string) => {
      const form = new FormData();
      form.append('files', new File([content], name));
      const response = await fetch(`${server.url}/api/threads/${thread}/uploads`, { method: 'POST', body: form });
      return (await response.json()) as { files: { filename: string }[]; skipped_files: unknown[] };
    };
    expect((await upload('a.txt', 'one')).files).toHaveLength(1);
    expect((await upload('a.txt', 'two')).files).toHaveLength(1);
    expect(await ask(thread, 'do:cat /mnt/user-data/uploads/a.txt')).toContain('two');
    // The sandbox may not even write there.
    expect(
      await ask(thread, 'do:ln -s /etc/passwd /mnt/user-data/uploads/b.txt; ls /mnt/user-data/uploads'),
    ).not.toMatch(/^b\.txt$/m);
    const list = (await (await fetch(`${server.url}/api/threads/${thread}/uploads/list`)).json()) as {
      files: { filename: string }[];
    };
    expect(list.files.map((file) => file.filename)).toEqual(['a.txt']);
  });

  test('other threads, the host and the server are out of reach of a command', async () => {
    await ask('theirs', 'do:echo secret-words > /mnt/user-data/workspace/note.txt');
    // In a script, which no audit of the command reads: the sandbox alone must hold.
    const attempts = `cat /etc/shadow; ls ${project.folder} /root /home; env | grep -i key; grep -rs secret-words /mnt /tmp; cat < /dev/tcp/127.0.0.1/${server.port}; ls /var/run/docker.sock /run/*.sock`;
    const look = await ask('mine', `do:cat > look.sh <<'END'\n${attempts}\nEND\nbash look.sh 2>&1`);
    expect(look).not.toContain('root:');
    expect(look).not.toContain('not-a-real-key');
    expect(look).not.toMatch(/^secret-words$|:secret-words$/m);
    expect(look).not.toContain('config.yaml');
    expect(look).toMatch(/(?:Connection refused|Network is unreachable|connect:)/);
  });
});
