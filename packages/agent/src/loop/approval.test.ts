import { AIMessage, HumanMessage } from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { Command, interrupt, MemorySaver } from '@langchain/langgraph';
import { humanInTheLoopMiddleware } from 'langchain';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { recordedAttempt } from '../test-support/fake-attempt.ts';
import { FakeModel } from '../test-support/fake-model.ts';
import { drain, fixture } from '../test-support/run-loop.ts';
import { defineMiddleware } from './middleware.ts';

function recorder() {
  const ran: string[] = [];
  const bash = tool(
    ({ command }) => {
      ran.push(command);
      return `ran ${command}`;
    },
    { name: 'bash', description: 'Runs.', schema: z.object({ command: z.string() }) },
  );
  return { ran, bash };
}

const approveBash = () => humanInTheLoopMiddleware({ interruptOn: { bash: true } } as never);
const asking = (command: string) => ({ calls: [{ name: 'bash', args: { command } }] });

test('the approved call runs although the model would now ask for another one', async () => {
  const { ran, bash } = recorder();
  const model = new FakeModel([asking('ls'), asking('rm -rf /mnt/user-data'), { text: 'done' }]);
  const approval = approveBash();
  const { start } = fixture({ model, tools: [bash], middleware: [approval] });
  const saver = new MemorySaver();
  const first = recordedAttempt();
  const stopped = await drain(start(saver, first), { messages: [new HumanMessage('go')] }, first);
  expect(stopped.interrupts[0]?.value).toMatchObject({ actionRequests: [{ name: 'bash', args: { command: 'ls' } }] });
  expect(stopped.messages.at(-1)).toMatchObject({ tool_calls: [{ args: { command: 'ls' } }] });
  expect(model.requests).toHaveLength(1);
  expect(ran).toEqual([]);

  const second = recordedAttempt({ rows: first.rows, attempt: 2 });
  await drain(start(saver, second), new Command({ resume: { decisions: [{ type: 'approve' }] } }), second);
  expect(ran).toEqual(['ls']);
  // The model is asked again only after the tool; what it then wants needs an approval of its own.
  expect(model.requests).toHaveLength(2);
});

/** A saver that hands out the very objects it was given, as one with a cache of messages does. */
function sharingSaver(): MemorySaver {
  const kept: unknown[] = [];
  return new MemorySaver({
    dumpsTyped: async (value: unknown) => ['json', new TextEncoder().encode(String(kept.push(value) - 1))],
    loadsTyped: async (_type: string, data: Uint8Array | string) =>
      kept[Number(typeof data === 'string' ? data : new TextDecoder().decode(data))],
  });
}

test('an edited call runs as edited, and the stored message object is left alone', async () => {
  const { ran, bash } = recorder();
  const model = new FakeModel([asking('rm -rf /'), { text: 'done' }]);
  const { start } = fixture({ model, tools: [bash], middleware: [approveBash()] });
  const saver = sharingSaver();
  const attempt = recordedAttempt();
  const stopped = await drain(start(saver, attempt), { messages: [new HumanMessage('go')] }, attempt);
  const asked = stopped.messages.at(-1) as AIMessage;
  const next = recordedAttempt({ attempt: 2, rows: attempt.rows });
  const edited = { type: 'edit', editedAction: { name: 'bash', args: { command: 'ls' } } };
  const { messages } = await drain(start(saver, next), new Command({ resume: { decisions: [edited] } }), next);
  expect(ran).toEqual(['ls']);
  expect(asked.tool_calls?.[0]?.args).toEqual({ command: 'rm -rf /' });
  expect(messages.filter(AIMessage.isInstance)[0]?.tool_calls?.[0]?.args).toEqual({ command: 'ls' });
  expect(messages.filter(AIMessage.isInstance)[0]?.id).toBe(asked.id);
});

test('a rejected call never runs; the model is asked again with the rejection', async () => {
  const { ran, bash } = recorder();
  const model = new FakeModel([asking('rm'), { text: 'I leave it.' }]);
  const { start } = fixture({
    model,
    tools: [bash],
    middleware: [approveBash()],
  });
  const saver = new MemorySaver();
  const attempt = recordedAttempt();
  await drain(start(saver, attempt), { messages: [new HumanMessage('go')] }, attempt);
  const next = recordedAttempt({ attempt: 2, rows: attempt.rows });
  const { messages } = await drain(
    start(saver, next),
    new Command({ resume: { decisions: [{ type: 'reject', message: 'No.' }] } }),
    next,
  );
  expect(ran).toEqual([]);
  expect(messages.map((message) => message.text)).toEqual(['go', '', 'No.', 'I leave it.']);
});

test('hooks on both sides of one that asks run once each, in reverse order', async () => {
  const order: string[] = [];
  const note = (name: string) =>
    defineMiddleware({
      name,
      afterModel: () => {
        order.push(name);
        return undefined;
      },
      afterAgent: () => {
        order.push(`${name} end`);
        return undefined;
      },
    });
  const asks = defineMiddleware({
    name: 'asks',
    afterModel: () => {
      order.push(`asks: ${String(interrupt('sure?'))}`);
      return undefined;
    },
  });
  const model = new FakeModel([{ text: 'answer' }]);
  const { start } = fixture({ model, middleware: [note('first'), asks, note('last')] });
  const saver = new MemorySaver();
  const attempt = recordedAttempt();
  const stopped = await drain(start(saver, attempt), { messages: [new HumanMessage('go')] }, attempt);
  expect(stopped.interrupts.map((item) => item.value)).toEqual(['sure?']);
  expect(stopped.messages.at(-1)?.text).toBe('answer');
  const next = recordedAttempt({ attempt: 2 });
  await drain(start(saver, next), new Command({ resume: 'yes' }), next);
  expect(order).toEqual(['last', 'asks: yes', 'first', 'last end', 'first end']);
  expect(model.requests).toHaveLength(1);
});

test('an answer that comes after the list of middleware has changed still goes to the hook that asked', async () => {
  const { ran, bash } = recorder();
  const model = new FakeModel([asking('ls'), { text: 'done' }]);
  const seen: string[] = [];
  const added = defineMiddleware({ name: 'added', afterModel: () => void seen.push('added') as undefined });
  const saver = new MemorySaver();
  const attempt = recordedAttempt();
  const before = fixture({ model, tools: [bash], middleware: [approveBash()] });
  await drain(before.start(saver, attempt), { messages: [new HumanMessage('go')] }, attempt);
  const after = fixture({ model, tools: [bash], middleware: [approveBash(), added] });
  const next = recordedAttempt({ attempt: 2, rows: attempt.rows });
  await drain(after.start(saver, next), new Command({ resume: { decisions: [{ type: 'approve' }] } }), next);
  expect(ran).toEqual(['ls']);
  // Only with the model's second message: of the first, the new hook's place was passed already.
  expect(seen).toEqual(['added']);
});

test('a new message instead of an answer leaves the question behind; the request stays valid', async () => {
  const { ran, bash } = recorder();
  const model = new FakeModel([asking('ls'), { text: 'Fine.' }]);
  const { start } = fixture({
    model,
    tools: [bash],
    middleware: [approveBash()],
  });
  const saver = new MemorySaver();
  const attempt = recordedAttempt();
  await drain(start(saver, attempt), { messages: [new HumanMessage('go')] }, attempt);
  const next = recordedAttempt({ attempt: 2, rows: attempt.rows });
  const { messages } = await drain(start(saver, next), { messages: [new HumanMessage('never mind')] }, next);
  expect(messages.at(-1)?.text).toBe('Fine.');
  expect(ran).toEqual([]);
  expect(model.requests[1]?.map((message) => message.type)).toEqual(['human', 'ai', 'tool', 'human']);
});
