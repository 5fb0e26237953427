import type { NewFact } from '@reindeer/protocol';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { compactFact, expandFact } from './compact.ts';

const id = fc.oneof(
  fc.uuid(),
  fc.string(),
  fc.constantFrom('~', '~~', '~x', '{', '1F000000-0000-6000-8000-000000000001'),
);
const text = fc.string();
const hash = fc.stringMatching(/^[A-Za-z0-9_-]{22}$/);
const values = fc.oneof(fc.constant(null), fc.record({ messages: fc.array(fc.record({ $m: hash })) }), text);

const body: fc.Arbitrary<NewFact['body']> = fc.oneof(
  fc.record({ kind: fc.constant('message'), ns: text, message: fc.record({ $m: hash }) }),
  fc.record({ kind: fc.constant('message'), ns: text, message: fc.record({ type: text, content: text, $m: text }) }),
  fc.record({
    kind: fc.constant('checkpoint'),
    ns: text,
    checkpointId: id,
    parentId: fc.oneof(id, fc.constant(null)),
    source: text,
    step: fc.integer(),
  }),
  fc.record({ kind: fc.constant('update'), ns: text, node: text, taskId: id, values }),
  fc.record({
    kind: fc.constant('tool-started'),
    messageId: id,
    index: fc.nat(),
    toolCallId: fc.oneof(text, fc.constant(null)),
    name: text,
    attempt: fc.nat(),
  }),
  fc.record({
    kind: fc.constant('tool-finished'),
    messageId: id,
    index: fc.nat(),
    toolCallId: fc.oneof(text, fc.constant(null)),
    name: text,
    outcome: fc.constantFrom('ok', 'error', 'unknown', 'refused'),
  }),
  fc.record({ kind: fc.constant('message-removed'), ns: text, messageId: id }),
  fc.record({ kind: fc.constant('custom'), ns: text, data: values }),
) as fc.Arbitrary<NewFact['body']>;

test('a stored fact is the fact that was appended', () => {
  fc.assert(
    fc.property(body, (fact) => {
      expect(JSON.parse(expandFact(compactFact(fact)))).toEqual(fact);
    }),
  );
});

test('the facts of a step take about half of their JSON', () => {
  const uuid = '1f1eca98-75c7-6e50-ffff-309bfab31656';
  const facts: NewFact['body'][] = [
    { kind: 'message', ns: '', message: { $m: '-4ESmk-nVI-OBFKBoq1NPQ' } },
    { kind: 'checkpoint', ns: '', checkpointId: uuid, parentId: uuid, source: 'loop', step: 100 },
    { kind: 'update', ns: '', node: 'model', taskId: uuid, values: { messages: [{ $m: '-4ESmk-nVI-OBFKBoq1NPQ' }] } },
  ];
  const stored = facts.reduce((sum, fact) => sum + compactFact(fact).length, 0);
  const json = facts.reduce((sum, fact) => sum + JSON.stringify(fact).length, 0);
  expect(stored).toBeLessThan(json / 2);
});
