import type { FoundMessage } from '@reindeer/protocol';

/** Characters of a snippet, about. */
const SNIPPET = 160;
/** Of these, about how many stand before what was found. */
const BEFORE = 50;

/**
 * The message of a fact as a hit, when a person can read it in the conversation and its text has every word; else null.
 *
 * @param body the JSON of a message fact, with its message whole
 * @param words lower case, not empty
 */
export function findIn(body: string, words: readonly string[]): Omit<FoundMessage, 'seq' | 'runId' | 'at'> | null {
  // Most messages have not got the words: those are not parsed. Escapes are the same in both texts.
  const raw = body.toLowerCase();
  if (!words.every((word) => raw.includes(JSON.stringify(word).slice(1, -1)))) return null;
  const { ns, message } = JSON.parse(body) as { readonly ns: string; readonly message: Record<string, unknown> };
  if (ns !== '' || (message.type !== 'human' && message.type !== 'ai')) return null;
  if ((message.additional_kwargs as { hide_from_ui?: unknown } | null | undefined)?.hide_from_ui === true) return null;
  const text = textOf(message.content).replace(/\s+/g, ' ').trim();
  const lower = text.toLowerCase();
  if (!words.every((word) => lower.includes(word))) return null;
  return {
    messageId: typeof message.id === 'string' ? message.id : null,
    role: message.type,
    // Some letters are longer in lower case: then places in one text are none in the other.
    snippet: around(lower.length === text.length ? text : lower, Math.min(...words.map((word) => lower.indexOf(word)))),
  };
}

function textOf(content: unknown): string {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return '';
  return content
    .flatMap((block: { readonly type?: unknown; readonly text?: unknown } | null) =>
      block?.type === 'text' && typeof block.text === 'string' ? [block.text] : [],
    )
    .join(' ');
}

function around(text: string, at: number): string {
  const from = Math.max(0, at - BEFORE);
  const to = Math.min(text.length, from + SNIPPET);
  // Half a character at an end is left out.
  const cut = text.slice(from, to).replace(/^[\udc00-\udfff]|[\ud800-\udbff]$/g, '');
  return `${from > 0 ? '…' : ''}${cut}${to < text.length ? '…' : ''}`.toWellFormed();
}
