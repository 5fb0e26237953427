import type { ChannelFile, ChannelMessage } from '@reindeer/protocol';

type Fields = Readonly<Record<string, unknown>>;

const fieldsOf = (value: unknown): Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Fields) : {};
const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);
const idOf = (value: unknown): string | null =>
  typeof value === 'number' && Number.isSafeInteger(value) ? String(value) : null;
const textOf = (value: unknown): string => (typeof value === 'string' ? value : '');

export interface Bot {
  readonly id: string;
  /** Without @; null = it has none. */
  readonly username: string | null;
}

/** Characters of a text that are kept: Telegram sends 4096 at most. */
const MOST_TEXT = 20_000;

/**
 * One update as a message; null = it is none for us: edits, joins, other bots, and what is said in a group without being said to the bot.
 */
export function messageOf(update: unknown, bot: Bot): ChannelMessage | null {
  const message = fieldsOf(fieldsOf(update).message);
  const chat = fieldsOf(message.chat);
  const sender = fieldsOf(message.from);
  const chatId = idOf(chat.id);
  const messageId = idOf(message.message_id);
  const senderId = idOf(sender.id);
  if (chatId === null || messageId === null || senderId === null || sender.is_bot === true) return null;
  const isPrivate = chat.type === 'private';
  if (!isPrivate && chat.type !== 'group' && chat.type !== 'supergroup') return null;
  const files = filesOf(message, messageId);
  const given = (textOf(message.text) || textOf(message.caption)).slice(0, MOST_TEXT).toWellFormed();
  const addressed = withoutMention(given, bot);
  const replied = fieldsOf(message.reply_to_message);
  const isReply = bot.id === idOf(fieldsOf(replied.from).id);
  if (given === '' && files.length === 0) return null;
  if (!isPrivate && !addressed.isForUs && !isReply) return null;
  return {
    // Numbers of messages count per chat.
    messageId: `${chatId}:${messageId}`,
    chatId,
    group: !isPrivate,
    topic: isPrivate ? '' : topicOf(message, replied, messageId),
    workspaceId: '',
    senderId,
    senderName: nameOf(sender),
    text: asCommand(addressed.text),
    files,
    answerTo: isPrivate ? null : messageId,
  };
}

/** In a group each message that answers nothing begins a conversation, and what answers it belongs to it. */
function topicOf(message: Fields, replied: Fields, messageId: string): string {
  // Supergroups name the beginning of a chain of answers; groups only the message that is answered.
  if (message.is_topic_message !== true) {
    const root = idOf(message.message_thread_id);
    if (root !== null) return root;
  }
  return idOf(replied.message_id) ?? messageId;
}

function nameOf(sender: Fields): string {
  const username = textOf(sender.username);
  const name = [textOf(sender.first_name), textOf(sender.last_name)].filter((part) => part !== '').join(' ');
  return (username === '' ? name : `@${username}`).slice(0, 100).toWellFormed();
}

/** Mentions of the bot at the very start are taken off, also behind a command: `/new@our_bot`. */
function withoutMention(text: string, bot: Bot): { readonly text: string; readonly isForUs: boolean } {
  const username = bot.username?.toLowerCase() ?? null;
  let rest = text.trim();
  let isForUs = false;
  for (;;) {
    const mention = /^@([A-Za-z0-9_]+)\s*/.exec(rest);
    if (mention === null || username === null || mention[1]?.toLowerCase() !== username) break;
    rest = rest.slice(mention[0].length);
    isForUs = true;
  }
  const command = /^(\/[A-Za-z0-9_-]+)(?:@([A-Za-z0-9_]+))?(?=\s|$)/.exec(rest);
  if (command === null) return { text: rest, isForUs };
  const [whole, name = '', to] = command;
  if (to !== undefined && to.toLowerCase() !== username) return { text: rest, isForUs };
  return { text: name + rest.slice(whole.length), isForUs: true };
}

/** A deep link opens the chat with `/start <code>`. */
const asCommand = (text: string): string => text.replace(/^\/start\s+(?=\S)/, '/connect ');

const KINDS = ['document', 'audio', 'video', 'voice', 'animation', 'video_note'] as const;
const EXTENSIONS: Readonly<Record<string, string>> = {
  photo: 'jpg',
  audio: 'mp3',
  video: 'mp4',
  voice: 'ogg',
  animation: 'mp4',
  video_note: 'mp4',
};

function filesOf(message: Fields, messageId: string): ChannelFile[] {
  // An animation is told as a document too.
  for (const kind of message.animation === undefined ? KINDS : (['animation'] as const)) {
    const file = fileOf(message[kind], kind, messageId);
    if (file !== null) return [file];
  }
  // The last size of a photo is the largest.
  const photo = fileOf(listOf(message.photo).at(-1), 'photo', messageId);
  return photo === null ? [] : [photo];
}

function fileOf(value: unknown, kind: string, messageId: string): ChannelFile | null {
  const file = fieldsOf(value);
  const id = textOf(file.file_id);
  if (id === '') return null;
  const extension = EXTENSIONS[kind];
  const made = `${kind}_${messageId}${extension === undefined ? '' : `.${extension}`}`;
  const name = textOf(file.file_name).slice(0, 255).toWellFormed();
  return { id, name: name === '' ? made : name, size: typeof file.file_size === 'number' ? file.file_size : null };
}
