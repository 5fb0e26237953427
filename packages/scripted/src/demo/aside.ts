import type { ScriptMessage, ScriptRequest } from '../script.ts';
import { isChinese, readIntent } from './intents.ts';
import { shorten } from './scene.ts';
import { CHINESE, type DemoWords, ENGLISH } from './words.ts';

/** What the harness asks beside the conversation, without tools: a title, and what to ask next. null = nothing of that. */
export function answerAside(request: ScriptRequest, asked: string, words: DemoWords): string | null {
  if (request.tools.length > 0) return null;
  if (/JSON array of strings/.test(asked)) return JSON.stringify(nextOf(request.messages.at(-1)?.text ?? ''));
  return asksForTitle(request) ? titleOf(asked, words) : null;
}

/** What was not asked for yet, in the language of the user. The conversation stands as data in the question. */
function nextOf(question: string): readonly string[] {
  const said = question.split('\n').filter((line) => line.startsWith('User:'));
  const asked = said.join('\n').toLowerCase();
  const { next } = isChinese(asked) ? CHINESE : ENGLISH;
  return next.filter((text) => !asked.includes(text)).slice(0, 3);
}

function asksForTitle(request: ScriptRequest): boolean {
  return (
    request.caller === 'title' ||
    request.messages.some((message: ScriptMessage) => /\btitle\b|标题/i.test(message.text))
  );
}

function titleOf(asked: string, words: DemoWords): string {
  const intent = readIntent(asked);
  return intent.kind === 'report' ? words.titles.report(intent.subject) : shorten(asked, 50);
}
