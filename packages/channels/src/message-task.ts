import { createHash } from 'node:crypto';
import {
  type AdmissionResult,
  type ChannelEntry,
  type ChannelProgress,
  type ChannelStore,
  type ChannelWork,
  EMPTY_REQUEST,
  type JsonObject,
  newId,
  ReindeerError,
  type Run,
  type Surroundings,
  type WireMessage,
} from '@reindeer/protocol';
import { type ChannelAdapter, ChannelError, type Target } from './adapter.ts';
import { answerOf, isSaid, textOf, textReply } from './answer.ts';
import { connectCode, parseCommand, runCommand } from './commands.ts';
import type { Held } from './held.ts';
import { Lost } from './held.ts';
import type { ChannelHost, StoredUpload, ThreadAddress } from './host.ts';
import { LiveText } from './live-text.ts';
import { type ChannelSettings, type Provider, sessionOf } from './settings.ts';
import { beginning } from './split.ts';
import { TEXTS } from './texts.ts';

export interface TaskParts {
  readonly provider: Provider;
  readonly adapter: ChannelAdapter;
  readonly store: ChannelStore;
  readonly host: ChannelHost;
  readonly settings: ChannelSettings;
  readonly surroundings: Surroundings;
  readonly held: Held;
  /** Fires when the server stops: what waits for a run ends, what is being sent has some time. */
  readonly closing: AbortSignal;
}

/** Files of one message that are taken. */
const MOST_FILES = 10;
/** A message whose answer could not be sent for so long is given up. */
const GIVE_UP_MS = 24 * 60 * 60_000;
const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 60_000;
const CURSOR = ' ▌';
const ATTACHED = '(see the attached files)';
const HEARTBEAT_MS = 15_000;

const hashOf = (code: string): string => createHash('sha256').update(code).digest('hex');

/**
 * One message on its way: who sent it, what it asks, its run, its answer. Each step is written before the next one acts, so that a repeat of any step,
 * here or by the next holder, goes on where this one was.
 */
export class MessageTask {
  readonly #parts: TaskParts;
  readonly #entry: ChannelEntry;
  readonly #target: Target;
  #progress: ChannelProgress;

  constructor(parts: TaskParts, entry: ChannelEntry) {
    this.#parts = parts;
    this.#entry = entry;
    const { chatId, group, answerTo } = entry.message;
    this.#target = { chatId, group, answerTo };
    const { state, userId, work, shownId, reply, tries, dueAt } = entry;
    this.#progress = { state, userId, work, shownId, reply, tries, dueAt };
  }

  /**
   * Goes on as far as it can.
   *
   * @param admitted called once the order of the conversation's messages no longer depends on this one
   * @returns when to look at it again, as the clock on the wall; null = it is over, or somebody else's
   */
  async run(admitted: () => void): Promise<number | null> {
    const { clock, logger } = this.#parts.surroundings;
    const fields = { channel: this.#entry.channel, message: this.#entry.key };
    try {
      for (;;) {
        this.#parts.held.check();
        switch (this.#progress.state) {
          case 'received':
            await this.#decide();
            break;
          case 'running':
            await this.#work(admitted);
            break;
          case 'answering':
            admitted();
            await this.#deliver();
            break;
          default:
            return null;
        }
      }
    } catch (error) {
      if (error instanceof Lost || this.#parts.held.signal.aborted || this.#parts.closing.aborted) return null;
      if (clock.now() - this.#entry.receivedAt > GIVE_UP_MS) {
        logger.error('A message could not be answered and is given up', { ...fields, error: told(error) });
        return await this.#leave({ state: 'failed' });
      }
      if (isPassing(error)) {
        const { tries } = this.#progress;
        const pause = Math.min(FIRST_PAUSE_MS * 2 ** Math.min(tries, 10), LONGEST_PAUSE_MS);
        const wanted = error instanceof ChannelError ? (error.retryAfterMs ?? 0) : 0;
        const dueAt = clock.now() + Math.max(pause, wanted);
        logger.warn('A message waits for another try', { ...fields, tries: tries + 1, error: told(error) });
        return await this.#leave({ tries: tries + 1, dueAt });
      }
      logger.error('A message failed', { ...fields, state: this.#progress.state, error: told(error) });
      // What fails while it is sent cannot be told.
      if (this.#progress.state === 'answering') return await this.#leave({ state: 'failed' });
      return await this.#leave({
        state: 'answering',
        reply: textReply([TEXTS.failed(null)], this.#parts.adapter.textLimit, true),
      });
    }
  }

  /** Writes how it was left. When that fails too, the row says what it said, and is due. */
  async #leave(part: Partial<ChannelProgress>): Promise<number | null> {
    try {
      await this.#save(part);
    } catch (error) {
      if (error instanceof Lost) return null;
      return this.#parts.surroundings.clock.now() + FIRST_PAUSE_MS;
    }
    const { state, dueAt } = this.#progress;
    return state === 'done' || state === 'failed' ? null : dueAt;
  }

  async #save(part: Partial<ChannelProgress>): Promise<void> {
    const { store, held, surroundings } = this.#parts;
    held.check();
    const progress = { ...this.#progress, ...part };
    const { key } = this.#entry;
    if (!(await store.progress({ fence: held.fence, key, progress, now: surroundings.clock.now() }))) {
      held.end();
      throw new Lost();
    }
    this.#progress = progress;
  }

  async #answer(texts: readonly string[], failed = false): Promise<void> {
    await this.#save({ state: 'answering', tries: 0, reply: textReply(texts, this.#parts.adapter.textLimit, failed) });
  }

  /** Who is it, and what is asked? Nothing of a message is done for somebody who is not connected. */
  async #decide(): Promise<void> {
    const { store, settings, provider, host, surroundings } = this.#parts;
    const { message } = this.#entry;
    const { workspaceId, senderId } = message;
    const code = connectCode(message.text);
    if (code !== null) return await this.#connect(code);
    const { allowedUsers } = settings.providers[provider];
    if (allowedUsers.length > 0 && !allowedUsers.includes(senderId)) {
      surroundings.logger.info('A message of an account that is not allowed was ignored', {
        channel: this.#entry.channel,
      });
      return await this.#save({ state: 'done' });
    }
    const connection = await store.connectionOf({ provider, workspaceId, externalId: senderId });
    if (connection === null) return await this.#answer([TEXTS.notConnected]);
    const { userId } = connection;
    const command = parseCommand(message.text);
    if (command === null) return await this.#plan(userId, message.text, false);
    const outcome = await runCommand(host, userId, command, message.text, {
      thread: () => store.threadOf(this.#conversation(userId)),
      begin: () => this.#thread(userId),
      renew: async () => void (await this.#converse(userId, true)),
    });
    if (outcome.kind === 'reply') return await this.#answer([outcome.text]);
    await this.#plan(userId, outcome.text, outcome.bootstrap);
  }

  async #connect(code: string): Promise<void> {
    const { store, held, surroundings, provider } = this.#parts;
    const { workspaceId, senderId, senderName } = this.#entry.message;
    if (code === '') return await this.#answer([TEXTS.codeInvalid]);
    held.check();
    const answer = await store.redeem({
      fence: held.fence,
      key: this.#entry.key,
      codeHash: hashOf(code),
      connection: {
        connectionId: newId(surroundings.random),
        provider,
        workspaceId,
        externalId: senderId,
        externalName: senderName,
      },
      now: surroundings.clock.now(),
    });
    if (answer.outcome === 'fenced') throw new Lost();
    if (answer.outcome !== 'connected') return await this.#answer([TEXTS.codeInvalid]);
    surroundings.logger.info('An account was connected', { provider, userId: answer.userId });
    await this.#answer([TEXTS.connected(answer.userId)]);
  }

  #conversation(userId: string) {
    const { chatId, topic } = this.#entry.message;
    return { channel: this.#entry.channel, chatId, topic, userId };
  }

  async #converse(userId: string, fresh: boolean, topic?: { readonly topic: string; readonly threadId: string }) {
    const { store, held, surroundings } = this.#parts;
    held.check();
    const conversation = this.#conversation(userId);
    const threadId = await store.converse({
      fence: held.fence,
      conversation: topic === undefined ? conversation : { ...conversation, topic: topic.topic },
      threadId: topic?.threadId ?? newId(surroundings.random),
      fresh,
      now: surroundings.clock.now(),
    });
    if (threadId === null) throw new Lost();
    return threadId;
  }

  /** The thread of the conversation, made where there is none. */
  async #thread(userId: string): Promise<string> {
    const { host, provider } = this.#parts;
    const { chatId, topic, group } = this.#entry.message;
    const threadId = await this.#converse(userId, false);
    await host.threads.create({
      threadId,
      userId,
      metadata: {
        channel_source: {
          type: 'im_channel',
          provider,
          chat_id: chatId,
          chat_type: group ? 'group' : 'private',
          topic,
        },
      },
      ifExists: 'do_nothing',
    });
    return threadId;
  }

  /** Settles what is asked, with its files, before anything runs. */
  async #plan(userId: string, text: string, bootstrap: boolean): Promise<void> {
    const { host, settings, provider } = this.#parts;
    const { message } = this.#entry;
    const session = sessionOf(settings, provider, message.senderId);
    const agent = await host.agent(userId, session.assistantId);
    if (agent === null) return await this.#answer([TEXTS.noAgent(session.assistantId ?? '')]);
    const threadId = await this.#thread(userId);
    const { files, notices } = await this.#takeFiles({ userId, threadId });
    if (text === '' && files.length === 0)
      return await this.#answer(notices.length === 0 ? [TEXTS.hello] : notices.map(TEXTS.notice));
    const work: ChannelWork = {
      threadId,
      assistantId: agent.assistantId,
      text: beginning(text === '' ? ATTACHED : text, 100_000),
      config: { recursion_limit: session.recursionLimit },
      context: {
        ...session.context,
        ...(agent.agentName === null ? {} : { agent_name: agent.agentName }),
        ...(bootstrap ? { is_bootstrap: true } : {}),
        channel_name: provider,
        channel_user_id: message.senderId,
      },
      files,
      notices,
    };
    await this.#save({ state: 'running', userId, work, tries: 0 });
  }

  async #takeFiles(at: ThreadAddress): Promise<{ readonly files: StoredUpload[]; readonly notices: string[] }> {
    const { host, adapter, held, surroundings } = this.#parts;
    const all = this.#entry.message.files;
    const limit = Math.min(adapter.inboundLimit, host.uploadLimit);
    const megabytes = Math.floor(limit / 1_000_000);
    const files: StoredUpload[] = [];
    const notices: string[] = [];
    for (const file of all.slice(0, MOST_FILES)) {
      const name = beginning(file.name, 100);
      if (file.size !== null && file.size > limit) {
        notices.push(TEXTS.fileTooLarge(name, megabytes));
        continue;
      }
      held.check();
      try {
        const stored = await host.save(at, file.name, await adapter.fetch(file, held.signal), limit);
        if (stored === null) notices.push(TEXTS.fileName(name));
        else files.push(stored);
      } catch (error) {
        if (ReindeerError.is(error) && error.code === 'too_large') notices.push(TEXTS.fileTooLarge(name, megabytes));
        else if (ReindeerError.is(error) && error.code === 'path_refused') notices.push(TEXTS.fileName(name));
        else if (error instanceof ChannelError && error.failure === 'refused') {
          surroundings.logger.warn('A file could not be fetched', { channel: this.#entry.channel, error: told(error) });
          notices.push(TEXTS.fileFailed(name));
        } else throw error;
      }
    }
    if (all.length > MOST_FILES) notices.push(TEXTS.tooManyFiles(MOST_FILES));
    return { files, notices };
  }

  /** Makes the run, or finds the one that was made, and waits for its end. */
  async #work(admitted: () => void): Promise<void> {
    const { host, held, adapter } = this.#parts;
    const { userId, work } = this.#progress;
    if (userId === null || work === null) throw new ReindeerError('internal', 'A message runs that nobody asked for.');
    held.check();
    const answer = await this.#admit(userId, work).catch((error: unknown) => {
      const code = ReindeerError.is(error) ? error.code : null;
      // Waiting for room would let an old question run at a time when nobody expects it.
      if (code === 'over_capacity' || code === 'queue_full') return TEXTS.full;
      if (code === 'forbidden') return TEXTS.forbidden;
      throw error;
    });
    admitted();
    if (typeof answer === 'string') return await this.#answer([answer], true);
    if (answer.outcome === 'conflict') return await this.#answer([TEXTS.busy], true);
    if (answer.outcome === 'thread_not_found') return await this.#answer([TEXTS.stopped], true);
    const at = { userId, threadId: work.threadId };
    const ended = await this.#follow(at, answer.run);
    const reply = await answerOf(host, at, ended, work.notices, adapter.textLimit);
    await this.#save({ state: 'answering', tries: 0, reply });
  }

  #admit(userId: string, work: ChannelWork): Promise<AdmissionResult> {
    const { channel, round, message } = this.#entry;
    const content: JsonObject = {
      type: 'human',
      content: work.text,
      ...(work.files.length === 0 ? {} : { additional_kwargs: { files: work.files.map((file) => ({ ...file })) } }),
    };
    return this.#parts.host.runs.create({
      threadId: work.threadId,
      userId,
      assistantId: work.assistantId,
      request: {
        ...EMPTY_REQUEST,
        input: { messages: [content] },
        config: work.config,
        context: work.context,
        streamModes: ['values', 'messages-tuple', 'custom'],
      },
      metadata: { source: 'channel', channel: this.#parts.provider },
      multitaskStrategy: 'reject',
      onDisconnect: 'continue',
      crashPolicy: null,
      createThread: false,
      idempotencyKey: `channel:${channel}:${message.messageId}:${round}`,
    });
  }

  /** Shows the answer as it grows, until the run has ended. null = the run is gone. */
  async #follow(at: ThreadAddress, run: Run): Promise<Run | null> {
    const { host, adapter, held, closing, surroundings } = this.#parts;
    const signal = AbortSignal.any([held.signal, closing]);
    const { runId } = run;
    const shownId = run.acknowledged ? this.#progress.shownId : await this.#placeholder();
    if (shownId !== null && !run.acknowledged) {
      const live = new LiveText({
        clock: surroundings.clock,
        gapMs: adapter.editGapMs(this.#target.group),
        signal,
        publish: async (text, cut) => {
          held.check();
          const shown = `${beginning(text, adapter.textLimit - CURSOR.length)}${CURSOR}`;
          if ((await adapter.edit(this.#target, shownId, shown, cut)) === 'gone')
            throw new ChannelError('refused', 'The message is gone.');
        },
      });
      try {
        const words = new Words();
        const stream = host.runs.stream({
          ...at,
          runId,
          lastEventId: null,
          modes: ['messages-tuple'],
          heartbeatMs: HEARTBEAT_MS,
          signal,
        });
        for await (const item of stream) if (item !== 'heartbeat') live.show(words.take(item.event, item.data));
      } finally {
        await live.close();
      }
    }
    signal.throwIfAborted();
    return await host.runs.join({ ...at, runId, signal });
  }

  /** The message that the answer is written into. Without one the answer is a message of its own. */
  async #placeholder(): Promise<string | null> {
    const { adapter, held } = this.#parts;
    if (this.#progress.shownId !== null) return this.#progress.shownId;
    try {
      held.check();
      const shownId = await adapter.send(this.#target, TEXTS.working, held.signal);
      await this.#save({ shownId });
      return shownId;
    } catch (error) {
      if (error instanceof ChannelError) return null;
      throw error;
    }
  }

  /**
   * Sends what is left of the answer, and notes each part when it went out. The first part is written into the message that is there: doing that twice
   * shows it once.
   */
  async #deliver(): Promise<void> {
    const reply = this.#progress.reply ?? { parts: [], sent: 0, failed: false };
    for (let sent = reply.sent; sent < reply.parts.length; sent += 1) {
      const part = reply.parts[sent];
      if (part?.kind === 'text') await this.#deliverText(part.text, sent === 0);
      else if (part !== undefined) await this.#deliverFile(part.path);
      await this.#save({ reply: { ...reply, sent: sent + 1 }, tries: 0 });
    }
    await this.#save({ state: reply.failed ? 'failed' : 'done' });
  }

  async #deliverText(text: string, isFirst: boolean): Promise<void> {
    const { adapter, held } = this.#parts;
    const { shownId } = this.#progress;
    held.check();
    if (isFirst && shownId !== null) {
      if ((await adapter.edit(this.#target, shownId, text, held.signal)) === 'edited')
        return await this.#anchor(shownId);
      held.check();
    }
    const messageId = await adapter.send(this.#target, text, held.signal);
    if (isFirst) await this.#anchor(messageId);
  }

  /** In a group, whoever answers this message goes on with this conversation. */
  async #anchor(messageId: string): Promise<void> {
    const { userId, work } = this.#progress;
    if (!this.#target.group || userId === null || work === null) return;
    await this.#converse(userId, false, { topic: messageId, threadId: work.threadId });
  }

  async #deliverFile(path: string): Promise<void> {
    const { adapter, held, host, surroundings } = this.#parts;
    const { userId, work } = this.#progress;
    const name = path.slice(path.lastIndexOf('/') + 1);
    const file = userId === null || work === null ? null : await host.output({ userId, threadId: work.threadId }, path);
    held.check();
    try {
      if (file !== null && (await adapter.sendFile(this.#target, file, held.signal)) === 'sent') return;
    } catch (error) {
      if (!(error instanceof ChannelError) || error.failure !== 'refused') throw error;
      surroundings.logger.warn('A file was refused', { channel: this.#entry.channel, error: told(error) });
    }
    held.check();
    await adapter.send(this.#target, TEXTS.filesKept([name]), held.signal);
  }
}

/** The newest words of the agent, from the events of its stream. */
class Words {
  #id = '';
  #text = '';

  /** Answers what there is to show by now. */
  take(event: string, data: string): string {
    if (event !== 'messages') return this.#text;
    const message = (JSON.parse(data) as readonly WireMessage[])[0];
    if (message === undefined) return this.#text;
    const id = message.id ?? '';
    if (message.type === 'remove') {
      if (id === this.#id) this.#text = '';
      return this.#text;
    }
    if (!isSaid(message)) return this.#text;
    const text = textOf(message.content);
    if (id !== this.#id) {
      // What was said before stays to be seen until there is something new.
      if (text === '') return this.#text;
      this.#id = id;
      this.#text = text;
    } else this.#text = message.type === 'ai' ? text : this.#text + text;
    return this.#text;
  }
}

/** May another try succeed? */
const isPassing = (error: unknown): boolean =>
  error instanceof ChannelError
    ? error.failure !== 'refused'
    : ReindeerError.is(error) &&
      (error.retryable || error.code === 'store_unavailable' || error.code === 'shutting_down');

const told = (error: unknown): string => (error instanceof Error ? error.message : String(error));
