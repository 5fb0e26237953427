import type { Trouble } from '../chat/state.ts';
import type { Say } from '../words/words.ts';

/** What to show of a trouble: our own words where we know better, and what the server said where it says more. */
export function troubleText(trouble: Trouble, say: Say): string {
  const own = say(`trouble.${trouble.kind}`);
  if (trouble.detail === null || trouble.detail === '') return own;
  return trouble.kind === 'server' || trouble.kind === 'model' || trouble.kind === 'too-large'
    ? `${own} ${trouble.detail}`
    : own;
}
