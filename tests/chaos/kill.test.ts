import { startScriptedProvider } from '@reindeer/scripted';
import { verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { projectFolder, scriptedConfig, startServer } from '../support/server.ts';
import { checkHistory, type Observed } from './history.ts';
import { chaosRound, chaosScript, seeded } from './round.ts';

/** The long version is `npm run chaos`. */
const ROUNDS = 6;

describe('kill -9', () => {
  test('at any moment of a run loses nothing and doubles nothing', verifies('API-06', 'RE-01'), async () => {
    const provider = await startScriptedProvider({ script: chaosScript });
    const project = await projectFolder(scriptedConfig(provider.openAiUrl));
    let server = await startServer(project.folder);
    const restart = async () => {
      server = await startServer(project.folder);
      return server;
    };
    try {
      const random = seeded(7);
      for (let number = 1; number <= ROUNDS; number += 1) {
        const result = await chaosRound(server, number, { random, restart });
        expect([number, result.problems]).toEqual([number, []]);
      }
      expect(provider.requests().filter((request) => (request.status ?? 0) >= 400)).toEqual([]);
    } finally {
      await server.process.end();
      await provider.close();
      await project.remove();
    }
  });
});

describe('the history checker', () => {
  const bash = (label: string) => ({ name: 'bash', args: { command: `echo ${label} >> x` } });
  const calls = ['a', 'b', 'c'].map(bash);
  const good = (): Observed => {
    const types = ['human', 'ai', 'tool', 'tool', 'tool', 'ai', 'tool', 'tool', 'tool', 'ai'];
    const messages = types.map((type, index) => ({
      id: `m${index}`,
      type,
      content: '',
      ...(index === 1 ? { tool_calls: calls } : {}),
    }));
    const bodies = [
      ...messages.map(({ id, type }) => ({ kind: 'message' as const, ns: '', message: { id, type, content: '' } })),
      ...calls.flatMap((_, index) => [
        { kind: 'tool-started' as const, messageId: 'm1', index, toolCallId: null, name: 'bash', attempt: 1 },
        {
          kind: 'tool-finished' as const,
          messageId: 'm1',
          index,
          toolCallId: null,
          name: 'bash',
          outcome: 'ok' as const,
        },
      ]),
      { kind: 'run' as const, status: 'success' as const, attempt: 1, terminal: true },
    ];
    return {
      runId: 'r',
      status: 'success',
      messages,
      effects: ['a', 'b', 'c'],
      facts: bodies.map((content, index) => ({ seq: index + 1, run_id: 'r', content })),
    };
  };
  const renumbered = (facts: Observed['facts']) => facts.map((fact, index) => ({ ...fact, seq: index + 1 }));

  test('passes a right history and finds each kind of damage', () => {
    expect(checkHistory(good())).toEqual({ problems: [], finishedTools: 3, unknownTools: 0 });
    const damages: [string, (history: Observed) => Observed][] = [
      ['a hole', (h) => ({ ...h, facts: h.facts.filter((_, index) => index !== 12) })],
      ['a lost message', (h) => ({ ...h, facts: renumbered(h.facts.slice(1)) })],
      ['a doubled message', (h) => ({ ...h, facts: renumbered([...h.facts.slice(0, 1), ...h.facts]) })],
      ['a tool begun twice', (h) => ({ ...h, facts: renumbered([...h.facts, ...h.facts.slice(10, 11)]) })],
      ['a doubled effect', (h) => ({ ...h, effects: [...h.effects, 'a'] })],
      ['a lost effect', (h) => ({ ...h, effects: h.effects.slice(1) })],
      ['two ends', (h) => ({ ...h, facts: renumbered([...h.facts, ...h.facts.slice(-1)]) })],
      ['no end', (h) => ({ ...h, facts: h.facts.slice(0, -1) })],
      ['a failed run', (h) => ({ ...h, status: 'error' })],
      ['a message too many', (h) => ({ ...h, messages: [...h.messages, { id: 'm99', type: 'ai', content: '' }] })],
    ];
    for (const [name, damage] of damages)
      expect([name, checkHistory(damage(good())).problems.length > 0]).toEqual([name, true]);
  });
});
