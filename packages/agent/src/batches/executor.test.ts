import { AIMessage, HumanMessage } from '@langchain/core/messages';
import type { Batch, ClaimedItem, Run, StateSnapshot } from '@reindeer/protocol';
import { makeRun, testSurroundings } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { DEFAULT_SUBAGENTS } from '../subagents/settings.ts';
import { Subagents } from '../subagents/subagents.ts';
import { createItemExecutor, type ItemExecutorParts } from './executor.ts';

const used = (inputTokens: number, outputTokens: number): Run =>
  makeRun({ usage: { ...makeRun().usage, inputTokens, outputTokens }, status: 'success', acknowledged: true });
const said = (text: string) => new AIMessage({ id: 'a', content: text, response_metadata: { model_name: 'small' } });

interface Left {
  /** Runs on the thread of the item, of attempts whose ends nobody stored. */
  readonly runs: readonly Run[];
  readonly answer: string;
  readonly open?: boolean;
  readonly schema?: object;
}

/** The second attempt of an item. Answers its result, and what it asked its run to do; each run of it uses 100 and 10 tokens. */
async function second({ runs, answer, open = false, schema }: Left) {
  const surroundings = testSurroundings();
  const asked: (string | null)[] = [];
  const deleted: string[] = [];
  let text = answer;
  const parts: ItemExecutorParts = {
    runs: {
      list: async () => runs,
      create: async ({ request }) => {
        const { input } = request as { input: { messages: { content: string }[] } | null };
        asked.push(input === null ? null : (input.messages.at(-1)?.content ?? ''));
        text = '{"n": 2}';
        return { outcome: 'admitted', run: used(0, 0), superseded: [] };
      },
      join: async () => used(100, 10),
      cancel: () => Promise.reject(new Error('nothing is active')),
    } as Partial<ItemExecutorParts['runs']> as ItemExecutorParts['runs'],
    threads: {
      state: async () =>
        ({
          values: { messages: [new HumanMessage({ id: 'h', content: 'go' }), said(text)] },
          tasks: open && asked.length === 0 ? [{}] : [],
          next: [],
        }) as unknown as StateSnapshot,
      delete: async ({ threadId }) => {
        deleted.push(threadId);
        return 'deleted';
      },
    },
    subagents: new Subagents({ settings: DEFAULT_SUBAGENTS, surroundings }),
    canExecute: false,
    surroundings,
  };
  const spec = schema === undefined ? {} : { result_schema: schema };
  const prepared = await createItemExecutor(parts).prepare({
    item: {
      lease: { itemId: 'b.0', owner: 'o', epoch: 2 },
      position: 0,
      key: 'k',
      prompt: 'P',
      acceptance: null,
    } as ClaimedItem,
    batch: { batchId: 'b', userId: 'u', threadId: 't', title: 'T', subagentType: 'general-purpose', spec } as Batch,
    signal: new AbortController().signal,
  });
  return { result: await prepared.run(), asked, deleted };
}

test('an answer that an earlier attempt left is taken, with its model and what it used', async () => {
  const { result, asked } = await second({ runs: [used(7, 3), used(5, 2)], answer: 'Oslo.' });
  expect(asked).toEqual([]);
  expect(result).toMatchObject({
    outcome: 'succeeded',
    result: 'Oslo.',
    modelName: 'small',
    usage: { inputTokens: 12, outputTokens: 5 },
  });
});

test('work that an earlier attempt left goes on, and what that used counts too', async () => {
  const { result, asked } = await second({ runs: [used(7, 3)], answer: '', open: true });
  expect(asked).toEqual([null]);
  expect(result).toMatchObject({ outcome: 'succeeded', usage: { inputTokens: 107, outputTokens: 13 } });
});

test('an answer that does not fit is begun anew', async () => {
  const schema = { type: 'object', required: ['n'] };
  const { result, asked, deleted } = await second({ runs: [used(7, 3)], answer: 'Oslo.', schema });
  expect(deleted).toEqual(['b-0']);
  expect(asked).toEqual([expect.stringContaining('P')]);
  expect(result).toMatchObject({
    outcome: 'succeeded',
    result: '{"n":2}',
    usage: { inputTokens: 107, outputTokens: 13 },
  });
});
