import { describe, expect, test } from 'vitest';
import type { Api, JoinRun, RunEntry, StartRun, StreamPart, ThreadState } from '../api/api.ts';
import { ApiError } from '../api/trouble.ts';
import { ChatController } from './controller.ts';
import { allMessages } from './state.ts';

const human = (id: string, text: string) => ({ type: 'human', id, content: text });
const ai = (id: string, text: string) => ({ type: 'ai', id, content: text });
const chunk = (id: string, text: string, event: string): StreamPart => ({
  id: event,
  event: 'messages',
  data: [{ type: 'AIMessageChunk', id, content: text }, {}],
});
const state = (messages: object[], extra: Partial<ThreadState> = {}): ThreadState => ({
  values: { messages },
  next: [],
  interrupts: [],
  ...extra,
});

/** A server of one thread, played by the test. */
class FakeApi {
  readonly log: string[] = [];
  readonly starts: StartRun[] = [];
  readonly joins: JoinRun[] = [];
  current: ThreadState | null = state([]);
  runEntry: RunEntry | null = null;
  start: (input: StartRun) => AsyncIterable<StreamPart> = () => stream();
  join: (input: JoinRun) => AsyncIterable<StreamPart> = () => stream();
  stopping: Promise<{ stopped: boolean; stillRunning: string[] }> = Promise.resolve({
    stopped: true,
    stillRunning: [],
  });

  api(): Api {
    const refuse = () => Promise.reject(new Error('not part of this test'));
    return {
      searchThreads: refuse,
      findInChats: refuse,
      renameThread: refuse,
      pinThread: refuse,
      deleteThread: refuse,
      models: refuse,
      features: refuse,
      rest: { request: refuse, get: refuse, send: refuse, events: () => stream() as never },
      uploadLimits: refuse,
      upload: refuse,
      file: refuse,
      createThread: async () => {
        this.log.push('create');
      },
      state: async () => {
        this.log.push('state');
        return this.current;
      },
      newestRun: async () => {
        this.log.push('newest');
        return this.runEntry;
      },
      run: async () => this.runEntry,
      startRun: (input) => {
        this.log.push('start');
        this.starts.push(input);
        return this.start(input);
      },
      joinRun: (input) => {
        this.log.push(`join ${input.lastEventId}`);
        this.joins.push(input);
        return this.join(input);
      },
      stopRun: async (_threadId, runId) => {
        this.log.push(`stop ${runId}`);
        return this.stopping;
      },
    };
  }
}

async function* stream(...parts: (StreamPart | Error | Promise<unknown>)[]): AsyncGenerator<StreamPart> {
  for (const part of parts) {
    if (part instanceof Error) throw part;
    if (part instanceof Promise) await part;
    else yield part;
  }
}

function open(fake: FakeApi, exists = true) {
  const kept = new Map<string, string>();
  let ids = 0;
  const controller = new ChatController('t', exists, {
    api: fake.api(),
    storage: {
      getItem: (key) => kept.get(key) ?? null,
      setItem: (key, value) => kept.set(key, value),
      removeItem: (key) => kept.delete(key),
    },
    newId: () => `id-${++ids}`,
    model: () => 'demo',
    schedule: (paint) => paint(),
    sleep: () => Promise.resolve(),
    onThreadChanged: () => {},
  });
  const texts = () => allMessages(controller.snapshot()).map((message) => `${message.kind}:${message.text}`);
  return { controller, kept, texts };
}

describe('sending', () => {
  test('a new chat creates its thread first, and reads nothing before its run', async () => {
    const fake = new FakeApi();
    fake.start = (input) => {
      input.onRun('r1');
      fake.runEntry = { runId: 'r1', status: 'success', error: null };
      fake.current = state([human('id-1', 'hi'), ai('a', 'Hello')]);
      return stream(chunk('a', 'Hel', 'e-1.1'), chunk('a', 'lo', 'e-1.2'));
    };
    const { controller, texts, kept } = open(fake, false);
    expect(await controller.send('hi', [])).toBe(true);
    await controller.idle();
    expect(fake.log).toEqual(['create', 'start', 'state']);
    expect(fake.starts[0]).toMatchObject({
      threadId: 't',
      model: 'demo',
      input: { messages: [{ type: 'human', content: 'hi', id: 'id-1' }] },
    });
    expect(texts()).toEqual(['human:hi', 'ai:Hello']);
    expect(controller.snapshot()).toMatchObject({ run: null, ended: { how: 'success' } });
    expect([...kept]).toEqual([]);
  });

  test('attached files go with the message', async () => {
    const fake = new FakeApi();
    fake.start = (input) => {
      input.onRun('r1');
      return stream();
    };
    const { controller } = open(fake);
    await controller.send('look', [{ name: 'a.txt', path: '/mnt/user-data/uploads/a.txt', size: 3 }]);
    await controller.idle();
    expect(fake.starts[0]?.input).toMatchObject({
      messages: [
        {
          additional_kwargs: {
            files: [{ filename: 'a.txt', size: 3, path: '/mnt/user-data/uploads/a.txt', status: 'uploaded' }],
          },
        },
      ],
    });
  });

  test('a busy thread gives the text back and shows the run that holds it', async () => {
    const fake = new FakeApi();
    const joined = Promise.withResolvers<void>();
    const hold = Promise.withResolvers<void>();
    fake.start = () => stream(new ApiError(409, { kind: 'busy', detail: 'busy with run r0' }));
    fake.join = () => {
      joined.resolve();
      return stream(hold.promise);
    };
    fake.runEntry = { runId: 'r0', status: 'running', error: null };
    fake.current = state([human('x', 'other')]);
    const { controller, texts } = open(fake);
    expect(await controller.send('mine', [])).toBe(false);
    await joined.promise;
    expect(texts()).toEqual(['human:other']);
    expect(controller.snapshot().run).toEqual({ id: 'r0', phase: 'running' });
    hold.resolve();
    await controller.idle();
  });

  test('a server that is not there gives the text back and says so', async () => {
    const fake = new FakeApi();
    fake.start = () => stream(new TypeError('Failed to fetch'));
    const { controller, texts } = open(fake);
    expect(await controller.send('hi', [])).toBe(false);
    expect(texts()).toEqual([]);
    expect(controller.snapshot().ended?.trouble?.kind).toBe('network');
  });

  test('a second message while a run is at work is not sent', async () => {
    const fake = new FakeApi();
    const hold = Promise.withResolvers<void>();
    fake.start = (input) => {
      input.onRun('r1');
      return stream(hold.promise);
    };
    const { controller } = open(fake);
    await controller.send('one', []);
    expect(await controller.send('two', [])).toBe(false);
    expect(fake.starts).toHaveLength(1);
    hold.resolve();
    await controller.idle();
  });
});

describe('following', () => {
  test('after a reload the run that is at work is joined after the last event that was seen', async () => {
    const fake = new FakeApi();
    fake.runEntry = { runId: 'r1', status: 'running', error: null };
    fake.current = state([human('h', 'hi')]);
    fake.join = () => {
      fake.runEntry = { runId: 'r1', status: 'success', error: null };
      fake.current = state([human('h', 'hi'), ai('a', 'Hello')]);
      return stream(chunk('a', 'Hello', 'e-9'));
    };
    const { controller, kept, texts } = open(fake);
    kept.set('reindeer.event.r1', 'e-7.12');
    await controller.open();
    await controller.idle();
    expect(fake.log).toEqual(['newest', 'state', 'join e-7', 'state']);
    expect(texts()).toEqual(['human:hi', 'ai:Hello']);
  });

  test('a finished run is not joined; a failed one says why', async () => {
    const fake = new FakeApi();
    fake.runEntry = { runId: 'r1', status: 'error', error: 'no key' };
    const { controller } = open(fake);
    await controller.open();
    expect(fake.joins).toEqual([]);
    expect(controller.snapshot().ended).toEqual({ how: 'failed', trouble: { kind: 'model', detail: 'no key' } });
  });

  test('a broken stream is joined again where it broke, and nothing is doubled', async () => {
    const fake = new FakeApi();
    fake.runEntry = { runId: 'r1', status: 'running', error: null };
    let tries = 0;
    fake.start = (input) => {
      input.onRun('r1');
      return stream(chunk('a', 'Hel', 'e-1.1'), new Error('terminated'));
    };
    fake.join = () => {
      tries += 1;
      if (tries === 1) return stream(new Error('refused'));
      fake.runEntry = { runId: 'r1', status: 'success', error: null };
      fake.current = state([human('id-1', 'hi'), ai('a', 'Hello')]);
      return stream(chunk('a', 'lo', 'e-1.2'));
    };
    const { controller, texts } = open(fake);
    await controller.send('hi', []);
    await controller.idle();
    expect(fake.joins.map((join) => join.lastEventId)).toEqual(['e-1.1', 'e-1.1']);
    expect(texts()).toEqual(['human:hi', 'ai:Hello']);
  });

  test('gives up in the end and says that the run may go on', async () => {
    const fake = new FakeApi();
    fake.runEntry = { runId: 'r1', status: 'running', error: null };
    fake.start = (input) => {
      input.onRun('r1');
      return stream(new Error('terminated'));
    };
    fake.join = () => stream(new TypeError('Failed to fetch'));
    const { controller } = open(fake);
    await controller.send('hi', []);
    await controller.idle();
    expect(fake.joins).toHaveLength(5);
    expect(controller.snapshot().ended).toEqual({ how: 'lost', trouble: { kind: 'network', detail: null } });
  });

  test('a gap reads the state again and goes on', async () => {
    const fake = new FakeApi();
    fake.start = (input) => {
      input.onRun('r1');
      fake.runEntry = { runId: 'r1', status: 'success', error: null };
      fake.current = state([human('id-1', 'hi'), ai('a', 'whole')]);
      return stream({ event: 'gap', data: {} });
    };
    const { controller, texts } = open(fake);
    await controller.send('hi', []);
    await controller.idle();
    expect(fake.log.filter((entry) => entry === 'state')).toHaveLength(2);
    expect(texts()).toEqual(['human:hi', 'ai:whole']);
  });
});

describe('stopping', () => {
  test('shows "stopping" until the server says that everything has stopped', async () => {
    const fake = new FakeApi();
    const stopped = Promise.withResolvers<{ stopped: boolean; stillRunning: string[] }>();
    const end = Promise.withResolvers<void>();
    fake.stopping = stopped.promise;
    fake.start = (input) => {
      input.onRun('r1');
      return stream(end.promise);
    };
    const { controller } = open(fake);
    await controller.send('hi', []);
    const stop = controller.stop();
    expect(controller.snapshot().run?.phase).toBe('stopping');
    fake.runEntry = { runId: 'r1', status: 'interrupted', error: null };
    end.resolve();
    // The stream is over, the effects are not.
    await Promise.resolve();
    expect(controller.snapshot().run?.phase).toBe('stopping');
    stopped.resolve({ stopped: true, stillRunning: [] });
    await stop;
    await controller.idle();
    expect(controller.snapshot()).toMatchObject({ run: null, ended: { how: 'stopped' } });
    expect(fake.log).toContain('stop r1');
  });

  test('waits for the name of the run', async () => {
    const fake = new FakeApi();
    const name = Promise.withResolvers<void>();
    fake.start = (input) => {
      fake.runEntry = { runId: 'r1', status: 'interrupted', error: null };
      return stream(name.promise.then(() => input.onRun('r1')));
    };
    const { controller } = open(fake);
    const sending = controller.send('hi', []);
    await controller.stop();
    expect(fake.log).not.toContain('stop r1');
    name.resolve();
    await sending;
    await controller.idle();
    expect(fake.log).toContain('stop r1');
    expect(controller.snapshot().ended?.how).toBe('stopped');
  });

  test('a stop that cannot be delivered says so, and may be tried again', async () => {
    const fake = new FakeApi();
    const end = Promise.withResolvers<void>();
    fake.stopping = Promise.reject(new TypeError('Failed to fetch'));
    fake.start = (input) => {
      input.onRun('r1');
      return stream(end.promise);
    };
    const { controller } = open(fake);
    await controller.send('hi', []);
    await controller.stop();
    expect(controller.snapshot()).toMatchObject({ run: { phase: 'running' }, stopTrouble: { kind: 'network' } });
    end.resolve();
    await controller.idle();
  });

  test('says when something still runs after the patience of the server', async () => {
    const fake = new FakeApi();
    const end = Promise.withResolvers<void>();
    fake.stopping = Promise.resolve({ stopped: false, stillRunning: ['bash'] });
    fake.start = (input) => {
      input.onRun('r1');
      return stream(end.promise);
    };
    const { controller } = open(fake);
    await controller.send('hi', []);
    await controller.stop();
    fake.runEntry = { runId: 'r1', status: 'interrupted', error: null };
    end.resolve();
    await controller.idle();
    expect(controller.snapshot().ended?.how).toBe('stop-slow');
  });
});

test('an interrupt is no stop, and is answered by a resume', async () => {
  const fake = new FakeApi();
  fake.runEntry = { runId: 'r1', status: 'interrupted', error: null };
  fake.current = state([human('h', 'hi')], { interrupts: [{ id: 'i', value: 'Sure?' }], next: ['review'] });
  fake.start = (input) => {
    input.onRun('r2');
    fake.runEntry = { runId: 'r2', status: 'success', error: null };
    fake.current = state([human('h', 'hi'), ai('a', 'done')]);
    return stream();
  };
  const { controller } = open(fake);
  await controller.open();
  expect(controller.snapshot()).toMatchObject({ ended: null, interrupts: [{ id: 'i', value: 'Sure?' }] });
  await controller.resume(['yes']);
  await controller.idle();
  expect(fake.starts[0]).toMatchObject({ input: null, resume: 'yes' });
  expect(controller.snapshot().interrupts).toEqual([]);
});

test('a closed chat is silent and lets its run go on', async () => {
  const fake = new FakeApi();
  const hold = Promise.withResolvers<void>();
  fake.start = (input) => {
    input.onRun('r1');
    return stream(hold.promise);
  };
  const { controller } = open(fake);
  await controller.send('hi', []);
  let painted = 0;
  controller.subscribe(() => {
    painted += 1;
  });
  controller.close();
  expect(fake.starts[0]?.signal.aborted).toBe(true);
  hold.resolve();
  await controller.idle();
  expect(painted).toBe(0);
  expect(fake.log.some((entry) => entry.startsWith('stop'))).toBe(false);
});

test('a chat that was closed can be opened again', async () => {
  const fake = new FakeApi();
  fake.current = state([human('h', 'hi')]);
  const { controller, texts } = open(fake);
  const first = controller.open();
  controller.close();
  await Promise.all([first, controller.open()]);
  expect(texts()).toEqual(['human:hi']);
  fake.start = (input) => {
    input.onRun('r1');
    fake.runEntry = { runId: 'r1', status: 'success', error: null };
    return stream();
  };
  expect(await controller.send('more', [])).toBe(true);
  await controller.idle();
  expect(controller.snapshot().ended?.how).toBe('success');
});

test('decisions that do not reach the server are asked for still', async () => {
  const fake = new FakeApi();
  const interrupts = [{ id: 'i1', value: { actionRequests: [{ name: 'bash', args: {} }] } }];
  fake.current = state([human('h', 'hi')], { next: ['review'], interrupts });
  fake.runEntry = { runId: 'r0', status: 'interrupted', error: null };
  const { controller } = open(fake);
  await controller.open();
  fake.start = () => stream(new TypeError('Failed to fetch'));
  expect(await controller.resume([[{ type: 'approve' }]])).toBe(false);
  await controller.idle();
  expect(controller.snapshot()).toMatchObject({ ended: { how: 'refused' }, interrupts: [{ id: 'i1' }] });
});
