import type { ChannelFile, ChannelMessage, Surroundings } from '@reindeer/protocol';
import { type ChannelAdapter, ChannelError, type OutgoingFile, type Sink, type Target } from '../adapter.ts';
import { TelegramApi } from './api.ts';
import { type Bot, messageOf } from './updates.ts';

const POLL_SECONDS = 25;
const POLL_MS = (POLL_SECONDS + 15) * 1_000;
/** An empty answer that comes sooner is no long poll. */
const HASTY_MS = 1_000;
const MEGABYTE = 1_000_000;
const PHOTO = { pattern: /\.(?:jpe?g|png|webp)$/i, most: 10 * MEGABYTE };
const DOCUMENT = 50 * MEGABYTE;

/**
 * A Telegram bot, by long polling. Telegram forgets updates when the next ones are asked for with a number behind them, and they are asked for when the
 * sink has kept the ones before: nothing is lost, and what comes twice is known by its id.
 */
export class TelegramAdapter implements ChannelAdapter {
  readonly textLimit = 4_096;
  readonly inboundLimit = 20 * MEGABYTE;
  readonly #api: TelegramApi;
  readonly #surroundings: Surroundings;
  #bot: Bot | null = null;

  constructor(options: {
    readonly credentials: Readonly<Record<string, string>>;
    readonly apiUrl: string | null;
    readonly surroundings: Surroundings;
  }) {
    this.#api = new TelegramApi({ token: options.credentials.bot_token ?? '', apiUrl: options.apiUrl });
    this.#surroundings = options.surroundings;
  }

  editGapMs(group: boolean): number {
    return group ? 3_000 : 1_000;
  }

  async identify(signal: AbortSignal) {
    const me = await this.#api.call('getMe', {}, signal);
    const { id, username } = (me ?? {}) as { readonly id?: unknown; readonly username?: unknown };
    if (typeof id !== 'number') throw new ChannelError('unreachable', 'Telegram did not say who the bot is.');
    this.#bot = { id: String(id), username: typeof username === 'string' ? username : null };
    return { accountId: this.#bot.id, username: this.#bot.username };
  }

  async listen(sink: Sink, signal: AbortSignal): Promise<void> {
    const bot = this.#bot;
    if (bot === null) throw new ChannelError('unreachable', 'It is not known yet who the bot is.');
    const { clock } = this.#surroundings;
    let offset: number | null = null;
    while (!signal.aborted) {
      const asked = clock.monotonic();
      // Without a number Telegram begins with what it still has. So the number is given only to have it forget what was just kept: after a
      // week of silence it counts from somewhere else, and a number of before would hide what comes.
      const updates = await this.#api.call(
        'getUpdates',
        { ...(offset === null ? {} : { offset }), timeout: POLL_SECONDS, limit: 100, allowed_updates: ['message'] },
        signal,
        POLL_MS,
      );
      if (!Array.isArray(updates)) throw new ChannelError('unreachable', 'Telegram answered no updates.');
      offset = null;
      const messages: ChannelMessage[] = [];
      for (const update of updates) {
        const number = (update as { readonly update_id?: unknown } | null)?.update_id;
        if (typeof number !== 'number' || !Number.isSafeInteger(number))
          throw new ChannelError('unreachable', 'Telegram answered updates without numbers.');
        offset = Math.max(offset ?? 0, number + 1);
        const message = messageOf(update, bot);
        if (message !== null) messages.push(message);
      }
      await sink(messages);
      // Whoever answers for Telegram without waiting must not keep this process busy.
      if (updates.length === 0 && clock.monotonic() - asked < HASTY_MS) await clock.sleep(HASTY_MS, signal);
    }
  }

  async send(target: Target, text: string, signal: AbortSignal): Promise<string> {
    const sent = await this.#api.call('sendMessage', { ...addressOf(target), text, ...PLAIN }, signal);
    const id = (sent as { readonly message_id?: unknown } | null)?.message_id;
    if (typeof id !== 'number') throw new ChannelError('unreachable', 'Telegram did not say which message it sent.');
    return String(id);
  }

  async edit(target: Target, messageId: string, text: string, signal: AbortSignal): Promise<'edited' | 'gone'> {
    try {
      await this.#api.call(
        'editMessageText',
        { chat_id: target.chatId, message_id: Number(messageId), text, ...PLAIN },
        signal,
      );
      return 'edited';
    } catch (error) {
      if (!(error instanceof ChannelError) || error.failure !== 'refused') throw error;
      if (/message is not modified/i.test(error.message)) return 'edited';
      if (
        /message (?:to edit not found|can't be edited|identifier is not specified)|MESSAGE_ID_INVALID/i.test(
          error.message,
        )
      )
        return 'gone';
      throw error;
    }
  }

  async sendFile(target: Target, file: OutgoingFile, signal: AbortSignal): Promise<'sent' | 'too_large'> {
    if (file.size > DOCUMENT) return 'too_large';
    if (PHOTO.pattern.test(file.name) && file.size <= PHOTO.most) {
      try {
        await this.#upload('sendPhoto', 'photo', target, file, signal);
        return 'sent';
      } catch (error) {
        // A picture with odd measures is refused as a photo, and still is a file.
        if (!(error instanceof ChannelError) || error.failure !== 'refused') throw error;
        this.#surroundings.logger.debug('A picture goes as a file', { reason: error.message });
      }
    }
    await this.#upload('sendDocument', 'document', target, file, signal);
    return 'sent';
  }

  async #upload(method: string, field: string, target: Target, file: OutgoingFile, signal: AbortSignal) {
    const fields = Object.fromEntries(
      Object.entries(addressOf(target)).map(([name, value]) => [
        name,
        typeof value === 'string' ? value : JSON.stringify(value),
      ]),
    );
    await this.#api.upload(method, fields, { field, name: file.name, source: await file.open() }, signal);
  }

  async fetch(file: ChannelFile, signal: AbortSignal): Promise<AsyncIterable<Uint8Array>> {
    const found = await this.#api.call('getFile', { file_id: file.id }, signal);
    const path = (found as { readonly file_path?: unknown } | null)?.file_path;
    if (typeof path !== 'string' || path === '') throw new ChannelError('refused', 'Telegram has no such file.');
    return await this.#api.download(path, signal);
  }
}

/** What a model writes is text: nothing of it is read as markup, and no address in it is looked up. */
const PLAIN = { link_preview_options: { is_disabled: true } } as const;

const addressOf = ({ chatId, answerTo }: Target) => ({
  chat_id: chatId,
  ...(answerTo === null
    ? {}
    : { reply_parameters: { message_id: Number(answerTo), allow_sending_without_reply: true } }),
});
