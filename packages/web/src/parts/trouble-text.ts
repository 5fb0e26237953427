import type { Trouble } from '../chat/state.ts';
import type { Say } from '../words/words.ts';

/** Where what the server said is worth more than our own words. */
const SAYS_MORE: readonly Trouble['kind'][] = ['server', 'model', 'too-large', 'conflict', 'input'];

/** What to show of a trouble: our own words where we know better, and what the server said where it says more. */
export function troubleText(trouble: Trouble, say: Say): string {
  const own = say(`trouble.${trouble.kind}`);
  if (trouble.detail === null || trouble.detail === '') return own;
  return SAYS_MORE.includes(trouble.kind) ? `${own} ${trouble.detail}` : own;
}
