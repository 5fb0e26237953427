import type { FactBody } from '@reindeer/protocol';
import type { FactRow, MessageRow } from '../history.ts';
import { answered, labelOf } from './work.ts';

/** A run's row as the API shows it. */
export interface RunRow {
  readonly run_id: string;
  readonly status: string;
  readonly acknowledged: boolean;
  readonly error: string | null;
  readonly metadata: { readonly label?: string };
  readonly created_at: string;
}

/** What clients saw of one run. */
export interface Seen {
  readonly label: string;
  /** Every answer to the request under this key: one id, however often it was asked. */
  readonly runIds: readonly string[];
  /** Answers to repeats that a first answer should have settled. */
  readonly contradictions: readonly string[];
  /** What `end` said to readers, and what `join` and `get` answered after it. */
  readonly ends: readonly string[];
  /** Texts by message id, as put together by a reader that read from the first event to the end. */
  readonly texts: ReadonlyMap<string, string> | null;
  /** What was wrong with the stream itself. */
  readonly streamProblems: readonly string[];
}

export interface ThreadHistory {
  readonly threadId: string;
  /** `busy` after everything has ended is a stuck thread. */
  readonly status: string;
  readonly facts: readonly FactRow[];
  readonly runs: readonly RunRow[];
  readonly messages: readonly MessageRow[];
  /** Lines of the effects file. */
  readonly effects: readonly string[];
  readonly seen: readonly Seen[];
}

export interface StormVerdict {
  readonly lost: string[];
  readonly doubled: string[];
  readonly stuck: string[];
  /** Anything else that must not be. */
  readonly wrong: string[];
  readonly runsByStatus: Readonly<Record<string, number>>;
  readonly unknownTools: number;
  readonly finishedTools: number;
}

const TERMINAL = new Set(['success', 'error', 'timeout', 'interrupted']);
const ROLLED_BACK = 'Rolled back by user';
const GIVEN_UP = 'Given up after';
const ATTEMPTS = 3;

const countBy = <T>(list: readonly T[], key: (item: T) => string): Map<string, number> => {
  const counts = new Map<string, number>();
  for (const item of list) counts.set(key(item), (counts.get(key(item)) ?? 0) + 1);
  return counts;
};
const of = <K extends FactBody['kind']>(facts: readonly FactRow[], kind: K) =>
  facts.flatMap((fact) =>
    fact.content.kind === kind ? [{ ...fact, content: fact.content as Extract<FactBody, { kind: K }> }] : [],
  );

/**
 * Reads one thread's history when nothing runs any more, and says what is wrong with it. Lost: an accepted run, a message, an effect that
 * was reported, an end. Doubled: a run for one key, a message, an effect, an end, two runs at once. Stuck: a run without its end, a
 * thread that stays busy.
 */
export function checkThread(history: ThreadHistory): StormVerdict {
  const verdict = { lost: [] as string[], doubled: [] as string[], stuck: [] as string[], wrong: [] as string[] };
  const { facts, runs, messages, effects, seen } = history;
  facts.forEach((fact, index) => {
    if (fact.seq !== index + 1) verdict.wrong.push(`fact ${index + 1} has sequence ${fact.seq}`);
  });
  if (history.status === 'busy') verdict.stuck.push('the thread is busy');

  checkRuns(history, verdict);
  checkOrder(facts, verdict);

  // Messages: each stands in the log, and once in the state.
  const told = new Set(of(facts, 'message').flatMap(({ content }) => idsOf(content)));
  for (const [id, times] of countBy(messages, (message) => message.id)) {
    if (times > 1) verdict.doubled.push(`message ${id} stands ${times} times in the state`);
    if (!told.has(id)) verdict.lost.push(`message ${id} is in the state and not in the log`);
  }
  for (const run of runs) checkMessages(run, messages, verdict);

  // Tools: begun once, finished once, their effect there once if they are known to have ended well.
  const begun = countBy(of(facts, 'tool-started'), ({ content }) => `${content.messageId} #${content.index}`);
  for (const [call, times] of begun) if (times > 1) verdict.doubled.push(`tool ${call} was begun ${times} times`);
  const finished = of(facts, 'tool-finished');
  for (const [call, times] of countBy(finished, ({ content }) => `${content.messageId} #${content.index}`))
    if (times > 1) verdict.doubled.push(`tool ${call} finished ${times} times`);
  const lines = countBy(effects, (line) => line);
  for (const [line, times] of lines) if (times > 1) verdict.doubled.push(`effect ${line} happened ${times} times`);
  const calls = new Map(
    of(facts, 'message').flatMap(({ content: { message } }) =>
      'id' in message ? [[String(message.id), message as unknown as MessageRow] as const] : [],
    ),
  );
  for (const { content } of finished) {
    const command = calls.get(content.messageId)?.tool_calls?.[content.index]?.args.command ?? '';
    const line = /echo (\S+) >>/.exec(command)?.[1];
    if (content.outcome === 'ok' && line !== undefined && !lines.has(line))
      verdict.lost.push(`effect ${line}, which was reported as done`);
  }

  for (const one of seen) checkSeen(one, history, verdict);
  return {
    ...verdict,
    runsByStatus: Object.fromEntries(countBy(runs, ({ status }) => status)),
    unknownTools: finished.filter(({ content }) => content.outcome === 'unknown').length,
    finishedTools: finished.filter(({ content }) => content.outcome === 'ok').length,
  };
}

type Findings = Pick<StormVerdict, 'lost' | 'doubled' | 'stuck' | 'wrong'>;

const idsOf = (content: Extract<FactBody, { kind: 'message' }>): string[] =>
  content.ns === '' && 'id' in content.message ? [String(content.message.id)] : [];

function checkRuns({ facts, runs }: ThreadHistory, verdict: Findings): void {
  const ends = of(facts, 'run').filter(({ content }) => content.terminal);
  for (const run of runs) {
    const name = `run ${run.run_id} (${run.metadata.label ?? '?'})`;
    if (!TERMINAL.has(run.status) || !run.acknowledged) verdict.stuck.push(`${name} reads ${run.status}`);
    const own = ends.filter((fact) => fact.run_id === run.run_id);
    if (own.length > 1) verdict.doubled.push(`${name} has ${own.length} ends`);
    if (own.length === 0) verdict.lost.push(`the end of ${name}`);
    if (own[0] !== undefined && own[0].content.status !== run.status)
      verdict.wrong.push(`${name} reads ${run.status} and its end says ${own[0].content.status}`);
    const attempts = of(facts, 'run').filter(
      ({ run_id, content }) => run_id === run.run_id && content.status === 'running',
    );
    // A run whose process died at each of its attempts ends as one that was given up: that is its stated answer.
    const givenUp = run.error?.startsWith(GIVEN_UP) === true && attempts.length >= ATTEMPTS;
    if (run.status === 'error' && run.error !== ROLLED_BACK && !givenUp)
      verdict.wrong.push(`${name} ended as an error: ${run.error}`);
  }
  const known = new Set(runs.map((run) => run.run_id));
  for (const { run_id } of of(facts, 'run'))
    if (run_id !== null && !known.has(run_id)) verdict.lost.push(`the row of run ${run_id}`);
  for (const [label, times] of countBy(runs, (run) => run.metadata.label ?? run.run_id))
    if (times > 1) verdict.doubled.push(`${times} runs for one key: ${label}`);
}

/** One run at a time: none begins before those that began earlier have ended, and none goes on after its end. */
function checkOrder(facts: readonly FactRow[], verdict: Findings): void {
  const open = new Set<string>();
  const over = new Set<string>();
  for (const [index, { seq, run_id, content }] of facts.entries()) {
    if (run_id === null) continue;
    if (over.has(run_id)) verdict.wrong.push(`fact ${seq} (${content.kind}) stands behind the end of run ${run_id}`);
    if (content.kind === 'delivery') {
      // The receipt is a part of the end, also of a run that never began.
      const next = facts[index + 1];
      const ends = next?.run_id === run_id && next.content.kind === 'run' && next.content.terminal;
      if (!ends) verdict.wrong.push(`fact ${seq} is a receipt of run ${run_id} without its end`);
      continue;
    }
    if (content.kind !== 'run') {
      if (!open.has(run_id)) verdict.wrong.push(`fact ${seq} (${content.kind}) of run ${run_id}, which does not run`);
      continue;
    }
    if (content.terminal) {
      open.delete(run_id);
      over.add(run_id);
    } else if (content.status === 'running') {
      for (const other of open)
        if (other !== run_id) verdict.doubled.push(`run ${run_id} began (fact ${seq}) while ${other} ran`);
      open.add(run_id);
    }
  }
}

function checkMessages(run: RunRow, messages: readonly MessageRow[], verdict: Findings): void {
  const { label } = run.metadata;
  if (label === undefined) return;
  const texts = messages.map(({ content }) => (typeof content === 'string' ? content : ''));
  const questions = texts.filter((text) => labelOf(text) === label).length;
  const answers = texts.filter((text) => text === answered(label)).length;
  const name = `run ${run.run_id} (${label}, ${run.status})`;
  if (questions > 1) verdict.doubled.push(`the question of ${name} stands ${questions} times`);
  if (answers > 1) verdict.doubled.push(`the answer of ${name} stands ${answers} times`);
  if (run.status === 'success' && questions === 0) verdict.lost.push(`the question of ${name}`);
  if (run.status === 'success' && answers === 0) verdict.lost.push(`the answer of ${name}`);
  if (run.error === ROLLED_BACK && questions + answers > 0) verdict.wrong.push(`${name} left messages behind`);
}

function checkSeen(one: Seen, { runs, facts, messages }: ThreadHistory, verdict: Findings): void {
  const ids = new Set(one.runIds);
  if (ids.size > 1) verdict.doubled.push(`key ${one.label} gave the runs ${[...ids].join(', ')}`);
  for (const contradiction of one.contradictions) verdict.wrong.push(`key ${one.label}: ${contradiction}`);
  for (const problem of one.streamProblems) verdict.wrong.push(`stream of ${one.label}: ${problem}`);
  for (const id of ids) {
    const run = runs.find(({ run_id }) => run_id === id);
    if (run === undefined) {
      verdict.lost.push(`run ${id} (${one.label}), which a client was told of`);
      continue;
    }
    for (const end of new Set(one.ends))
      if (end !== run.status)
        verdict.wrong.push(`run ${id} (${one.label}) reads ${run.status}; a client was told ${end}`);
    if (one.texts === null) continue;
    const written = of(facts, 'message').filter(({ run_id, content }) => run_id === id && content.ns === '');
    for (const { content } of written) {
      const message = content.message as unknown as MessageRow;
      if (message.type !== 'ai' || typeof message.content !== 'string') continue;
      // A message that was replaced or rolled back later was read as it was.
      if (!messages.some((kept) => kept.id === message.id && kept.content === message.content)) continue;
      const text = one.texts.get(message.id);
      if (text !== message.content)
        verdict.wrong.push(
          `run ${id} (${one.label}): message ${message.id} reads ${JSON.stringify(message.content)} and was streamed as ${JSON.stringify(text)}`,
        );
    }
  }
}
