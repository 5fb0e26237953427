import type { Fact, Json } from '@reindeer/protocol';
import { expect, test } from 'vitest';
import { EVENT_TYPES, eventView } from './run-events.ts';

const custom = (data: Json): Fact => ({
  threadId: 't',
  seq: 3,
  runId: 'r',
  at: 0,
  body: { kind: 'custom', ns: '', data },
});

test('a model call that failed is an event of the catalogue', () => {
  const data = { type: 'llm_error', provider: 'openai', model: 'm', kind: 'transient', status: 503, retried: true };
  expect(eventView(custom(data))).toMatchObject({
    run_id: 'r',
    seq: 3,
    event_type: 'llm.error',
    category: EVENT_TYPES['llm.error'],
    content: data,
  });
});

test('names that objects have of themselves are none of the catalogue', () => {
  expect(eventView(custom({ type: 'constructor' }))).toMatchObject({ event_type: 'middleware:constructor' });
});
