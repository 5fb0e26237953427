import type { Script } from '@reindeer/scripted';
import { type RunningServer, say } from '../support/server.ts';
import { allFacts, checkHistory, effectsOf, type MessageRow, type Verdict } from './history.ts';

/** The file to which every command appends its label. */
const EFFECTS = '/mnt/user-data/workspace/effects.txt';

const bash = (label: string, before: string, after: string) => ({
  name: 'bash',
  args: { description: label, command: `${before}echo ${label} >> ${EFFECTS}${after}` },
});

/** Twice three tools at once: two commands that may not run again, and a look around that may. */
export const chaosScript: Script = (request) => {
  const newest = request.messages.findLastIndex((message) => message.role === 'user');
  const number = /work (\d+)/.exec(request.messages[newest]?.text ?? '')?.[1];
  if (number === undefined) return { text: 'Here I am.' };
  const done = request.messages.slice(newest + 1).filter((message) => message.role === 'tool').length;
  const look = { name: 'ls', args: { description: 'look', path: '/mnt/user-data/workspace' } };
  const pace = { delayMs: 4, pieceSize: 16 };
  if (done === 0)
    return {
      ...pace,
      text: 'I begin.',
      toolCalls: [bash(`a-${number}`, '', '; sleep 0.1'), look, bash(`b-${number}`, 'sleep 0.05; ', '')],
    };
  if (done === 3)
    return {
      ...pace,
      text: 'I go on.',
      toolCalls: [look, bash(`c-${number}`, 'sleep 0.1; ', '; sleep 0.05'), bash(`d-${number}`, '', '')],
    };
  return { ...pace, text: `Work ${number} is done.` };
};

export interface Crasher {
  /** A number in [0, 1), from a seed. */
  readonly random: () => number;
  /** Starts a server on the same folder again. */
  restart(): Promise<RunningServer>;
}

export interface RoundResult extends Verdict {
  readonly kills: number;
  readonly server: RunningServer;
}

/** How long after a request the kill comes at the latest. Longer than a run, so that some kills come after its end. */
export const WINDOW_MS = 1_600;

/** Chance that the process is killed a second time while the run continues. */
const SECOND_KILL = 0.3;

/**
 * One round: starts a run, kills the server with SIGKILL at a random moment, starts it again, repeats the request under the same
 * idempotency key as a client would that got no answer, follows the run to its end, and checks the whole history.
 */
export async function chaosRound(
  first: RunningServer,
  number: number,
  { random, restart }: Crasher,
): Promise<RoundResult> {
  let server = first;
  let kills = 0;
  const threadId = `chaos-${number}`;
  const body = JSON.stringify({ ...requestFor(number), if_not_exists: 'create' });
  const create = async (): Promise<string> => {
    const response = await fetch(`${server.url}/api/threads/${threadId}/runs`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'idempotency-key': `round-${number}` },
      body,
    });
    if (!response.ok) throw new Error(`creating the run: ${response.status} ${await response.text()}`);
    return ((await response.json()) as { run_id: string }).run_id;
  };
  const killAfter = async (milliseconds: number) => {
    await new Promise((resolve) => setTimeout(resolve, milliseconds));
    kills += 1;
    await server.process.end('SIGKILL');
    server = await restart();
  };

  // The answer to this one may be lost; what it did may not.
  const lost = create().catch(() => null);
  await killAfter(random() * WINDOW_MS);
  const before = await lost;
  const runId = await create();
  const problems: string[] = [];
  if (before !== null && before !== runId) problems.push(`the repeated request made another run: ${before}, ${runId}`);
  if (random() < SECOND_KILL) await killAfter((random() * WINDOW_MS) / 2);

  const streamed = await followStream(server, threadId, runId);
  const observed = {
    runId,
    facts: await allFacts(server.url, threadId),
    messages: ((await server.client.threads.getState(threadId)).values as { messages?: MessageRow[] }).messages ?? [],
    effects: await effectsOf(server.url, threadId, EFFECTS),
    status: (await server.client.runs.get(threadId, runId)).status,
  };
  const verdict = checkHistory(observed);
  for (const { id, type, content } of observed.messages)
    if (type === 'ai' && streamed.get(id) !== content)
      problems.push(`message ${id} was streamed as ${JSON.stringify(streamed.get(id))}`);

  const next = (await server.client.runs.wait(threadId, 'lead_agent', { input: say('hello') })) as {
    messages?: MessageRow[];
  };
  if (next.messages?.at(-1)?.content !== 'Here I am.')
    problems.push(`the thread is not usable afterwards: ${JSON.stringify(next).slice(-300)}`);
  return { ...verdict, problems: [...verdict.problems, ...problems], kills, server };
}

const requestFor = (number: number) => ({
  assistant_id: 'lead_agent',
  input: say(`work ${number}`),
  stream_mode: ['messages-tuple', 'values'],
});

/** The whole stream from its first event; answers the texts as a client puts them together. */
async function followStream(server: RunningServer, threadId: string, runId: string): Promise<Map<string, string>> {
  const texts = new Map<string, string>();
  for await (const part of server.client.runs.joinStream(threadId, runId, { lastEventId: '-1' })) {
    if (part.event !== 'messages') continue;
    const [chunk] = part.data as [{ id: string; type: string; content: string }];
    if (chunk.type === 'remove') texts.delete(chunk.id);
    else if (chunk.type.toLowerCase().startsWith('ai'))
      texts.set(chunk.id, (texts.get(chunk.id) ?? '') + chunk.content);
  }
  return texts;
}

/** A small generator with a seed, so that a failing sequence of moments can be tried again. */
export function seeded(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}
