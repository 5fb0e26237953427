import { mkdtemp, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { AIMessage, type BaseMessage, HumanMessage, ToolMessage } from '@langchain/core/messages';
import { END, MessagesAnnotation, Send, START, StateGraph } from '@langchain/langgraph';
import { type DatabaseStats, openSqlite } from '@reindeer/database';
import type { Fence } from '@reindeer/protocol';
import { T0, testSurroundings } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { asCheckpointer, SaverScene } from './fixture.ts';
import type { ReindeerSaver } from './saver.ts';

/**
 * Storage grows with what is said, not with how often (D4). Counted in bytes of rows, with the log of facts, the tool
 * journal and the pending writes; never in time. `payload` is the final history as LangChain serializes it.
 */

const TALK =
  'The listing shows three folders; the next thing to look at is the one with the specification, so I open it. '.repeat(
    2,
  );
const OUTPUT = 'drwxr-xr-x 2 user user 4096 Nov 30 09:59 specification\n'.repeat(15);

interface Measured {
  readonly payload: number;
  readonly stats: DatabaseStats;
  readonly fileBytes: number;
  readonly rows: Readonly<Record<string, number>>;
}

/** Runs `work` on a database in a folder of its own, and measures what it left. */
async function measure(
  work: (scene: SaverScene, threadId: string, fence: Fence) => Promise<readonly BaseMessage[]>,
): Promise<Measured> {
  const folder = await mkdtemp(join(tmpdir(), 'reindeer-growth-'));
  try {
    const stores = await openSqlite({ folder, surroundings: testSurroundings() });
    const scene = new SaverScene({ a: stores, b: stores, close: () => stores.close() });
    const threadId = scene.surroundings.random.uuid();
    const { fence } = await scene.running({
      threadId,
      runId: scene.surroundings.random.uuid(),
      token: scene.surroundings.random.uuid(),
    });
    const messages = await work(scene, threadId, fence);
    const stats = await stores.stats();
    await stores.close();
    const { size } = await stat(join(folder, 'reindeer.db'));
    const rows = Object.fromEntries(stats.tables.map((table) => [table.name, table.rows]));
    return { payload: JSON.stringify(messages).length, stats, fileBytes: size, rows };
  } finally {
    await rm(folder, { recursive: true });
  }
}

/** A model that calls one tool per step; each tool call is a task of its own with ids only, and journalled. */
function toolSteps(steps: number) {
  return async (scene: SaverScene, threadId: string, fence: Fence): Promise<readonly BaseMessage[]> => {
    const uuid = () => scene.surroundings.random.uuid();
    const saver = scene.saver(threadId, fence);
    let step = 0;
    const graph = new StateGraph(MessagesAnnotation)
      .addNode('model', () => {
        const id = uuid();
        const call = {
          id: `call_${id.slice(0, 24)}`,
          name: 'bash',
          args: { command: 'ls -la' },
          type: 'tool_call' as const,
        };
        return {
          messages: [new AIMessage({ id, content: TALK.slice(0, 120), tool_calls: step < steps ? [call] : [] })],
        };
      })
      .addNode('tools', async (task: unknown) => {
        step += 1;
        const { messageId, index } = task as { messageId: string; index: number };
        const toolCallId = `call_${messageId.slice(0, 24)}`;
        const key = { threadId, messageId, index };
        await scene.a.journal.begin({ fence, key, toolCallId, name: 'bash', attempt: 1, again: false, now: T0 });
        const message = new ToolMessage({
          id: uuid(),
          tool_call_id: toolCallId,
          name: 'bash',
          content: OUTPUT.slice(0, 800),
        });
        await scene.a.journal.finish({ fence, key, outcome: 'ok', result: saver.packer.pack(message), now: T0 });
        return { messages: [message] };
      })
      .addEdge(START, 'model')
      .addConditionalEdges(
        'model',
        ({ messages }) => {
          const last = messages.at(-1) as AIMessage;
          return last.tool_calls?.map((_call, index) => new Send('tools', { messageId: last.id, index })) ?? [];
        },
        ['tools', END],
      )
      .addEdge('tools', 'model')
      .compile({ checkpointer: asCheckpointer(saver) });
    const { messages } = await graph.invoke(
      { messages: [new HumanMessage({ id: uuid(), content: 'look around' })] },
      { configurable: { thread_id: threadId }, durability: 'sync', recursionLimit: 10_000 },
    );
    return messages;
  };
}

/** Turns of a conversation, a fresh attempt each, as a client makes them. */
function turns(count: number, first: BaseMessage) {
  return async (scene: SaverScene, threadId: string, fence: Fence): Promise<readonly BaseMessage[]> => {
    const uuid = () => scene.surroundings.random.uuid();
    const graphFor = (saver: ReindeerSaver) =>
      new StateGraph(MessagesAnnotation)
        .addNode('model', () => ({ messages: [new AIMessage({ id: uuid(), content: TALK.repeat(5).slice(0, 1024) })] }))
        .addEdge(START, 'model')
        .addEdge('model', END)
        .compile({ checkpointer: asCheckpointer(saver) });
    let messages: readonly BaseMessage[] = [];
    for (let turn = 0; turn < count; turn += 1) {
      const said = new HumanMessage({ id: uuid(), content: `${turn} ${TALK.repeat(5)}`.slice(0, 1024) });
      const input = { messages: turn === 0 ? [first, said] : [said] };
      const config = { configurable: { thread_id: threadId }, durability: 'sync' as const };
      ({ messages } = await graphFor(scene.saver(threadId, fence)).invoke(input, config));
    }
    return messages;
  };
}

describe('growth', () => {
  test('200 tool steps: rows at most twice the payload, the file at most six times, and linear', {
    timeout: 120_000,
  }, async () => {
    const [small, large] = [await measure(toolSteps(50)), await measure(toolSteps(200))];
    expect(large.rows).toMatchObject({ checkpoints: 403, checkpoint_writes: 402, tool_calls: 200 });
    // A row per message, and what few shapes the checkpoints and writes have.
    expect(large.rows.messages).toBeGreaterThanOrEqual(402);
    expect(large.rows.messages).toBeLessThan(415);
    expect(large.stats.rowBytes / large.payload).toBeLessThan(2);
    expect(large.fileBytes / large.payload).toBeLessThan(6);
    // Four times the steps are four times the bytes, as exactly as the growing numbers allow.
    const growth = large.stats.rowBytes / small.stats.rowBytes;
    expect(growth).toBeGreaterThan(3.8);
    expect(growth).toBeLessThan(4.1);
  });

  test('200 turns of 2 KiB and an image of 1 MiB: rows at most three times the payload', {
    timeout: 120_000,
  }, async () => {
    const image = `data:image/png;base64,${'iVBORw0KGgo='.repeat((1024 * 1024) / 12)}`;
    const first = new HumanMessage({ id: 'image', content: [{ type: 'image_url', image_url: { url: image } }] });
    const { payload, stats, fileBytes } = await measure(turns(200, first));
    expect(payload).toBeGreaterThan(1_400_000);
    expect(stats.rowBytes / payload).toBeLessThan(3);
    expect(fileBytes / payload).toBeLessThan(6);
  });
});
