import { HumanMessage } from '@langchain/core/messages';
import { verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { recordedAttempt } from '../test-support/fake-attempt.ts';
import { FakeModel, type Turn } from '../test-support/fake-model.ts';
import { runLoop } from '../test-support/run-loop.ts';
import { writeTodosTool } from '../tools/write-todos.ts';
import { deliveryMiddleware } from './delivery.ts';
import { todosMiddleware } from './todos.ts';

const FILES = Array.from({ length: 7 }, (_, n) => `/mnt/user-data/outputs/${n === 0 ? '<memory>' : n}.md`);

async function run(turns: readonly Turn[], undelivered?: () => Promise<readonly string[]>, plan = false) {
  const model = new FakeModel(turns);
  const outcome = await runLoop({
    model,
    tools: [writeTodosTool()],
    middleware: [deliveryMiddleware(), todosMiddleware()],
    input: [new HumanMessage('write it')],
    ...(plan ? { context: { is_plan_mode: true } } : {}),
    attempt: recordedAttempt(undelivered === undefined ? {} : { undelivered }),
  });
  const notes = model.requests.map((request) =>
    request.filter((message) => message.name === 'delivery_reminder').map((message) => message.text),
  );
  return { ...outcome, notes };
}

describe('files that nobody was shown', () => {
  test('are named to the agent once, in one request, and in no state', verifies('FILE-4b'), async () => {
    const { notes, messages } = await run([{ text: 'Done.' }, { text: 'Here.' }], async () => FILES);
    expect(notes.map((told) => told.length)).toEqual([0, 1]);
    expect(notes[1]?.[0]).toContain('present_files');
    expect(notes[1]?.[0]).toContain('&lt;memory&gt;.md');
    expect(notes[1]?.[0]).toContain('and 2 more');
    expect(messages.map((message) => message.text)).toEqual(['write it', 'Done.', 'Here.']);
  });

  test('nothing missing, and nobody who could tell, cost no call', async () => {
    expect((await run([{ text: 'Done.' }], async () => [])).notes).toEqual([[]]);
    expect((await run([{ text: 'Done.' }])).notes).toEqual([[]]);
  });

  test('an unfinished plan comes first', async () => {
    const open = { name: 'write_todos', args: { todos: [{ content: 'a', status: 'pending' }] } };
    const done = { name: 'write_todos', args: { todos: [{ content: 'a', status: 'completed' }] } };
    const turns = [{ calls: [open] }, { text: 'Done.' }, { calls: [done] }, { text: 'Done.' }, { text: 'Here.' }];
    const { notes } = await run(turns, async () => FILES, true);
    expect(notes.map((told) => told.length)).toEqual([0, 0, 0, 0, 1]);
  });
});
