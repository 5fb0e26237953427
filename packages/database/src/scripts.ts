import { attemptScripts } from './attempts/scripts.ts';
import { batchScripts } from './batches/scripts.ts';
import { channelAccountScripts } from './channels/accounts.ts';
import { channelMessageScripts } from './channels/messages.ts';
import { checkpointScripts } from './checkpoints/scripts.ts';
import type { Script } from './executor.ts';
import { feedbackScripts } from './feedback/scripts.ts';
import { journalScripts } from './journal/scripts.ts';
import { logScripts } from './log/scripts.ts';
import { databaseScripts } from './meta.ts';
import { runScripts } from './runs/scripts.ts';
import { scheduleScripts } from './schedules/scripts.ts';
import { statsScripts } from './stats.ts';
import { threadScripts } from './threads/scripts.ts';
import { captureScripts } from './user-memory/captures.ts';
import { documentScripts } from './user-memory/document.ts';

/**
 * Every unit of work, by name: `{ 'runs.admit': script, … }`. The connection's side runs them by name; callers use only the types,
 * so that neither the query builder nor the statements need to be loaded there.
 */
export const scripts = {
  ...databaseScripts,
  ...statsScripts,
  ...threadScripts,
  ...runScripts,
  ...logScripts,
  ...journalScripts,
  ...checkpointScripts,
  ...attemptScripts,
  ...batchScripts,
  ...feedbackScripts,
  ...scheduleScripts,
  ...channelMessageScripts,
  ...channelAccountScripts,
  ...documentScripts,
  ...captureScripts,
};

export type Scripts = typeof scripts;
export type ScriptName = keyof Scripts;
export type InputOf<N extends ScriptName> = Scripts[N] extends Script<infer I, unknown> ? I : never;
export type OutputOf<N extends ScriptName> = Scripts[N] extends Script<never, infer O> ? O : never;

/** Runs a script and answers its output; rejects with a `ReindeerError`. */
export type Call = <N extends ScriptName>(name: N, input: InputOf<N>) => Promise<OutputOf<N>>;
