import type { Script } from '@reindeer/scripted';

/** The file in a thread's workspace to which every command appends its label. */
export const EFFECTS = '/mnt/user-data/workspace/effects.txt';

/** What a user says to have work done; the label is unlike any other. */
export const asked = (label: string): string => `work ${label}`;
export const answered = (label: string): string => `Work ${label} is done, and nothing of it was lost or doubled.`;
/** The label in what was asked, also when something was put around it on the way to the model. */
export const labelOf = (text: string): string | null => /\bwork (c\d+-\d+)\b/.exec(text)?.[1] ?? null;

const bash = (line: string, seconds: number) => ({
  name: 'bash',
  args: { description: line, command: `echo ${line} >> ${EFFECTS}; sleep ${seconds}` },
});

/** Two steps of tools, the second with two at once, and a last word. */
export const stormScript: Script = (request) => {
  const newest = request.messages.findLastIndex((message) => message.role === 'user');
  const label = labelOf(request.messages[newest]?.text ?? '');
  if (label === null) return { text: 'Here I am.' };
  const done = request.messages.slice(newest + 1).filter((message) => message.role === 'tool').length;
  const pace = { delayMs: 5, pieceSize: 8 };
  if (done === 0) return { ...pace, text: `I begin with ${label}.`, toolCalls: [bash(`${label}-1`, 0.1)] };
  if (done === 1) return { ...pace, text: 'I go on.', toolCalls: [bash(`${label}-2`, 0.05), bash(`${label}-3`, 0.2)] };
  return { ...pace, text: answered(label) };
};
