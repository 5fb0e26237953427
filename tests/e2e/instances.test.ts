import { type Script, type ScriptedProvider, startScriptedProvider } from '@reindeer/scripted';
import { postgresMissing, verifies } from '@reindeer/testkit';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type Cluster, cluster } from '../support/cluster.ts';
import { type RunningServer, say } from '../support/server.ts';

const missing = await postgresMissing();
/** Shorter than by default, so that the test need not wait as long as a user. Seconds. */
const LEASE_S = 6;
const GRACE_S = 1;
const CONFIG = `run_ownership:
  lease_seconds: ${LEASE_S}
  grace_seconds: ${GRACE_S}
runs:
  drain_timeout: 6
`;
const EFFECTS = '/mnt/user-data/workspace/effects.txt';
const STORY = 'Once there was a reindeer that two machines looked after at the same time. '.repeat(4).trim();

/** `tool:<seconds>` runs a command that leaves a line and then takes a while; `story` speaks slowly. */
const script: Script = (request) => {
  const newest = request.messages.findLastIndex((message) => message.role === 'user');
  const asked = request.messages[newest]?.text ?? '';
  if (asked.includes('story')) return { text: STORY, delayMs: 40, pieceSize: 10 };
  const answer = request.messages.slice(newest + 1).find((message) => message.role === 'tool');
  if (answer !== undefined) return { text: `The tool said: ${answer.text}`, delayMs: 10 };
  const seconds = /tool:(\S+)/.exec(asked)?.[1];
  if (seconds === undefined) return { text: 'Here I am.' };
  const command = `echo once >> ${EFFECTS}; sleep ${seconds}; echo done`;
  return {
    text: 'I begin.',
    delayMs: 20,
    toolCalls: [{ name: 'bash', args: { description: 'leave a line', command } }],
  };
};

interface Part {
  readonly event: string;
  readonly data: unknown;
}
type Chunk = { readonly id: string; readonly type: string; readonly content: string };

/** Texts as a client puts them together. */
function textsOf(parts: readonly Part[]): Map<string, string> {
  const texts = new Map<string, string>();
  for (const { event, data } of parts) {
    if (event !== 'messages') continue;
    const [{ id, type, content }] = data as [Chunk];
    if (type === 'remove') texts.delete(id);
    else texts.set(id, (texts.get(id) ?? '') + content);
  }
  return texts;
}

/** Reads a run on an instance to its end; what came so far can be looked at, and waited for. */
function follow(server: RunningServer, threadId: string, runId: string) {
  const parts: Part[] = [];
  let look = (): void => {};
  const done = (async () => {
    for await (const part of server.client.runs.joinStream(threadId, runId, { lastEventId: '-1' })) {
      parts.push(part as Part);
      look();
    }
  })();
  const until = (enough: () => boolean) =>
    new Promise<void>((resolve, reject) => {
      look = () => {
        if (enough()) resolve();
      };
      look();
      done.then(() => reject(new Error(`the stream ended first: ${JSON.stringify(parts).slice(-2_000)}`)), reject);
    });
  return { parts, done, until, texts: () => [...textsOf(parts).values()] };
}

async function begin(server: RunningServer, text: string): Promise<{ threadId: string; runId: string }> {
  const { thread_id: threadId } = await server.client.threads.create();
  const run = await server.client.runs.create(threadId, 'lead_agent', {
    input: say(text),
    streamMode: ['messages-tuple', 'values'],
    streamResumable: true,
  });
  return { threadId, runId: run.run_id };
}

async function effects(server: RunningServer, threadId: string): Promise<string> {
  const response = await fetch(`${server.url}/api/threads/${threadId}/artifacts${EFFECTS}`);
  return response.ok ? (await response.text()).trim() : '';
}

async function untilEffect(server: RunningServer, threadId: string): Promise<void> {
  while ((await effects(server, threadId)) === '') await new Promise((resolve) => setTimeout(resolve, 50));
}

const messagesOf = async (server: RunningServer, threadId: string) =>
  ((await server.client.threads.getState(threadId)).values as { messages: (Chunk & { name?: string })[] }).messages;

describe('two instances on one Postgres, without Redis', () => {
  let provider: ScriptedProvider;
  let instances: Cluster;
  let b: RunningServer;
  beforeAll(async () => {
    if (missing !== null) return;
    provider = await startScriptedProvider({ script });
    instances = await cluster({ openAiUrl: provider.openAiUrl, config: CONFIG });
    b = await instances.start('b');
  });
  afterAll(async () => {
    await instances?.stop();
    await provider?.close();
  });
  beforeEach((ctx) => {
    if (missing !== null) ctx.skip(missing);
  });

  test('a reader on the other one sees the words while they are written', verifies('RS-01', 'RS-17'), async () => {
    const a = await instances.start('a');
    const { threadId, runId } = await begin(a, 'a story');
    const reader = follow(b, threadId, runId);
    // Parts of a message that no fact has told yet.
    await reader.until(() => reader.texts().some((text) => text.length > 20 && text.length < STORY.length / 2));
    const asOf = await b.client.runs.get(threadId, runId);
    await reader.done;
    expect(asOf.status).toBe('running');
    expect(reader.texts()).toContain(STORY);
    expect(reader.parts.filter(({ data }) => JSON.stringify(data)?.includes('"type":"remove"'))).toEqual([]);
    // Who joins when it is over is told everything, and the end, at once.
    const late = follow(b, threadId, runId);
    await late.done;
    expect(late.texts()).toContain(STORY);
    await a.process.end();
  });

  test(
    'kill -9 in the middle: a reader on the other one sees the run resume and end; the tool in flight is unknown and not run twice',
    verifies('RE-01'),
    async () => {
      const a = await instances.start('a');
      const { threadId, runId } = await begin(a, 'tool:30');
      const reader = follow(b, threadId, runId);
      await reader.until(() => reader.texts().includes('I begin.'));
      await untilEffect(b, threadId);
      await a.process.end('SIGKILL');
      const killed = performance.now();
      await reader.done;
      // Lease, grace, one sweep of 2 s, and 5 s.
      expect(performance.now() - killed).toBeLessThan((LEASE_S + GRACE_S + 2 + 5) * 1_000);
      const messages = await messagesOf(b, threadId);
      expect(messages.map(({ type }) => type)).toEqual(['human', 'ai', 'tool', 'ai']);
      expect(messages[2]?.content).toMatch(/unknown/i);
      const texts = textsOf(reader.parts);
      for (const { id, type, content } of messages) if (type !== 'human') expect(texts.get(id)).toBe(content);
      expect(texts.size).toBe(3);
      expect((await b.client.runs.get(threadId, runId)).status).toBe('success');
      expect(await effects(b, threadId)).toBe('once');
    },
  );

  test(
    'SIGTERM: the run ends within the drain, and a reader on the other one hears it',
    verifies('GW-16'),
    async () => {
      const a = await instances.start('a');
      const { threadId, runId } = await begin(a, 'tool:1.5');
      const reader = follow(b, threadId, runId);
      await untilEffect(b, threadId);
      const ended = a.process.end('SIGTERM');
      await reader.done;
      expect(await ended).toEqual({ code: 0, signal: null });
      expect(reader.texts().at(-1)).toContain('The tool said: done');
      expect((await b.client.runs.get(threadId, runId)).status).toBe('success');
      expect(await effects(b, threadId)).toBe('once');
    },
  );
});
