import type { FactBody } from '@reindeer/protocol';

/** A fact as the API shows it. */
export interface FactRow {
  readonly seq: number;
  readonly run_id: string | null;
  readonly content: FactBody;
}

export interface MessageRow {
  readonly id: string;
  readonly type: string;
  readonly content: unknown;
  readonly tool_calls?: readonly { readonly name: string; readonly args: { readonly command?: string } }[];
}

export interface Observed {
  readonly runId: string;
  readonly facts: readonly FactRow[];
  /** Messages of the newest state. */
  readonly messages: readonly MessageRow[];
  /** Lines that the commands of the run appended to a file, in order. */
  readonly effects: readonly string[];
  readonly status: string;
}

export interface Verdict {
  /** One line per broken promise; empty = the history is right. */
  readonly problems: readonly string[];
  readonly finishedTools: number;
  readonly unknownTools: number;
}

/** Label that a command leaves behind, e.g. `a-17`. */
const labelOf = (command: string | undefined) => /echo (\S+) >>/.exec(command ?? '')?.[1] ?? null;

const countOf = <T>(list: readonly T[], matches: (item: T) => boolean) =>
  list.reduce((sum, item) => sum + (matches(item) ? 1 : 0), 0);

/**
 * Reads a run's history to its end and says what is wrong with it: a hole in the log, a message that is lost or doubled, a tool
 * that ran twice or whose end is missing, an effect without its record, an end that is missing or written twice.
 */
export function checkHistory(observed: Observed): Verdict {
  const problems: string[] = [];
  const { facts, messages, effects } = observed;
  facts.forEach((fact, index) => {
    if (fact.seq !== index + 1) problems.push(`fact ${index + 1} has sequence ${fact.seq}`);
  });

  const told = facts.flatMap(({ content }) =>
    content.kind === 'message' && content.ns === '' && 'id' in content.message ? [String(content.message.id)] : [],
  );
  for (const { id, type } of messages) {
    const times = countOf(told, (other) => other === id);
    if (times !== 1) problems.push(`message ${id} (${type}) stands ${times} times in the log`);
  }
  for (const id of new Set(told))
    if (!messages.some((message) => message.id === id))
      problems.push(`message ${id} is in the log and not in the state`);

  const ends = facts.filter(
    ({ run_id, content }) => run_id === observed.runId && content.kind === 'run' && content.terminal,
  );
  if (ends.length !== 1) problems.push(`${ends.length} terminal facts`);
  if (observed.status !== 'success') problems.push(`the run ended with status ${observed.status}`);

  let finishedTools = 0;
  let unknownTools = 0;
  for (const message of messages) {
    (message.tool_calls ?? []).forEach(({ name, args }, index) => {
      const call = `${name} #${index} of ${message.id}`;
      const of = (kind: FactBody['kind']) =>
        facts.flatMap(({ content }) =>
          content.kind === kind && 'index' in content && content.messageId === message.id && content.index === index
            ? [content]
            : [],
        );
      const finished = of('tool-finished');
      const outcome = finished[0]?.kind === 'tool-finished' ? finished[0].outcome : null;
      if (finished.length !== 1) problems.push(`${call} finished ${finished.length} times`);
      if (outcome === 'unknown') unknownTools += 1;
      else finishedTools += 1;
      if (name !== 'bash') return;
      // Not repeatable: it may be begun once only, and its effect is there exactly once if it finished.
      const begun = of('tool-started').length;
      if (begun !== 1) problems.push(`${call} was begun ${begun} times`);
      const label = labelOf(args.command);
      const times = countOf(effects, (line) => line === label);
      if (times > 1 || (outcome === 'ok' && times !== 1))
        problems.push(`${call} (${outcome}) left its effect ${times} times`);
      if (outcome !== 'ok' && outcome !== 'unknown') problems.push(`${call} ended as ${outcome}`);
    });
  }

  const shape = messages.map((message) => message.type).join(' ');
  const expected = 'human ai tool tool tool ai tool tool tool ai';
  if (shape !== expected) problems.push(`the messages are: ${shape}`);
  return { problems, finishedTools, unknownTools };
}

/** Every fact of a thread, from the API of an instance. */
export async function allFacts(url: string, threadId: string): Promise<FactRow[]> {
  const facts: FactRow[] = [];
  for (;;) {
    const response = await fetch(`${url}/api/threads/${threadId}/facts?limit=200&after_seq=${facts.at(-1)?.seq ?? 0}`);
    const { data } = (await response.json()) as { data: FactRow[] };
    if (data.length === 0) return facts;
    facts.push(...data);
  }
}

/** Lines of a file in a thread's sandbox; none when there is no file. */
export async function effectsOf(url: string, threadId: string, path: string): Promise<string[]> {
  const response = await fetch(`${url}/api/threads/${threadId}/artifacts${path}`);
  return response.status === 404 ? [] : (await response.text()).split('\n').filter((line) => line !== '');
}
