import type { JsonObject } from '@reindeer/protocol';

/** What the newest message of the user asks for, as far as the demo model understands it. */
export type Intent =
  | { readonly kind: 'report'; readonly subject: string }
  | { readonly kind: 'list' }
  | { readonly kind: 'run'; readonly command: string }
  | { readonly kind: 'read'; readonly path: string }
  | { readonly kind: 'parallel' }
  | { readonly kind: 'ask'; readonly form: boolean }
  | { readonly kind: 'story' | 'tools' | 'plan' | 'delegate' | 'batch' | 'skill' | 'upload' }
  | { readonly kind: 'call'; readonly tool: string; readonly args: JsonObject }
  | { readonly kind: 'remember'; readonly fact: string }
  | { readonly kind: 'other' };

/** Blocks that the harness adds around what the user wrote. */
const ADDED = /<([a-z][a-z_-]*)>[\s\S]*?<\/\1>/g;

/** What stands behind the task of an item of a batch. */
const ITEM = /\s*\n\(Item "[^\n]{0,600}\)\s*$/;

/** The user's own words. */
export function ownWords(text: string): string {
  return text.replace(ADDED, '').replace(ITEM, '').trim();
}

export function isChinese(text: string): boolean {
  return /\p{Script=Han}/u.test(text);
}

export function readIntent(text: string): Intent {
  const run = /^\s*(?:run|execute|运行|执行)\s*[:：]\s*([\s\S]+)$/i.exec(text);
  if (run?.[1] !== undefined) return { kind: 'run', command: run[1].trim() };
  const call = /^\s*(?:call|调用)\s*[:：]\s*([\w.-]{1,128})\s*(\{[\s\S]*\})?\s*$/i.exec(text);
  if (call?.[1] !== undefined) return { kind: 'call', tool: call[1], args: objectOf(call[2] ?? '{}') };
  const remember =
    /^\s*(?:please\s+)?(?:remember\s+(?:that\s+)?|(?:请)?记住[：:，,]?\s*)([^\n]{2,300}?)\s*[.。!！]?\s*$/i.exec(text);
  if (remember?.[1] !== undefined) return { kind: 'remember', fact: remember[1] };

  const chinese = /写[^，。]*?(?:关于|有关)\s*(.{1,80}?)\s*的?\s*报告/.exec(text);
  if (chinese?.[1] !== undefined) return { kind: 'report', subject: clean(chinese[1]) };
  const english = /\breport\s+(?:about|on|of)\s+([^\n.!?]{1,80})/i.exec(text);
  if (english?.[1] !== undefined) return { kind: 'report', subject: clean(english[1]) };
  if (/\bwrite\b.*\breport\b/i.test(text)) return { kind: 'report', subject: 'reindeer' };
  if (/写.*报告/.test(text)) return { kind: 'report', subject: '驯鹿' };

  const read = /^\s*(?:read|show|open|读取|查看)\s+(?:the\s+)?(?:file\s+)?([\w./-]+\.[\w-]+)\s*$/i.exec(text);
  if (read?.[1] !== undefined) return { kind: 'read', path: read[1] };
  if (/\b(?:list|show)\b.*\bfiles?\b|^\s*ls\s*$|列出.*文件/i.test(text)) return { kind: 'list' };
  if (/\b(?:what|which|list|show)\b.*\btools\b|哪些工具|列出工具/i.test(text)) return { kind: 'tools' };
  if (/\bsub-?agents?\b|\bdelegate\b|子智能体/i.test(text)) return { kind: 'delegate' };
  if (/\bbatch\b|批量/i.test(text)) return { kind: 'batch' };
  if (/\bplan\b|计划/i.test(text)) return { kind: 'plan' };
  if (/\bskills?\b|技能/i.test(text)) return { kind: 'skill' };
  if (/\b(?:attached|attachments?|uploads?|uploaded)\b|附件|上传/i.test(text)) return { kind: 'upload' };
  if (/\bparallel\b|并行/i.test(text)) return { kind: 'parallel' };
  if (/\bask me\b|问我/i.test(text)) return { kind: 'ask', form: /\bform\b|表单/i.test(text) };
  if (/\bstory\b|\bcount slowly\b|故事/i.test(text)) return { kind: 'story' };
  return { kind: 'other' };
}

function clean(subject: string): string {
  const words = subject.replace(/[`*_#<>|[\]]/g, '').trim();
  return words === '' ? 'reindeer' : words;
}

function objectOf(text: string): JsonObject {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as JsonObject) : {};
  } catch {
    return {};
  }
}
