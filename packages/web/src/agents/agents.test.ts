import { expect, test } from 'vitest';
import { agentBody, EMPTY_AGENT, isName, readAgent, readAgents, toggled } from './agents.ts';

test('what is read is written back as it was', () => {
  const wire = {
    name: 'writer',
    description: 'Writes.',
    model: 'm',
    tool_groups: ['web'],
    skills: [],
    model_settings: { temperature: 0.4, max_tokens: null },
    thinking_enabled: false,
    reasoning_effort: 'low',
    soul: 'Be kind.',
  };
  const agent = readAgent(wire);
  const { name: _name, ...fields } = wire;
  expect(agent === null ? null : agentBody(agent)).toEqual(fields);
});

test('an agent without settings takes none with it', () => {
  expect(agentBody({ ...EMPTY_AGENT, description: ' x ' })).toMatchObject({
    description: 'x',
    model_settings: null,
    skills: null,
  });
  expect(readAgents({ agents: [{ name: 'a' }, {}, 5] }).map(({ name }) => name)).toEqual(['a']);
  expect(readAgents(null)).toEqual([]);
});

test('names', () => {
  for (const name of ['writer', 'A-2', 'x'.repeat(64)]) expect(isName(name)).toBe(true);
  for (const name of ['', 'a b', 'a_b', 'a/b', 'ä', 'x'.repeat(65)]) expect(isName(name)).toBe(false);
  expect(toggled(['a', 'b'], 'a')).toEqual(['b']);
  expect(toggled(['a'], 'b')).toEqual(['a', 'b']);
});
