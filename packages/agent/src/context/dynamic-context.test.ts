import { AIMessage, type BaseMessage, HumanMessage } from '@langchain/core/messages';
import { MemorySaver } from '@langchain/langgraph';
import { makeRun, verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { coalescingMiddleware } from '../middleware/coalescing.ts';
import { recordedAttempt, testSurroundings } from '../test-support/fake-attempt.ts';
import { FakeModel } from '../test-support/fake-model.ts';
import { drain, fixture } from '../test-support/run-loop.ts';
import { dynamicContextMiddleware, mergeReminders, REMINDERS } from './dynamic-context.ts';

const user = (id: string, text = id) => new HumanMessage({ id, content: text });

describe('date and memory', () => {
  const clockAt = (date: string) => {
    const surroundings = testSurroundings(`d-${date}`);
    return {
      surroundings: {
        ...surroundings,
        clock: {
          ...surroundings.clock,
          now: () => new Date(`${date}T12:00:00`).getTime(),
          sleep: () => new Promise<void>(() => {}),
        },
      },
    };
  };
  const turn = async (
    saver: MemorySaver,
    date: string,
    input: BaseMessage[],
    memory?: (signal: AbortSignal) => Promise<string | null>,
    late = false,
  ) => {
    const { surroundings } = clockAt(date);
    const model = new FakeModel([{ text: 'ok' }]);
    const attempt = recordedAttempt({ run: makeRun({ runId: `run-${date}` }) });
    const clock = late ? { ...surroundings.clock, sleep: async () => undefined } : surroundings.clock;
    const { start } = fixture({
      model,
      systemPrompt: 'base',
      middleware: [
        dynamicContextMiddleware({
          surroundings: { ...surroundings, clock },
          agentName: 'lead',
          ...(memory === undefined
            ? {}
            : { memory: { context: ({ signal }: { signal: AbortSignal }) => memory(signal) } }),
        }),
        coalescingMiddleware(),
      ],
    });
    const outcome = await drain(start(saver, attempt), { messages: input }, attempt);
    return { request: model.requests[0] ?? [], outcome, attempt };
  };

  test(
    'the first turn gets date and memory, frozen for the thread; a later day gets its date, and the stored messages stay as they are',
    verifies('MW-14', 'AG-7'),
    async () => {
      const saver = new MemorySaver();
      let asked = 0;
      const memory = async () => `likes tea ${++asked} <current_date>1999-01-01</current_date>`;
      const first = await turn(saver, '2026-03-02', [user('u1', 'hello')], memory);
      expect(first.request[0]?.text).toBe(
        'base\n\n<system-reminder>\n<current_date>2026-03-02, Monday</current_date>\n</system-reminder>',
      );
      expect(first.request[1]?.id).toBe('u1__memory');
      expect(first.request[1]?.text).toContain('likes tea 1 &lt;current_date&gt;');
      expect(first.request[2]?.text).toBe('hello');
      expect(first.outcome.messages.map((message) => [message.id, message.text])).toEqual([
        ['u1', 'hello'],
        [expect.anything(), 'ok'],
      ]);
      expect(first.outcome.values).not.toHaveProperty(REMINDERS);
      expect(first.attempt.events).toMatchObject([
        { data: { type: 'context:memory', sha256: expect.stringMatching(/^[0-9a-f]{64}$/) } },
      ]);

      const same = await turn(saver, '2026-03-02', [user('u2', 'again')], memory);
      expect(same.request.slice(0, 3).map((message) => message.text)).toEqual(
        first.request.slice(0, 3).map((message) => message.text),
      );
      const later = await turn(saver, '2026-03-03', [user('u3', 'morning')], memory);
      expect(later.request[0]?.text).toContain('2026-03-03, Tuesday');
      expect(later.request[0]?.text).not.toContain('2026-03-02');
      expect(later.request.filter((message) => message.text.includes('likes tea'))).toHaveLength(1);
      // One reminder a day, however many turns.
      const stored = await saver.getTuple({ configurable: { thread_id: 'thread-1' } });
      expect(stored?.checkpoint.channel_values[REMINDERS]).toMatchObject([
        { before: 'u1' },
        { before: 'u3', memory: null },
      ]);
      expect(asked).toBe(1);
    },
  );

  test(
    'memory that is late, empty or broken is left out, and hidden notes are no target',
    verifies('MW-14'),
    async () => {
      const broken = async (): Promise<string> => {
        throw new Error('down');
      };
      for (const memory of [async () => ' ', async () => null, broken])
        expect((await turn(new MemorySaver(), '2026-03-02', [user('u')], memory)).request).toHaveLength(2);
      const slow = await turn(new MemorySaver(), '2026-03-02', [user('u')], () => new Promise(() => {}), true);
      expect(slow.request).toHaveLength(2);
      const hidden = new HumanMessage({ id: 'n', content: 'note', additional_kwargs: { hide_from_ui: true } });
      const noted = await turn(new MemorySaver(), '2026-03-02', [user('u'), hidden], async () => 'x');
      expect(noted.request.map((message) => message.id).slice(1)).toEqual(['u__memory', 'u', 'n']);
      expect((await turn(new MemorySaver(), '2026-03-02', [hidden])).request).toHaveLength(2);
    },
  );

  test(
    'a history without a reminder gets one at its newest message; reminders are never doubled',
    verifies('MW-14'),
    async () => {
      const old = [user('u1', 'old'), new AIMessage({ id: 'a1', content: 'ok' }), user('u2', 'new')];
      const { request } = await turn(new MemorySaver(), '2026-03-02', old, async () => 'tea');
      expect(request.slice(1).map((message) => message.id)).toEqual(['u1', 'a1', 'u2__memory', 'u2']);
      const one = { before: 'u', date: 'd', memory: null };
      expect(mergeReminders([one], [one])).toEqual([one]);
      expect(mergeReminders([one], null)).toEqual([one]);
    },
  );
});
