import { createHash } from 'node:crypto';

/** What a provider takes as the id of a tool call. */
export interface CallIdGrammar {
  readonly fits: RegExp;
  /** An id that fits, from any text: the same for the same text and number. */
  make(text: string, number: number): string;
}

const hashOf = (text: string, number: number): string =>
  createHash('sha256')
    .update(number === 0 ? text : `${number}\n${text}`)
    .digest('hex');

/** What every provider but the ones below takes: Anthropic refuses other letters, OpenAI more than 40 of them. */
export const COMMON_CALL_IDS: CallIdGrammar = {
  fits: /^[A-Za-z0-9_-]{1,40}$/,
  make: (text, number) => `call_${hashOf(text, number).slice(0, 32)}`,
};

/** Mistral: nine letters or digits, no more and no fewer. */
export const MISTRAL_CALL_IDS: CallIdGrammar = {
  fits: /^[A-Za-z0-9]{9}$/,
  // Eleven digits of 36 hold 52 bits and more; nine of them are 46.
  make: (text, number) =>
    Number.parseInt(hashOf(text, number).slice(0, 13), 16).toString(36).padStart(11, '0').slice(-9),
};

/**
 * The id of a call: its own where it fits and is free, else one that is worked out of it, or, where it has none or shares it, of its place. The
 * same history so gives the same ids, also when it has grown: what providers keep of an earlier request stays valid.
 *
 * @param wanted as it stands in the history; '' = none
 * @param place where the call stands: an id that is its own
 */
export function callId(wanted: string, place: string, taken: ReadonlySet<string>, grammar: CallIdGrammar): string {
  for (const text of [wanted, place]) {
    if (text === '') continue;
    if (grammar.fits.test(text)) {
      if (!taken.has(text)) return text;
    } else {
      const made = grammar.make(text, 0);
      if (!taken.has(made)) return made;
    }
  }
  let id = place;
  for (let number = 1; taken.has(id) || !grammar.fits.test(id); number += 1) id = grammar.make(place, number);
  return id;
}

const GRAMMAR = Symbol('the ids of calls that a model takes');

/** Marks a model whose provider takes other ids than most. */
export function takesCallIds<T extends object>(model: T, grammar: CallIdGrammar): T {
  Object.defineProperty(model, GRAMMAR, { value: grammar });
  return model;
}

export const callIdsOf = (model: object): CallIdGrammar =>
  (model as { readonly [GRAMMAR]?: CallIdGrammar })[GRAMMAR] ?? COMMON_CALL_IDS;
