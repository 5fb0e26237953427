import type { Rest } from '../api/rest.ts';
import { type ChatMessage, readMessage } from './message.ts';
import { isDictionary, isWireMessage, listOf } from './wire.ts';

/** Pages of the log that one file is made of: a chat beyond them lacks its beginning, and says so. */
const MOST_PAGES = 100;

interface ExportInput {
  readonly threadId: string;
  readonly title: string;
  readonly names: { readonly you: string; readonly agent: string };
}

/** The whole chat as it was said, read from the log: also what a summary has taken the place of. */
export async function chatMarkdown(rest: Pick<Rest, 'get'>, input: ExportInput): Promise<string> {
  const path = `/threads/${encodeURIComponent(input.threadId)}/messages/page?limit=200`;
  let messages: readonly ChatMessage[] = [];
  let before: unknown = null;
  for (let pages = 0; pages < MOST_PAGES; pages += 1) {
    const page = await rest.get(typeof before === 'number' ? `${path}&before_seq=${before}` : path);
    const rows = listOf(isDictionary(page) ? page.data : null);
    const found = rows.flatMap((row, index) => {
      const wire = isDictionary(row) ? row.content : null;
      const message = isWireMessage(wire) ? readMessage(wire, index) : null;
      return message === null ? [] : [message];
    });
    messages = [...found, ...messages];
    before = isDictionary(page) ? page.next_before_seq : null;
    if (typeof before !== 'number') return toMarkdown(messages, input);
  }
  return toMarkdown(messages, { ...input, title: `${input.title} (…)` });
}

function toMarkdown(messages: readonly ChatMessage[], { title, names }: Omit<ExportInput, 'threadId'>): string {
  const parts: string[] = [`# ${title.replace(/\s+/g, ' ')}`];
  let speaker: string | null = null;
  for (const message of messages) {
    if (message.kind === 'tool' || message.hidden) continue;
    const files = message.kind === 'human' ? message.files.map((file) => `- ${file.name}`).join('\n') : '';
    const text = [message.text.trim(), files].filter((part) => part !== '').join('\n\n');
    if (text === '') continue;
    const name = message.kind === 'human' ? names.you : names.agent;
    // What one says in several steps stands under one heading.
    parts.push(name === speaker && message.kind === 'ai' ? text : `## ${name}\n\n${text}`);
    speaker = name;
  }
  return `${parts.join('\n\n')}\n`;
}

/** A name that every file system takes. */
export function markdownName(title: string): string {
  const name = title
    .normalize('NFKC')
    .replace(/[^\p{Letter}\p{Number} _-]+/gu, ' ')
    .replace(/\s+/g, ' ')
    .trim();
  return `${Array.from(name).slice(0, 60).join('').trim() || 'chat'}.md`;
}
