import { ReindeerError } from '@reindeer/protocol';
import { deferred, verifies } from '@reindeer/testkit';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { ChannelError } from './adapter.ts';
import { type ChannelService, CREDENTIAL_MASK } from './service.ts';
import { DEFAULT_CHANNEL_SETTINGS } from './settings.ts';
import { ChannelScene, FakeAdapter } from './testing/scene.ts';
import { TEXTS } from './texts.ts';

let scene: ChannelScene;
beforeEach(() => {
  scene = new ChannelScene();
});
afterEach(async () => {
  await scene.stop();
  // Nothing of a stopped service waits for anything.
  expect(scene.surroundings.clock.sleeping).toBe(0);
});
const started = async (part: Parameters<ChannelScene['service']>[0] = {}): Promise<ChannelService> => {
  const service = scene.service(part);
  service.start();
  await scene.settle();
  return service;
};
const connected = async (part: Parameters<ChannelScene['service']>[0] = {}): Promise<ChannelService> => {
  const service = await started(part);
  await scene.connect(service);
  return service;
};
const only = () => {
  const [run] = scene.server.runs;
  if (run === undefined || scene.server.runs.length > 1) throw new Error(`${scene.server.runs.length} runs`);
  return run;
};

describe('who may speak', () => {
  test(
    'a stranger starts nothing, not by a command either, and is told how to connect',
    verifies('API-14'),
    async () => {
      await started();
      await scene.say('do something');
      await scene.say('/new');
      await scene.say('/status');
      expect(scene.adapter.log).toEqual([1, 2, 3].map((n) => `send ${n}: ${TEXTS.notConnected}`));
      expect(scene.server.runs).toEqual([]);
      expect(scene.server.threads.size).toBe(0);
    },
  );

  test('a code connects the account that sends it, once; the run is then that user’s', verifies('API-14'), async () => {
    const service = await started();
    const { code, url, expiresInMs } = await service.connect('ann', 'telegram');
    expect(url).toBe(`https://t.me/our_bot?start=${code}`);
    expect(expiresInMs).toBe(600_000);
    // 128 bits.
    expect(Buffer.from(code, 'base64url')).toHaveLength(16);
    await scene.say(`/connect ${code}`);
    await scene.say(`/connect ${code}`, { senderId: '8' });
    await scene.say('/connect nonsense', { senderId: '8' });
    expect(scene.adapter.log).toEqual([
      `send 1: ${TEXTS.connected('ann')}`,
      `send 2: ${TEXTS.codeInvalid}`,
      `send 3: ${TEXTS.codeInvalid}`,
    ]);
    await scene.say('hello');
    expect(only().run.userId).toBe('ann');
    await scene.say('hello', { senderId: '8' });
    expect(scene.server.runs).toHaveLength(1);
    expect(await service.connections('ann')).toMatchObject([{ externalId: '7', externalName: 'Ann' }]);
  });

  test('a code is good for ten minutes, and five of them at once', async () => {
    const service = await started();
    const codes = await Promise.all(Array.from({ length: 5 }, () => service.connect('ann', 'telegram')));
    await expect(service.connect('ann', 'telegram')).rejects.toMatchObject({ code: 'queue_full' });
    await service.connect('bob', 'telegram');
    scene.surroundings.clock.jump(600_000);
    await scene.say(`/connect ${codes[0]?.code}`);
    expect(scene.adapter.log.at(-1)).toContain(TEXTS.codeInvalid);
    await service.connect('ann', 'telegram');
  });

  test('who disconnects is a stranger again', async () => {
    const service = await connected();
    const [connection] = await service.connections('ann');
    expect(await service.disconnect('bob', connection?.connectionId ?? '')).toBe(false);
    expect(await service.disconnect('ann', connection?.connectionId ?? '')).toBe(true);
    await scene.say('hello');
    expect(scene.adapter.log).toEqual([`send 2: ${TEXTS.notConnected}`]);
  });

  test('who is not on the list is not answered, but may connect', async () => {
    const { telegram } = DEFAULT_CHANNEL_SETTINGS.providers;
    const providers = {
      telegram: { ...telegram, credentials: { bot_token: '1:secret' }, allowedUsers: ['7'] },
    };
    const service = await started({ settings: { providers } });
    await scene.connect(service, 'bob', '8');
    expect(await service.connections('bob')).toHaveLength(1);
    await scene.say('hello', { senderId: '8' });
    expect(scene.adapter.log).toEqual([]);
    expect(scene.server.runs).toEqual([]);
  });
});

describe('a conversation', () => {
  test(
    'a message becomes a run, its growing answer is shown by edits, and the end of it without the cursor',
    verifies('API-14'),
    async () => {
      await connected();
      await scene.say('how are you?');
      const run = only();
      expect(run.text).toBe('how are you?');
      expect(run.input).toMatchObject({
        multitaskStrategy: 'reject',
        onDisconnect: 'continue',
        request: {
          config: { recursion_limit: 100 },
          context: {
            channel_name: 'telegram',
            channel_user_id: '7',
            thinking_enabled: true,
            is_plan_mode: false,
            subagent_enabled: false,
          },
        },
      });
      const [thread] = scene.server.threads.values();
      expect(thread).toMatchObject({
        userId: 'ann',
        metadata: { channel_source: { type: 'im_channel', provider: 'telegram', chat_id: 'chat' } },
      });
      expect(scene.adapter.log).toEqual([`send 2: ${TEXTS.working}`]);
      run.chunk('Fine');
      await scene.settle();
      // Few characters wait for a second.
      expect(scene.adapter.log).toHaveLength(1);
      run.chunk(', thanks');
      await scene.surroundings.clock.advance(999);
      expect(scene.adapter.log).toHaveLength(1);
      await scene.surroundings.clock.advance(1);
      expect(scene.adapter.log.slice(1)).toEqual(['edit 2: Fine, thanks ▌']);
      // Many go at once.
      run.chunk('x'.repeat(60));
      await scene.settle();
      expect(scene.adapter.log.slice(2)).toEqual([`edit 2: Fine, thanks${'x'.repeat(60)} ▌`]);
      run.say('Fine, thanks.');
      run.end();
      await scene.settle();
      expect(scene.adapter.log.slice(3)).toEqual(['edit 2: Fine, thanks.']);
      // The same conversation goes on in the same thread.
      await scene.say('and now?');
      expect(scene.server.threads.size).toBe(1);
      expect(scene.server.runs[1]?.run.threadId).toBe(thread?.threadId);
    },
  );

  test('no edit comes sooner than the messenger allows, and a limit that it tells is kept to', async () => {
    scene.adapter.gapMs = 3_000;
    await connected();
    await scene.say('go');
    const run = only();
    run.chunk('a'.repeat(100));
    await scene.surroundings.clock.advance(2_999);
    expect(scene.adapter.log).toHaveLength(1);
    scene.adapter.before = (act) => {
      if (act.startsWith('edit')) throw new ChannelError('limited', 'Slower.', 20_000);
    };
    await scene.surroundings.clock.advance(1);
    scene.adapter.before = () => {};
    run.chunk('b');
    await scene.surroundings.clock.advance(19_999);
    expect(scene.adapter.log).toHaveLength(1);
    await scene.surroundings.clock.advance(1);
    expect(scene.adapter.log.slice(1)).toEqual([`edit 2: ${'a'.repeat(100)}b ▌`]);
    run.end();
    await scene.settle();
  });

  test('only what the agent says at the end goes out: no tools, no thoughts, nothing of before', async () => {
    await connected();
    await scene.say('go');
    const run = only();
    run.chunk('Let me look.', 'a1');
    await scene.surroundings.clock.advance(1_000);
    run.chunk('', 'a2', { tool_calls: [{ name: 'bash' }] });
    run.say('Let me look.', { tool_calls: [{ id: 't', name: 'bash', args: {} }] });
    run.fact({ kind: 'message', ns: '', message: { type: 'tool', name: 'bash', content: 'SECRET OUTPUT' } });
    run.fact({ kind: 'message', ns: 'sub', message: { type: 'ai', content: 'a helper speaks' } });
    run.say('', {
      content: [
        { type: 'thinking', thinking: 'hm' },
        { type: 'text', text: 'It is there.' },
      ],
    });
    run.end();
    await scene.settle();
    expect(scene.adapter.log.slice(-1)).toEqual(['edit 2: It is there.']);
    expect(scene.adapter.log.join()).not.toMatch(/SECRET|helper|hm/);
  });

  test('a long answer goes out in pieces of the right size, in order', async () => {
    await connected();
    await scene.say('go');
    const run = only();
    // The limit falls into a character.
    run.say(`a${'🦌'.repeat(350)} end`);
    run.end();
    await scene.settle();
    expect(scene.adapter.log.slice(1)).toEqual([`edit 2: a${'🦌'.repeat(249)}`, `send 3: ${'🦌'.repeat(101)} end`]);
  });

  test.each([
    ['success', {}, TEXTS.empty],
    ['success', { stopReason: 'interrupt' }, TEXTS.approval],
    ['error', { error: 'The model failed.' }, TEXTS.failed('The model failed.')],
    ['timeout', {}, TEXTS.timeout],
    ['interrupted', {}, TEXTS.stopped],
  ] as const)('a run that ends as %s %o without words says so', async (status, part, text) => {
    await connected();
    await scene.say('go');
    only().end(status, part);
    await scene.settle();
    expect(scene.adapter.log.slice(1)).toEqual([`edit 2: ${text}`]);
  });

  test('a question of the agent goes out as it is', async () => {
    await connected();
    await scene.say('go');
    const run = only();
    run.say('', { tool_calls: [{ id: 'q', name: 'ask_clarification', args: {} }] });
    run.fact({
      kind: 'message',
      ns: '',
      message: { type: 'tool', name: 'ask_clarification', content: '❓ Which one?\n1. a\n2. b' },
    });
    run.end();
    await scene.settle();
    expect(scene.adapter.log.at(-1)).toBe('edit 2: ❓ Which one?\n1. a\n2. b');
  });

  test('who writes while a run is at work is told so; another conversation is free', async () => {
    await connected();
    await scene.say('first');
    await scene.say('second');
    expect(scene.adapter.log.slice(1)).toEqual([`send 3: ${TEXTS.busy}`]);
    await scene.say('elsewhere', { chatId: 'other' });
    expect(scene.server.runs.map((run) => run.text)).toEqual(['first', 'elsewhere']);
    for (const run of scene.server.runs) run.end();
    await scene.settle();
  });

  test('of two messages that come together the first one counts, however long its file takes', async () => {
    await connected();
    scene.adapter.files.set('f', 'x');
    const held = deferred();
    const { fetch } = scene.adapter;
    scene.adapter.fetch = async (file) => {
      await held.promise;
      return await fetch.call(scene.adapter, file);
    };
    const first = scene.message('first', { files: [{ id: 'f', name: 'a.txt', size: 1 }] });
    await scene.adapter.deliver(first, scene.message('second'), scene.message('elsewhere', { chatId: 'other' }));
    await scene.settle();
    expect(scene.server.runs.map((run) => run.text)).toEqual(['elsewhere']);
    held.resolve();
    await scene.settle();
    expect(scene.server.runs.map((run) => run.text)).toEqual(['elsewhere', 'first']);
    expect(scene.adapter.log.at(-1)).toContain(TEXTS.busy);
    for (const run of scene.server.runs) run.end();
    await scene.settle();
  });

  test('in a group an answer that is answered goes on with its conversation', async () => {
    await connected();
    const group = { chatId: 'group', group: true };
    await scene.say('go', { ...group, topic: '100', answerTo: '100' });
    only().end();
    await scene.settle();
    await scene.say('on', { ...group, topic: '2', answerTo: '101' });
    await scene.say('new', { ...group, topic: '200', answerTo: '200' });
    const [first, second, third] = scene.server.runs.map(({ run }) => run.threadId);
    expect(second).toBe(first);
    expect(third).not.toBe(first);
    for (const run of scene.server.runs) run.end();
    await scene.settle();
  });

  test('settings of sessions stand in layers, and an agent that is not there is named', async () => {
    const { telegram } = DEFAULT_CHANNEL_SETTINGS.providers;
    const layers = {
      session: { assistantId: 'writer', recursionLimit: 50, context: { is_plan_mode: true } },
      providers: {
        telegram: {
          ...telegram,
          credentials: { bot_token: '1:secret' },
          session: { recursionLimit: 60, context: { subagent_enabled: true } },
          users: { '7': { assistantId: 'coder', context: { is_plan_mode: false } }, '9': { assistantId: 'missing' } },
        },
      },
    };
    const service = await connected({ settings: layers });
    await scene.connect(service, 'bob', '8');
    await scene.connect(service, 'eve', '9');
    await scene.say('go');
    await scene.say('go', { senderId: '8', chatId: 'b' });
    await scene.say('go', { senderId: '9', chatId: 'c' });
    expect(scene.server.runs.map(({ input }) => input.request)).toMatchObject([
      {
        config: { recursion_limit: 60 },
        context: { agent_name: 'coder', is_plan_mode: false, subagent_enabled: true },
      },
      {
        config: { recursion_limit: 60 },
        context: { agent_name: 'writer', is_plan_mode: true, subagent_enabled: true },
      },
    ]);
    expect(scene.adapter.log.at(-1)).toContain('There is no agent “missing”');
    for (const run of scene.server.runs) run.end();
    await scene.settle();
  });
});

describe('commands', () => {
  test('are answered without a run', verifies('API-14'), async () => {
    await connected();
    await scene.say('/status');
    await scene.say('/help');
    await scene.say('/models');
    await scene.say('/memory');
    await scene.say('/goal');
    await scene.say('/start');
    await scene.say('/nonsense');
    expect(scene.server.runs).toEqual([]);
    expect(scene.server.threads.size).toBe(0);
    const said = scene.adapter.log.map((line) => line.replace(/^send \d+: /, ''));
    expect(said[0]).toBe(TEXTS.noThread);
    expect(said.join('\n')).toContain('/chart');
    expect(said).toContain('Models:\n• small\n• large');
    expect(said).toContain('What I remember:\n• ann likes tea');
    expect(said).toContain(TEXTS.goal(null));
    expect(said).toContain(TEXTS.hello);
    expect(said.join('\n')).toContain('I do not know /nonsense.');
  });

  test(
    '/new begins another thread, /status names it, and only the beginning of a message is a command',
    verifies('API-14'),
    async () => {
      await connected();
      await scene.say('tell me about /new');
      expect(only().text).toBe('tell me about /new');
      only().end();
      await scene.settle();
      await scene.say('/new');
      await scene.say('again');
      const [first, second] = scene.server.runs;
      expect(second?.run.threadId).not.toBe(first?.run.threadId);
      await scene.say('/status');
      expect(scene.adapter.log.at(-1)).toContain(second?.run.threadId);
      second?.end();
      await scene.settle();
    },
  );

  test('/goal sets and starts, clears; /bootstrap and skills start a run of their kind', async () => {
    await connected();
    const finish = async () => {
      scene.server.runs.at(-1)?.end();
      await scene.settle();
    };
    await scene.say('/goal write a poem');
    expect(only().text).toBe('write a poem');
    expect([...scene.server.goals.values()]).toEqual(['write a poem']);
    await finish();
    await scene.say('/goal');
    expect(scene.adapter.log.at(-1)).toContain('write a poem');
    await scene.say('/goal clear');
    expect(scene.server.goals.size).toBe(0);
    await scene.say(`/goal ${'x'.repeat(101)}`);
    expect(scene.adapter.log.at(-1)).toContain(TEXTS.goalTooLong(100));
    await scene.say('/bootstrap a writer');
    expect(scene.server.runs.at(-1)?.input.request.context).toMatchObject({ is_bootstrap: true });
    expect(scene.server.runs.at(-1)?.text).toBe('a writer');
    await finish();
    await scene.say('/chart the numbers');
    expect(scene.server.runs.at(-1)?.text).toBe('/chart the numbers');
    expect(scene.server.runs.at(-1)?.input.request.context.is_bootstrap).toBeUndefined();
    await finish();
    expect(scene.server.runs).toHaveLength(3);
  });
});

describe('files', () => {
  test(
    'what is sent lies in the user’s uploads and is told to the agent; what is too large is told to the sender',
    verifies('API-14'),
    async () => {
      await connected();
      scene.adapter.files.set('f1', 'a,b');
      scene.adapter.files.set('f2', 'x'.repeat(501));
      await scene.say('look', {
        files: [
          { id: 'f1', name: 'a.csv', size: 3 },
          { id: 'f2', name: 'grown.bin', size: 10 },
          { id: 'f3', name: 'huge.zip', size: 501 },
          { id: 'f4', name: 'lost.txt', size: 1 },
          { id: 'f1', name: '../evil', size: 3 },
        ],
      });
      const run = only();
      const { messages } = run.input.request.input as { messages: object[] };
      expect(messages).toEqual([
        {
          type: 'human',
          content: 'look',
          additional_kwargs: { files: [{ filename: 'a.csv', size: 3, path: '/mnt/user-data/uploads/a.csv' }] },
        },
      ]);
      expect([...scene.server.uploads]).toEqual([[`ann/${run.run.threadId}/a.csv`, 'a,b']]);
      run.say('Seen.');
      run.end();
      await scene.settle();
      const answer = [...scene.adapter.shown.values()].slice(1).join('\n');
      for (const name of ['grown.bin', 'huge.zip', 'lost.txt', '../evil'])
        expect(answer).toContain(`${name} was not taken`);
      expect(answer).toContain('Seen.');
    },
  );

  test(
    'presented files of the outputs go out, and nothing else; what the messenger does not take is named',
    verifies('API-14'),
    async () => {
      await connected();
      await scene.say('go');
      const run = only();
      const at = `ann/${run.run.threadId}`;
      scene.server.outputs.set(`${at}/mnt/user-data/outputs/a.txt`, 'content');
      scene.server.outputs.set(`${at}/mnt/user-data/outputs/big.bin`, 'x'.repeat(1_001));
      scene.server.outputs.set(`${at}/mnt/user-data/uploads/private.txt`, 'private');
      run.say('Here.');
      run.end('success', {}, [
        '/mnt/user-data/outputs/a.txt',
        '/mnt/user-data/uploads/private.txt',
        '/mnt/user-data/outputs/big.bin',
        '/mnt/user-data/outputs/gone.txt',
      ]);
      await scene.settle();
      expect(scene.adapter.log.slice(1)).toEqual([
        'edit 2: Here.',
        'file a.txt: content',
        `send 3: ${TEXTS.filesKept(['big.bin'])}`,
        `send 4: ${TEXTS.filesKept(['gone.txt'])}`,
      ]);
    },
  );
});

describe('what goes wrong', () => {
  test(
    'a message that is delivered twice makes one run; one that failed is tried when it comes again',
    verifies('API-14'),
    async () => {
      await connected();
      const message = scene.message('go');
      await scene.adapter.deliver(message);
      await scene.adapter.deliver(message, message);
      await scene.settle();
      only().end('error', { error: 'No.' });
      await scene.settle();
      await scene.adapter.deliver(message);
      await scene.settle();
      expect(scene.server.runs).toHaveLength(2);
      scene.server.runs[1]?.end();
      await scene.settle();
      await scene.adapter.deliver(message);
      await scene.settle();
      expect(scene.server.runs).toHaveLength(2);
    },
  );

  test('an answer of a run that ended while nobody was there goes out once, into the message that is there', async () => {
    const first = await connected();
    await scene.say('go');
    const run = only();
    const stopping = first.stop();
    await scene.surroundings.clock.advance(5_000);
    await stopping;
    run.say('Ready.');
    run.end();
    await started();
    expect(scene.adapter.log).toEqual([`send 2: ${TEXTS.working}`, 'edit 2: Ready.']);
    const again = scene.services.at(-1)?.stop();
    await scene.surroundings.clock.advance(5_000);
    await again;
    await started();
    expect(scene.adapter.log).toHaveLength(2);
    expect(scene.server.runs).toHaveLength(1);
  });

  test('a process that dies in the middle of an answer: what went out for sure does not go out again', async () => {
    await connected();
    await scene.say('go');
    const run = only();
    run.say('y'.repeat(1_050));
    const held = deferred();
    // The second piece is on its way when the process is killed.
    scene.adapter.before = (act) => (act.startsWith('send y') ? held.promise : undefined);
    run.end();
    await scene.settle();
    // The next process has the same name, so that it need not wait for the lease; the first one is no longer heard.
    const next = new FakeAdapter();
    await started({ adapter: next });
    expect(next.log).toEqual([`send 1: ${'y'.repeat(500)}`, `send 2: ${'y'.repeat(50)}`]);
    held.resolve();
    await scene.settle();
    // It may finish what it had begun, and nothing more: the database refuses it.
    expect(scene.adapter.log.filter((line) => line.includes('y'.repeat(50)))).toEqual([
      `edit 2: ${'y'.repeat(500)}`,
      `send 3: ${'y'.repeat(500)}`,
    ]);
  });

  test('a messenger that is away is tried again, later and later; one that refuses is not', async () => {
    await connected();
    await scene.say('go');
    let tries = 0;
    scene.adapter.before = (act) => {
      if (!act.startsWith('edit')) return;
      tries += 1;
      throw new ChannelError('unreachable', 'Away.');
    };
    only().say('Ready.');
    only().end();
    await scene.settle();
    await scene.surroundings.clock.advance(1_000);
    await scene.surroundings.clock.advance(2_000);
    expect(tries).toBe(3);
    await scene.surroundings.clock.advance(3_999);
    expect(tries).toBe(3);
    scene.adapter.before = () => {};
    await scene.surroundings.clock.advance(1);
    expect(scene.adapter.log.at(-1)).toBe('edit 2: Ready.');

    await scene.say('more');
    scene.adapter.before = (act) => {
      if (!act.startsWith('edit')) return;
      tries += 1;
      throw new ChannelError('refused', 'Blocked.');
    };
    scene.server.runs[1]?.end();
    await scene.surroundings.clock.advance(600_000);
    expect(tries).toBe(4);
  });

  test('what is too much for the server is said, what it cannot tell now is tried again', async () => {
    await connected();
    scene.server.refusal = () => {
      throw new ReindeerError('over_capacity', 'Full.', { retryable: true });
    };
    await scene.say('go');
    expect(scene.adapter.log.at(-1)).toContain(TEXTS.full);
    scene.server.refusal = () => {
      throw new ReindeerError('store_unavailable', 'Away.', { retryable: true });
    };
    await scene.say('again');
    expect(scene.server.runs).toEqual([]);
    scene.server.refusal = null;
    await scene.surroundings.clock.advance(1_000);
    expect(only().text).toBe('again');
    only().end();
    await scene.settle();
  });

  test('a message to which something unforeseen happens is answered, and the next one is worked on', async () => {
    await connected();
    scene.server.refusal = () => {
      throw new TypeError('a fault');
    };
    await scene.say('go');
    expect(scene.adapter.log.at(-1)).toContain(TEXTS.failed(null));
    scene.server.refusal = null;
    await scene.say('again');
    expect(only().text).toBe('again');
    only().end();
    await scene.settle();
  });

  test('past the bound nothing is taken from the messenger until there is room', async () => {
    await connected({ settings: { maxQueued: 2, maxConcurrent: 1 } });
    await scene.say('one', { chatId: 'a' });
    await scene.say('two', { chatId: 'b' });
    let kept = false;
    void scene.adapter.deliver(scene.message('three', { chatId: 'c' })).then(() => {
      kept = true;
    });
    await scene.surroundings.clock.advance(10_000);
    expect(kept).toBe(false);
    // One worker: the second waits for the end of the first.
    expect(scene.server.runs.map((run) => run.text)).toEqual(['one']);
    only().end();
    await scene.surroundings.clock.advance(1_000);
    expect(kept).toBe(true);
    expect(scene.server.runs.map((run) => run.text)).toEqual(['one', 'two']);
    for (const run of scene.server.runs) run.end();
    await scene.settle();
    scene.server.runs.at(-1)?.end();
    await scene.settle();
    expect(scene.server.runs.map((run) => run.text)).toEqual(['one', 'two', 'three']);
  });
});

describe('one holder', () => {
  test('of two processes one listens; the other takes over when it gives up, or is gone for long enough', async () => {
    const other = new FakeAdapter();
    const first = await connected();
    const second = await started({ owner: 'two', adapter: other });
    expect([scene.adapter.listening, other.listening]).toEqual([1, 0]);
    expect((await second.views())[0]?.status.state).toBe('standby');
    await scene.surroundings.clock.advance(300_000);
    expect([scene.adapter.listening, other.listening]).toEqual([1, 0]);
    const stopping = first.stop();
    await scene.surroundings.clock.advance(10_000);
    await stopping;
    expect([scene.adapter.listening, other.listening]).toEqual([0, 1]);
  });

  const takeAway = async (): Promise<void> => {
    const { clock } = scene.surroundings;
    await scene.surroundings.clock.advance(0);
    const lease = scene.database.channels.leases.get('telegram:1');
    if (lease === undefined) throw new Error('Nobody has the channel.');
    Object.assign(lease, { owner: 'two', token: 'theirs', expiresAt: clock.now() + 300_000 });
  };

  test('one whose right was taken over learns it at the next confirmation and is silent; its run goes on', async () => {
    const service = await connected();
    await scene.say('go');
    await takeAway();
    await scene.surroundings.clock.advance(10_000);
    expect((await service.views())[0]?.status.state).toBe('standby');
    only().say('Ready.');
    only().end();
    await scene.surroundings.clock.advance(10_000);
    expect(scene.adapter.log).toEqual([`send 2: ${TEXTS.working}`]);
    expect(scene.adapter.listening).toBe(0);
  });

  test('one that cannot ask for so long stops by itself, before another one can have it', async () => {
    const service = await connected();
    await scene.say('go');
    scene.storeAway = true;
    await scene.surroundings.clock.advance(29_999);
    expect(scene.adapter.listening).toBe(1);
    await scene.surroundings.clock.advance(10_001);
    expect(scene.adapter.listening).toBe(0);
    only().say('Ready.');
    only().end();
    await scene.settle();
    expect(scene.adapter.log).toEqual([`send 2: ${TEXTS.working}`]);
    scene.storeAway = false;
    await scene.surroundings.clock.advance(60_000);
    expect((await service.views())[0]?.status.state).toBe('running');
    expect(scene.adapter.log.slice(1)).toEqual(['edit 2: Ready.']);
  });

  test('a process that was stopped in the middle of sending looks at its right before it sends again', async () => {
    await connected();
    await scene.say('go');
    // The edit takes so long that the right is over, and finds its message gone: a new one would be sent.
    scene.adapter.before = (act) => {
      if (act !== 'edit Ready.') return;
      scene.adapter.shown.clear();
      scene.surroundings.clock.skip(60_000);
    };
    only().say('Ready.');
    only().end();
    for (let turn = 0; turn < 50; turn += 1) await Promise.resolve();
    await new Promise<void>((resolve) => setImmediate(resolve));
    expect(scene.adapter.log).toEqual([`send 2: ${TEXTS.working}`]);
  });

  test('a process that was stopped for so long that another one has the channel says nothing when it wakes', async () => {
    await connected();
    await scene.say('go');
    scene.surroundings.clock.skip(60_000);
    const lease = scene.database.channels.leases.get('telegram:1');
    Object.assign(lease ?? {}, { owner: 'two', token: 'theirs', expiresAt: scene.surroundings.clock.now() + 300_000 });
    only().say('Ready.');
    only().end();
    await scene.settle();
    await scene.surroundings.clock.advance(10_000);
    expect(scene.adapter.log).toEqual([`send 2: ${TEXTS.working}`]);
  });
});

describe('start and stop', () => {
  test('a messenger that cannot be listened to is told, and tried again; what fails here names no file', async () => {
    let failure: Error | null = new ChannelError('unreachable', 'Away.');
    scene.adapter.before = (act) => {
      if (act === 'listen' && failure !== null) throw failure;
    };
    const service = await started();
    const status = async () => (await service.views())[0]?.status;
    expect(await status()).toMatchObject({ state: 'failing', reason: 'Away.' });
    failure = new Error('ENOENT /home/operator/secret');
    await scene.surroundings.clock.advance(1_000);
    expect((await status())?.reason).not.toContain('operator');
    failure = null;
    await scene.surroundings.clock.advance(2_000);
    await scene.adapter.deliver();
    expect(await status()).toMatchObject({ state: 'running', reason: null });
  });

  test('what is not configured is not connected; wrong credentials are told, and new ones tried at once', async () => {
    let stored: Readonly<Record<string, string>> | null = null;
    const credentials = {
      read: async () => stored,
      write: async (_provider: string, values: Readonly<Record<string, string>> | null) => {
        stored = values;
      },
    };
    const asked: string[] = [];
    scene.adapter.before = (act) => {
      asked.push(act);
      if (stored?.bot_token === '1:wrong') throw new ChannelError('unauthorized', 'Wrong token.');
    };
    const service = await started({ configured: {}, credentials });
    await scene.surroundings.clock.advance(600_000);
    expect(asked).toEqual([]);
    expect(await service.views()).toMatchObject([{ enabled: false, configured: false, status: { state: 'off' } }]);
    await expect(service.connect('ann', 'telegram')).rejects.toMatchObject({ code: 'conflict' });
    await service.configure('telegram', { bot_token: '1:wrong' });
    await scene.settle();
    expect((await service.views())[0]?.status).toMatchObject({ state: 'failing', reason: 'Wrong token.' });
    await service.configure('telegram', { bot_token: '1:right' });
    await scene.settle();
    expect((await service.views())[0]?.status).toMatchObject({ state: 'running', username: 'our_bot' });
    await service.forget('telegram');
    await scene.settle();
    expect((await service.views())[0]?.status.state).toBe('off');
    expect(scene.adapter.listening).toBe(0);
  });

  test('a stored secret is shown as a mask, and the mask keeps it', verifies('SEC-05'), async () => {
    let stored: Readonly<Record<string, string>> | null = null;
    const credentials = {
      read: async () => stored,
      write: async (_provider: string, values: Readonly<Record<string, string>> | null) => {
        stored = values;
      },
    };
    const service = await started({ credentials });
    expect((await service.views())[0]?.values).toEqual({ bot_token: CREDENTIAL_MASK });
    await service.configure('telegram', { bot_token: CREDENTIAL_MASK, bot_username: 'my_bot' });
    expect(stored).toEqual({ bot_token: '1:secret', bot_username: 'my_bot' });
    expect(JSON.stringify(await service.views())).not.toContain('1:secret');
    const bare = await started({ configured: {}, owner: 'two' });
    for (const values of [{ bot_token: CREDENTIAL_MASK }, { bot_token: '' }, { colour: 'red' }, { bot_token: 'a b' }])
      await expect(bare.configure('telegram', values)).rejects.toMatchObject({ code: 'validation_failed' });
  });

  test(
    'from the first step of the stop on no run is made; what is being sent has its time',
    verifies('GW-20'),
    async () => {
      const service = await connected();
      await scene.say('go');
      const held = deferred();
      scene.adapter.before = (act) => (act.startsWith('edit') ? held.promise : undefined);
      only().say('Ready.');
      only().end();
      await scene.settle();
      service.refuse();
      await expect(scene.adapter.deliver(scene.message('late'))).rejects.toThrow();
      await scene.settle();
      const stopping = service.stop();
      await scene.surroundings.clock.advance(2_000);
      held.resolve();
      await scene.settle();
      await stopping;
      expect(scene.adapter.log.at(-1)).toBe('edit 2: Ready.');
      expect(scene.server.runs).toHaveLength(1);
      expect(
        await scene.stores().channels.due({ channel: 'telegram:1', limit: 9, now: Number.MAX_SAFE_INTEGER }),
      ).toEqual([]);
    },
  );

  test('a messenger that hangs does not hold up the stop', async () => {
    const service = await connected();
    await scene.say('go');
    scene.adapter.before = (act) => (act.startsWith('edit') ? new Promise<void>(() => {}) : undefined);
    only().say('Ready.');
    only().end();
    await scene.settle();
    let over = false;
    void service.stop().then(() => {
      over = true;
    });
    await scene.surroundings.clock.advance(2_999);
    expect(over).toBe(false);
    await scene.surroundings.clock.advance(2_001);
    expect(over).toBe(true);
  });
});
