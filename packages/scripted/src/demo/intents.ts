/** What the newest message of the user asks for, as far as the demo model understands it. */
export type Intent =
  | { readonly kind: 'report'; readonly subject: string }
  | { readonly kind: 'list' }
  | { readonly kind: 'run'; readonly command: string }
  | { readonly kind: 'read'; readonly path: string }
  | { readonly kind: 'parallel' }
  | { readonly kind: 'ask'; readonly form: boolean }
  | { readonly kind: 'story' }
  | { readonly kind: 'other' };

/** Blocks that the harness adds around what the user wrote. */
const ADDED = /<([a-z][a-z_-]*)>[\s\S]*?<\/\1>/g;

/** The user's own words. */
export function ownWords(text: string): string {
  return text.replace(ADDED, '').trim();
}

export function isChinese(text: string): boolean {
  return /\p{Script=Han}/u.test(text);
}

export function readIntent(text: string): Intent {
  const run = /^\s*(?:run|execute|运行|执行)\s*[:：]\s*([\s\S]+)$/i.exec(text);
  if (run?.[1] !== undefined) return { kind: 'run', command: run[1].trim() };

  const chinese = /写[^，。]*?(?:关于|有关)\s*(.{1,80}?)\s*的?\s*报告/.exec(text);
  if (chinese?.[1] !== undefined) return { kind: 'report', subject: clean(chinese[1]) };
  const english = /\breport\s+(?:about|on|of)\s+([^\n.!?]{1,80})/i.exec(text);
  if (english?.[1] !== undefined) return { kind: 'report', subject: clean(english[1]) };
  if (/\bwrite\b.*\breport\b/i.test(text)) return { kind: 'report', subject: 'reindeer' };
  if (/写.*报告/.test(text)) return { kind: 'report', subject: '驯鹿' };

  const read = /^\s*(?:read|show|open|读取|查看)\s+(?:the\s+)?(?:file\s+)?([\w./-]+\.[\w-]+)\s*$/i.exec(text);
  if (read?.[1] !== undefined) return { kind: 'read', path: read[1] };
  if (/\b(?:list|show)\b.*\bfiles?\b|^\s*ls\s*$|列出.*文件/i.test(text)) return { kind: 'list' };
  if (/\bparallel\b|并行/i.test(text)) return { kind: 'parallel' };
  if (/\bask me\b|问我/i.test(text)) return { kind: 'ask', form: /\bform\b|表单/i.test(text) };
  if (/\bstory\b|\bcount slowly\b|故事/i.test(text)) return { kind: 'story' };
  return { kind: 'other' };
}

function clean(subject: string): string {
  const words = subject.replace(/[`*_#<>|[\]]/g, '').trim();
  return words === '' ? 'reindeer' : words;
}
