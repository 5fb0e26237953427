import type { BaseChatModel } from '@langchain/core/language_models/chat_models';
import type { Surroundings } from '@reindeer/protocol';
import { isAi, isGenuineUser, textOf } from '../loop/messages.ts';
import { defineMiddleware, type Middleware, type State } from '../loop/middleware.ts';
import { scopeOf } from '../loop/scope.ts';
import { askOnce } from '../models/ask-once.ts';
import { reportAside } from './llm-event.ts';

export const TITLE = 'title';

export interface TitleSettings {
  readonly enabled: boolean;
  readonly maxWords: number;
  readonly maxCharacters: number;
  /** Asks this model for a title; null = the first words of the user. */
  readonly model: BaseChatModel | null;
  /** Own question to the model, with `{max_words}`, `{user_msg}` and `{assistant_msg}`; null = the built-in one. */
  readonly promptTemplate: string | null;
}

export const DEFAULT_TITLE_SETTINGS: TitleSettings = {
  enabled: true,
  maxWords: 6,
  maxCharacters: 60,
  model: null,
  promptTemplate: null,
};

const LOCAL_LIMIT = 50;
const SHOWN = 500;
const MODEL_TIMEOUT_MS = 20_000;
const DEFAULT_TITLE = 'New Conversation';

/**
 * Names a thread (CTX-3): from the user's first words in the first step of its first run, so that a run which is cancelled, fails or dies
 * has named it too, and nothing is left to fix up behind its end, where a later run could be overwritten (RT-12). A title that a model
 * writes comes after the first exchange, bounded in time, in place of the first words; on any failure these stay. Never fails a run.
 */
export function titleMiddleware(settings: TitleSettings, surroundings: Surroundings): Middleware {
  return defineMiddleware({
    name: TITLE,
    beforeAgent(state) {
      if (!settings.enabled || titleOf(state) !== '' || !state.messages.some(isGenuineUser)) return undefined;
      return { title: localTitle(state, settings) };
    },
    async afterAgent(state, runtime) {
      const { model } = settings;
      if (!settings.enabled || model === null || !isFirstTurn(state) || !state.messages.some(isAi)) return undefined;
      // Another title is one that somebody chose.
      if (titleOf(state) !== localTitle(state, settings)) return undefined;
      try {
        const prompt = promptFor(state, settings);
        const { attempt } = scopeOf(runtime);
        const answer = await attempt.effects.track('title', () =>
          askOnce({
            model,
            question: prompt,
            purpose: 'title',
            signal: runtime.signal,
            timeoutMs: MODEL_TIMEOUT_MS,
            onUsage: (usage) => attempt.countUsage({ ...usage, caller: 'middleware' }),
            onFailure: reportAside(attempt, model, 'title', surroundings.clock),
          }),
        );
        const title = cleaned(answer, settings);
        if (title !== '') return { title };
      } catch (error) {
        if (runtime.signal?.aborted === true) throw error;
        surroundings.logger.warn('No title from the model', {
          reason: error instanceof Error ? error.name : 'unknown',
        });
      }
      return undefined;
    },
  });
}

const titleOf = (state: State): string => (typeof state.title === 'string' ? state.title : '');
const isFirstTurn = (state: State): boolean => state.messages.filter(isGenuineUser).length === 1;

function localTitle(state: State, settings: TitleSettings): string {
  const user = state.messages.find(isGenuineUser);
  const text = (user === undefined ? '' : textOf(user)).replace(/\s+/g, ' ').trim();
  return text === '' ? DEFAULT_TITLE : cut(text, Math.min(LOCAL_LIMIT, settings.maxCharacters));
}

function promptFor(state: State, settings: TitleSettings): string {
  const user = state.messages.find(isGenuineUser);
  const answer = state.messages.findLast((message) => isAi(message) && textOf(message) !== '');
  const shown = {
    max_words: String(settings.maxWords),
    user_msg: (user === undefined ? '' : textOf(user)).slice(0, SHOWN),
    assistant_msg: (answer === undefined ? '' : textOf(answer)).slice(0, SHOWN),
  };
  if (settings.promptTemplate !== null)
    return settings.promptTemplate.replace(/\{(\w+)\}/g, (whole, name: string) =>
      Object.hasOwn(shown, name) ? (shown[name as keyof typeof shown] ?? '') : whole,
    );
  return [
    `Write a title of at most ${settings.maxWords} words for this conversation, in the user's language. Answer the title only.`,
    `User: ${shown.user_msg}`,
    `Assistant: ${shown.assistant_msg}`,
  ].join('\n\n');
}

function cleaned(text: string, settings: TitleSettings): string {
  const plain = text
    .replace(/\s+/g, ' ')
    .trim()
    .replace(/^["'“”‘’«»]+|["'“”‘’«».]+$/g, '')
    .trim();
  const words = plain.split(' ').slice(0, settings.maxWords).join(' ');
  return cut(words, settings.maxCharacters);
}

/** Cuts by characters as people count them, ellipsis included. */
function cut(text: string, limit: number): string {
  const characters = [...text];
  return characters.length <= limit
    ? text
    : `${characters
        .slice(0, limit - 1)
        .join('')
        .trimEnd()}…`;
}
