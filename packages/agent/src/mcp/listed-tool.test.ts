import { verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { listedTool } from './listed-tool.ts';

const schemaOf = (inputSchema: unknown): unknown => {
  const tool = listedTool({ name: 't', inputSchema });
  return typeof tool === 'string' ? tool : tool.inputSchema;
};
const text = { type: 'string' };

test('arguments in the form that every provider takes: an object with properties', verifies('MCP-1'), () => {
  expect(schemaOf(undefined)).toEqual({ type: 'object', properties: {} });
  expect(schemaOf({ properties: { a: text } })).toEqual({ type: 'object', properties: { a: text } });
  expect(schemaOf({ type: ['object', 'null'], properties: {} })).toEqual({ type: 'object', properties: {} });
  expect(schemaOf({ type: 'object', properties: { a: true, b: text }, required: ['b'] })).toEqual({
    type: 'object',
    properties: { a: {}, b: text },
    required: ['b'],
  });
  // What only one of several forms demands cannot be demanded here; the server does.
  expect(
    schemaOf({
      anyOf: [
        { type: 'object', properties: { id: text }, required: ['id'] },
        { type: 'object', properties: { name: text }, required: ['name'] },
      ],
    }),
  ).toEqual({ type: 'object', properties: { id: text, name: text } });
});

test('what is no tool costs only itself and is named', verifies('MCP-1'), () => {
  expect(['text', null, { name: 7 }, {}].map(listedTool)).toEqual(Array(4).fill('(without a name)'));
  expect(schemaOf({ type: 'string' })).toBe('t');
  expect(schemaOf([])).toBe('t');
  expect(listedTool({ name: 'x'.repeat(200), inputSchema: 'no' })).toHaveLength(80);
});
