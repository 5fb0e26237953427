import type { ChannelMessage } from '@reindeer/protocol';
import { testSurroundings, verifies, waitUntil } from '@reindeer/testkit';
import { afterAll, afterEach, beforeEach, describe, expect, test } from 'vitest';
import { bytes } from '../testing/scene.ts';
import { TelegramServer, TOKEN } from '../testing/telegram-server.ts';
import { TelegramAdapter } from './adapter.ts';
import { messageOf } from './updates.ts';

const BOT = { id: '42', username: 'Our_Bot' };
const ANN = { id: 7, first_name: 'Ann', username: 'ann', is_bot: false };
const read = (message: object) => messageOf({ update_id: 1, message }, BOT);
const inPrivate = (part: object) => ({
  message_id: 5,
  chat: { id: 7, type: 'private' },
  from: ANN,
  ...part,
});
const inGroup = (part: object, type = 'supergroup') => ({ message_id: 5, chat: { id: -9, type }, from: ANN, ...part });

describe('what an update says', () => {
  test('a private chat is one conversation', () => {
    expect(read(inPrivate({ text: 'hello', reply_to_message: { message_id: 3 } }))).toEqual({
      messageId: '7:5',
      chatId: '7',
      group: false,
      topic: '',
      workspaceId: '',
      senderId: '7',
      senderName: '@ann',
      text: 'hello',
      files: [],
      answerTo: null,
    });
  });

  test('in a group only what is said to the bot counts, without the mention; each chain of answers is a conversation', () => {
    expect(read(inGroup({ text: 'hello all' }))).toBeNull();
    expect(read(inGroup({ text: 'I like @our_bot' }))).toBeNull();
    expect(read(inGroup({ text: '/new@other_bot' }))).toBeNull();
    const told = (part: object, type?: string) => {
      const message = read(inGroup(part, type));
      return message === null ? null : [message.text, message.topic, message.answerTo];
    };
    expect(told({ text: '@our_bot  @OUR_BOT hello' })).toEqual(['hello', '5', '5']);
    expect(told({ text: '/new@Our_Bot' })).toEqual(['/new', '5', '5']);
    expect(told({ text: '@our_bot /goal@our_bot win' })).toEqual(['/goal win', '5', '5']);
    const toBot = { message_id: 3, from: { id: 42, is_bot: true } };
    expect(told({ text: 'and?', reply_to_message: toBot }, 'group')).toEqual(['and?', '3', '5']);
    expect(told({ text: 'and?', reply_to_message: toBot, message_thread_id: 1 })).toEqual(['and?', '1', '5']);
    // The topic of a forum is a place, and no conversation.
    expect(told({ text: '@our_bot hi', message_thread_id: 1, is_topic_message: true })).toEqual(['hi', '5', '5']);
    const toAnn = { message_id: 3, from: ANN };
    expect(told({ text: 'yes', reply_to_message: toAnn })).toBeNull();
  });

  test('a deep link is a command to connect', () => {
    expect(read(inPrivate({ text: '/start abcdefghijklmnopqrstuv' }))?.text).toBe('/connect abcdefghijklmnopqrstuv');
    expect(read(inPrivate({ text: '/start' }))?.text).toBe('/start');
  });

  test('files: the largest size of a photo, a document by its name', () => {
    const photo = [
      { file_id: 's', file_size: 10 },
      { file_id: 'l', file_size: 99 },
    ];
    expect(read(inPrivate({ caption: 'see', photo }))).toMatchObject({
      text: 'see',
      files: [{ id: 'l', name: 'photo_5.jpg', size: 99 }],
    });
    const document = { file_id: 'd', file_name: '../../etc/passwd', file_size: 3 };
    expect(read(inPrivate({ document }))?.files).toEqual([{ id: 'd', name: '../../etc/passwd', size: 3 }]);
    const voice = { file_id: 'v' };
    expect(read(inPrivate({ voice }))?.files).toEqual([{ id: 'v', name: 'voice_5.ogg', size: null }]);
  });

  test.each([
    [inPrivate({ text: '' })],
    [inPrivate({ text: 'x', from: { ...ANN, is_bot: true } })],
    [inPrivate({ text: 'x', from: undefined })],
    [inPrivate({ text: 'x', chat: { id: 1, type: 'channel' } })],
    [inPrivate({ text: 'x', message_id: 'x' })],
    [inPrivate({ text: ['x'] })],
  ])('%j is no message', (message) => {
    expect(read(message)).toBeNull();
  });
});

describe('the bot', () => {
  const server = new TelegramServer();
  let leaving: AbortController;
  let surroundings: ReturnType<typeof testSurroundings>;
  beforeEach(async () => {
    leaving = new AbortController();
    surroundings = testSurroundings();
    server.calls.length = 0;
    server.updates = [];
    server.answer = () => null;
    if (server.url === '') await server.start();
  });
  afterEach(() => leaving.abort());
  afterAll(() => server.stop());
  const until = (what: () => boolean) =>
    waitUntil(
      async () => what(),
      10_000,
      () => 'The bot does not get there.',
    );
  const open = (token = TOKEN) =>
    new TelegramAdapter({ credentials: { bot_token: token }, apiUrl: server.url, surroundings });
  const chat = { chatId: '7', group: false, answerTo: null };
  const listening = async (sink: (messages: readonly ChannelMessage[]) => Promise<void>) => {
    const bot = open();
    await bot.identify(leaving.signal);
    const over = bot.listen(sink, leaving.signal).catch((error: unknown) => error);
    return over;
  };

  test(
    'updates are forgotten by Telegram only when they are kept; a new start begins with what was not',
    verifies('API-14'),
    async () => {
      const heard: string[] = [];
      let broken = true;
      const sink = async (messages: readonly ChannelMessage[]) => {
        if (broken) throw new Error('The database is away.');
        heard.push(...messages.map(({ text }) => text));
      };
      server.push(inPrivate({ text: 'one' }));
      const first = await await listening(sink);
      expect(String(first)).toContain('database is away');
      expect(server.updates).toHaveLength(1);
      broken = false;
      server.push(inGroup({ text: 'not for us' }));
      const over = listening(sink);
      await until(() => server.ofMethod('getUpdates').length === 3);
      expect(heard).toEqual(['one']);
      expect(server.updates).toEqual([]);
      server.push(inPrivate({ text: 'two', message_id: 6 }));
      await until(() => heard.length === 2);
      await until(() => server.ofMethod('getUpdates').length === 4);
      leaving.abort();
      await over;
      expect(server.ofMethod('getUpdates').map(({ body }) => body.offset)).toEqual([
        undefined,
        undefined,
        9_003,
        9_002,
      ]);
    },
  );

  test('once all is confirmed no number is sent: Telegram counts from elsewhere after a long silence', async () => {
    server.push(inPrivate({ text: 'one' }));
    const over = listening(async () => {
      server.answer = ({ method }) =>
        method === 'getUpdates' ? { status: 200, body: { ok: true, result: [] } } : null;
    });
    await until(() => surroundings.clock.sleeping === 1);
    await surroundings.clock.advance(1_000);
    await until(() => server.ofMethod('getUpdates').length === 3);
    leaving.abort();
    await over;
    expect(server.ofMethod('getUpdates').map(({ body }) => body.offset)).toEqual([undefined, 9_002, undefined]);
  });

  test('an empty answer that comes at once does not keep the process busy', async () => {
    server.answer = ({ method }) => (method === 'getUpdates' ? { status: 200, body: { ok: true, result: [] } } : null);
    const over = listening(async () => {});
    await until(() => surroundings.clock.sleeping === 1);
    expect(server.ofMethod('getUpdates')).toHaveLength(1);
    leaving.abort();
    await over;
  });

  test('says, edits and answers in groups; the same text again is no error, a lost message is told', async () => {
    const bot = open();
    const id = await bot.send({ ...chat, group: true, answerTo: '5' }, 'hello', leaving.signal);
    expect(server.calls[0]?.body).toMatchObject({
      chat_id: '7',
      text: 'hello',
      reply_parameters: { message_id: 5, allow_sending_without_reply: true },
    });
    expect(server.calls[0]?.body.parse_mode).toBeUndefined();
    expect(await bot.edit(chat, id, 'hello!', leaving.signal)).toBe('edited');
    expect(server.calls[1]?.body).toMatchObject({ message_id: Number(id), text: 'hello!' });
    const refuse = (description: string) => {
      server.answer = () => ({ status: 400, body: { ok: false, error_code: 400, description } });
    };
    refuse('Bad Request: message is not modified: specified new message content …');
    expect(await bot.edit(chat, id, 'hello!', leaving.signal)).toBe('edited');
    refuse('Bad Request: message to edit not found');
    expect(await bot.edit(chat, id, 'hello!', leaving.signal)).toBe('gone');
    refuse('Bad Request: chat not found');
    await expect(bot.edit(chat, id, 'x', leaving.signal)).rejects.toMatchObject({ failure: 'refused' });
    expect([bot.editGapMs(false), bot.editGapMs(true), bot.textLimit]).toEqual([1_000, 3_000, 4_096]);
  });

  test.each([
    [429, { ok: false, description: 'Too Many Requests', parameters: { retry_after: 17 } }, 'limited', 17_000],
    [401, { ok: false, description: 'Unauthorized' }, 'unauthorized', null],
    [409, { ok: false, description: 'Conflict: terminated by other getUpdates request' }, 'taken', null],
    [502, 'Bad Gateway', 'unreachable', null],
    [403, { ok: false, description: 'Forbidden: bot was blocked by the user' }, 'refused', null],
    [200, { ok: false }, 'refused', null],
  ] as const)('%s is told as it is', async (status, body, failure, retryAfterMs) => {
    server.answer = () => ({ status, body });
    await expect(open().send(chat, 'x', leaving.signal)).rejects.toMatchObject({ failure, retryAfterMs });
  });

  test('the token is in no error, whatever fails', verifies('SEC-05'), async () => {
    const errors: unknown[] = [];
    const note = async (work: Promise<unknown>) => errors.push(await work.catch((error: unknown) => error));
    server.answer = () => ({ status: 400, body: { ok: false, description: `no such path /bot${TOKEN}/x` } });
    await note(open().send(chat, 'x', leaving.signal));
    server.answer = () => null;
    await note(open('42:another-token-that-is-wrong').identify(leaving.signal));
    expect(() => open('nonsense')).toThrow(/none/);
    const nowhere = new TelegramAdapter({
      credentials: { bot_token: TOKEN },
      apiUrl: 'http://127.0.0.1:1',
      surroundings,
    });
    await note(nowhere.identify(leaving.signal));
    await note(nowhere.fetch({ id: 'f', name: 'f', size: 1 }, leaving.signal));
    await note(open().fetch({ id: 'missing', name: 'f', size: 1 }, leaving.signal));
    expect(errors.map((error) => (error as { failure?: string }).failure)).toEqual([
      'refused',
      'unauthorized',
      'unreachable',
      'unreachable',
      'refused',
    ]);
    for (const error of errors) {
      const { message, stack, cause } = error as Error;
      expect(`${message}${stack}${String(cause)}`).not.toContain('Secret_1');
      expect(`${message}${stack}${String(cause)}`).not.toContain('another-token');
    }
  });

  test('files go as photos or documents, by their kind and size', verifies('API-14'), async () => {
    const bot = open();
    const file = (name: string, size: number) => ({ name, size, open: async () => bytes('content') });
    expect(await bot.sendFile(chat, file('a"b.png', 7), leaving.signal)).toBe('sent');
    expect(await bot.sendFile(chat, file('large.png', 10_000_001), leaving.signal)).toBe('sent');
    expect(await bot.sendFile(chat, file('a.pdf', 7), leaving.signal)).toBe('sent');
    expect(await bot.sendFile(chat, file('huge.pdf', 50_000_001), leaving.signal)).toBe('too_large');
    expect(server.calls.map(({ method }) => method)).toEqual(['sendPhoto', 'sendDocument', 'sendDocument']);
    expect(server.calls[0]?.raw).toMatch(
      /name="chat_id"\r\n\r\n7\r\n.*name="photo"; filename="a%22b\.png".*\r\n\r\ncontent\r\n--/s,
    );
    // A picture that is none goes as a file, from its beginning.
    server.answer = ({ method }) =>
      method === 'sendPhoto' ? { status: 400, body: { ok: false, description: 'PHOTO_INVALID_DIMENSIONS' } } : null;
    server.calls.length = 0;
    expect(await bot.sendFile(chat, file('long.jpg', 7), leaving.signal)).toBe('sent');
    expect(server.calls.map(({ method }) => method)).toEqual(['sendPhoto', 'sendDocument']);
    expect(server.calls[1]?.raw).toContain('content');
  });

  test('fetches what was sent', verifies('API-14'), async () => {
    server.files.set('documents/f 1', 'a,b');
    let text = '';
    for await (const chunk of await open().fetch({ id: 'f 1', name: 'a.csv', size: 3 }, leaving.signal))
      text += new TextDecoder().decode(chunk);
    expect(text).toBe('a,b');
  });
});
