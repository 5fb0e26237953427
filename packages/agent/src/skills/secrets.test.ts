import { mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { HumanMessage } from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { MemorySaver } from '@langchain/langgraph';
import { NO_LOG } from '@reindeer/protocol';
import { makeRun, verifies } from '@reindeer/testkit';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { createLeadAgent, type LeadAgentOptions } from '../lead/lead-agent.ts';
import { createModelRegistry } from '../models/registry.ts';
import { delegation, task } from '../test-support/delegation.ts';
import { recordedAttempt, testSurroundings } from '../test-support/fake-attempt.ts';
import { FakeModel, type Turn } from '../test-support/fake-model.ts';
import { exited, MemorySandboxes } from '../test-support/memory-sandbox.ts';
import { drain } from '../test-support/run-loop.ts';
import { SkillAccess } from './access.ts';
import { parseSkill } from './format.ts';
import type { Skill } from './library.ts';
import { type SecretValues, SkillSecretStore } from './secret-store.ts';

const KEY = 'key-of-the-weather-0451';
const GIVEN = 'given-with-the-run-7788';

function skill(name: string, more: Partial<Skill> = {}): Skill {
  const text = `---\nname: ${name}\ndescription: About ${name}\nrequired-secrets: [WEATHER_KEY, {name: OTHER_KEY, optional: true}]\n---\nSteps`;
  const parsed = parseSkill(text);
  if ('reason' in parsed) throw new Error(parsed.reason);
  const location = `/mnt/skills/public/${name}`;
  const place = { category: 'public', enabled: true, editable: false, path: name, location } as const;
  return { ...parsed.head, ...place, folder: '/nowhere', body: parsed.body, text, signature: name, ...more };
}

let folder = '';
let shared: Record<string, Record<string, string>> = {};
let store: SkillSecretStore;
let now = 0;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'secrets-'));
  shared = {};
  now = 0;
  store = new SkillSecretStore({
    file: (userId) => join(folder, `${userId}.json`),
    shared: {
      read: async (): Promise<SecretValues> => shared,
      set: async (name, values) => {
        shared[name] = Object.fromEntries(
          Object.entries(values).filter((one): one is [string, string] => one[1] !== null),
        );
      },
    },
    clock: { now: () => now, monotonic: () => now, sleep: async () => {} },
  });
});
afterEach(() => rm(folder, { recursive: true, force: true }));

const call = (name: string, args: Record<string, unknown>): Turn => ({
  calls: [{ name, args: { description: 'test', ...args } }],
});
const bash = (command = 'go'): Turn => call('bash', { command });
const reading = (name = 'weather'): Turn => call('read_file', { path: `/mnt/skills/public/${name}/SKILL.md` });

/** Long results, where the harness itself wrote them. */
const saved = ({ contents }: MemorySandboxes): string[] =>
  [...contents].flatMap(([path, bytes]) => (path.includes('/.tool-results/') ? [Buffer.from(bytes).toString()] : []));

async function play(
  input: string,
  turns: readonly Turn[],
  options: {
    skills?: () => Promise<readonly Skill[]>;
    secrets?: Record<string, string>;
    output?: string;
    more?: Partial<LeadAgentOptions>;
  } = {},
) {
  const surroundings = testSurroundings();
  const model = new FakeModel([...turns, { text: 'ok' }]);
  const sandboxes = new MemorySandboxes({ exec: () => exited(options.output ?? 'done') });
  const list = options.skills ?? (async () => [skill('weather')]);
  for (const one of [skill('weather'), skill('other')]) sandboxes.put(`${one.location}/SKILL.md`, one.text);
  sandboxes.put('/mnt/user-data/workspace/left.txt', `left behind: ${KEY}`);
  // Cut within the value.
  sandboxes.put('/mnt/user-data/workspace/long.txt', `${'x'.repeat(49_884)}${KEY}${'y'.repeat(1_000)}`);
  const agent = createLeadAgent({
    models: createModelRegistry({
      entries: [{ use: 'fake', name: 'm', model: 'm' }],
      environment: {},
      logger: surroundings.logger,
      factories: { fake: () => model },
    }),
    sandboxes,
    surroundings,
    skills: { prepare: async () => await list().catch(() => [skill('weather')]), list },
    skillSecrets: store,
    ...options.more,
  });
  const attempt = Object.assign(recordedAttempt({ run: makeRun({ userId: 'ann' }) }), {
    secrets: options.secrets ?? {},
  });
  const graph = await agent.forAttempt(attempt, new MemorySaver());
  const outcome = await drain(graph, { messages: [new HumanMessage(input)] }, attempt);
  return {
    bound: sandboxes.commands.map(({ env }) => env ?? {}),
    results: outcome.messages.filter((message) => message.type === 'tool').map((message) => message.text),
    everything: JSON.stringify([outcome.values, model.requests, attempt.events, saved(sandboxes)]),
    events: attempt.events,
  };
}

describe('the secrets of a skill in a run', () => {
  test('a skill that was called gets what it declares, and nothing else', verifies('SK-8'), async () => {
    await store.set('ann', skill('weather'), { WEATHER_KEY: KEY }, 'user');
    const { bound, events } = await play('/weather in Rome', [bash()], { secrets: { UNASKED: 'never-declared-1' } });
    expect(bound).toEqual([{ WEATHER_KEY: KEY }]);
    expect(JSON.stringify(events)).toContain('"type":"skill:secrets","names":["WEATHER_KEY"],"skills":["weather"]');
  });

  test(
    'without an active skill there is none; one that was read is active from then on',
    verifies('SK-8'),
    async () => {
      await store.set('ann', skill('weather'), { WEATHER_KEY: KEY }, 'user');
      const { bound } = await play('go', [bash(), reading(), bash()]);
      expect(bound).toEqual([{}, { WEATHER_KEY: KEY }]);
      const manual = async () => [skill('weather', { secretsAutonomous: false })];
      expect((await play('go', [reading(), bash()], { skills: manual })).bound).toEqual([{}]);
      expect((await play('/weather', [bash()], { skills: manual })).bound).toEqual([{ WEATHER_KEY: KEY }]);
    },
  );

  test('what is stored for one skill is not another’s that declares the same', verifies('SK-8'), async () => {
    await store.set('ann', skill('weather'), { WEATHER_KEY: KEY }, 'user');
    const both = async () => [skill('weather'), skill('other')];
    expect((await play('/other', [bash()], { skills: both })).bound).toEqual([{}]);
  });

  test('a value that came with the run goes first, and is stored nowhere', verifies('SK-8'), async () => {
    await store.set('ann', skill('weather'), { WEATHER_KEY: KEY }, 'user');
    const { bound, everything } = await play('/weather', [bash()], {
      secrets: { WEATHER_KEY: GIVEN },
      output: `it is ${GIVEN}`,
    });
    expect(bound).toEqual([{ WEATHER_KEY: GIVEN }]);
    expect(everything).not.toContain(GIVEN);
  });

  test('switched off in the middle of a run, it is bound no more', verifies('SK-8', 'SL-22'), async () => {
    await store.set('ann', skill('weather'), { WEATHER_KEY: KEY }, 'user');
    let looks = 0;
    const skills = async () => {
      looks += 1;
      return [skill('weather', { enabled: looks <= 2 })];
    };
    const { bound, events } = await play('/weather', [bash(), bash('again')], { skills });
    expect(bound).toEqual([{ WEATHER_KEY: KEY }, {}]);
    expect(JSON.stringify(events)).toContain('"names":[],"skills":[]');
  });

  test('whether it is on cannot be told: nothing is bound', verifies('SK-8', 'SL-22'), async () => {
    await store.set('ann', skill('weather'), { WEATHER_KEY: KEY }, 'user');
    const skills = async (): Promise<never> => {
      throw new Error('damaged');
    };
    expect((await play('/weather', [bash()], { skills })).bound).toEqual([{}]);
  });

  test('no tool shows it: neither the command, nor what it left behind, nor a failure', verifies('SK-8'), async () => {
    await store.set('ann', skill('weather'), { WEATHER_KEY: KEY }, 'user');
    const odd = tool(
      () => {
        throw new Error(`refused with ${KEY}`);
      },
      { name: 'odd', description: 'o', schema: z.object({}) },
    );
    const { results, everything } = await play(
      '/weather',
      [
        bash(),
        call('read_file', { path: 'left.txt' }),
        call('read_file', { path: 'long.txt' }),
        call('grep', { pattern: 'left', path: '.' }),
        call('odd', {}),
      ],
      {
        output: `${'x'.repeat(9_967)}${KEY}${'y'.repeat(20_000)}\n${JSON.stringify({ key: KEY })}`,
        more: { tools: [odd] as never },
      },
    );
    expect(results).toHaveLength(5);
    expect(results[0]).toContain('[secret]');
    expect(results[1]).toBe('left behind: [secret]');
    expect(results[2]).toContain('is longer than this tool can show');
    expect(results[4]).toContain('refused with [secret]');
    expect(everything).not.toContain(KEY);
    // Nor a part of one, where the middle of a long output was cut out.
    expect(everything).not.toContain(KEY.slice(0, 12));
  });
});

describe('a sub-agent', () => {
  const calling = (prompt: string, child: readonly Turn[]) =>
    delegation({
      lead: [{ calls: [task(prompt)] }, { text: 'Done.' }],
      child: (messages) => child[messages.filter((message) => message.type === 'tool').length] ?? { text: 'ok' },
      sandboxes: new MemorySandboxes({ exec: () => exited(`says ${KEY}`) }).put(
        '/mnt/skills/public/weather/SKILL.md',
        skill('weather').text,
      ),
      agent: {
        skills: { prepare: async () => [skill('weather')], list: async () => [skill('weather')] },
        skillSecrets: store,
      },
    });

  test('what a model wrote calls no skill; what it read counts, and is hidden from all', verifies('SK-8'), async () => {
    await store.set('default', skill('weather'), { WEATHER_KEY: KEY }, 'user');
    const told = calling('/weather in Rome', [bash()]);
    await told.run();
    expect(told.sandboxes.commands.map(({ env }) => env ?? {})).toEqual([{}]);
    const read = calling('find out', [reading(), bash()]);
    const outcome = await read.run();
    expect(read.sandboxes.commands.map(({ env }) => env ?? {})).toEqual([{ WEATHER_KEY: KEY }]);
    expect(JSON.stringify([outcome.values, outcome.attempt.events])).not.toContain(KEY);
  });
});

describe('a call that names a skill', () => {
  test('one that the agent has not been given is refused as well', verifies('SL-22', 'SK-4b'), async () => {
    const agent = { name: 'w', soul: '', bootstrap: false, selfUpdate: false, profile: { skills: ['other'] } as never };
    const all = [skill('weather'), skill('other')];
    const parts = {
      library: { list: async () => all },
      secrets: store,
      userId: 'ann',
      agent,
      given: {},
      logger: NO_LOG,
    };
    const verdicts = new SkillAccess(parts).verdicts();
    expect(await verdicts.of('/mnt/skills/public/weather/SKILL.md')).toMatch(/"weather" is none of this agent's/);
    expect(await verdicts.of('/mnt/skills/public/other/SKILL.md')).toBeNull();
  });

  const off = async () => [skill('weather', { enabled: false }), skill('other')];

  test('one that is off is refused, with the reason; the others are not', verifies('SL-22', 'SK-3'), async () => {
    const { results, bound } = await play(
      'go',
      [
        bash('python3 /mnt/skills/public/weather/scripts/x.py'),
        reading('weather'),
        call('ls', { path: '/mnt/skills/public/weather' }),
        bash('cat /mnt/skills/public/other/SKILL.md /mnt/skills/public/weather-2/x'),
        reading('other'),
      ],
      { skills: off },
    );
    for (const result of results.slice(0, 3))
      expect(result).toMatch(/was not run: the skill "weather" is switched off/);
    expect(bound).toHaveLength(1);
    expect(results[4]).toContain('About other');
  });

  test(
    'when it cannot be told, the call is refused; calls without a skill run, and each call looks once',
    verifies('SL-22'),
    async () => {
      let looks = 0;
      const broken = async (): Promise<never> => {
        looks += 1;
        throw new Error('damaged');
      };
      const command = 'cat /mnt/skills/public/weather/a /mnt/skills/public/weather/b /mnt/skills/public/other/c';
      const { results } = await play('go', [bash(command), bash('date')], { skills: broken });
      expect(results[0]).toMatch(/cannot be told now/);
      expect(results[1]).toBe('done');
      // The first is the start of the run.
      expect(looks).toBe(2);
      looks = 0;
      const counted = async () => {
        looks += 1;
        return [skill('weather'), skill('other')];
      };
      expect((await play('go', [bash(command)], { skills: counted })).results[0]).toBe('done');
      expect(looks).toBe(2);
    },
  );
});

describe('the store', () => {
  const view = (name: string, source: string | null) => expect.objectContaining({ name, source });

  test('masks keep, null and empty text remove, names that are left out stay', verifies('SK-8'), async () => {
    const weather = skill('weather');
    await store.set('ann', weather, { WEATHER_KEY: KEY, OTHER_KEY: 'other-value' }, 'user');
    expect(await store.describe('ann', weather)).toEqual([view('WEATHER_KEY', 'user'), view('OTHER_KEY', 'user')]);
    expect(JSON.stringify(await store.describe('ann', weather))).not.toContain(KEY);
    await store.set('ann', weather, { WEATHER_KEY: '***', OTHER_KEY: '' }, 'user');
    expect(await store.environment('ann', [weather], {})).toEqual({ WEATHER_KEY: KEY });
    expect(await store.environment('bob', [weather], {})).toEqual({});
    expect((await stat(join(folder, 'ann.json'))).mode & 0o777).toBe(0o600);
    await store.forget('ann', 'weather');
    expect(await store.environment('ann', [weather], {})).toEqual({});
    // What a command may have had stays hidden.
    store.remember('ann', [KEY]);
    expect(await store.values('ann')).toEqual([KEY]);
  });

  test(
    'the operator’s value counts for all, behind the user’s own, and never for a skill of the user’s',
    verifies('SK-8'),
    async () => {
      const weather = skill('weather');
      const mine = skill('weather', { category: 'custom', editable: true });
      await store.set('ann', weather, { WEATHER_KEY: KEY }, 'shared');
      expect(await store.environment('bob', [weather], {})).toEqual({ WEATHER_KEY: KEY });
      expect(await store.environment('bob', [mine], {})).toEqual({});
      expect(await store.describe('bob', mine)).toEqual([view('WEATHER_KEY', null), view('OTHER_KEY', null)]);
      await expect(store.set('bob', mine, { WEATHER_KEY: 'x' }, 'shared')).rejects.toThrow(/user's own skill/);
      await store.set('bob', weather, { WEATHER_KEY: 'of-bob-himself' }, 'user');
      expect(await store.environment('bob', [weather], {})).toEqual({ WEATHER_KEY: 'of-bob-himself' });
    },
  );

  test('what cannot be stored is named, its value never', verifies('SK-8'), async () => {
    const weather = skill('weather');
    const writing = async (values: Record<string, string>) =>
      await store.set('ann', weather, values, 'user').then(
        () => 'stored',
        (error: Error) => error.message,
      );
    expect(await writing({ NOT_DECLARED: 'a-value-of-mine' })).toMatch(
      /^NOT_DECLARED: .*declares WEATHER_KEY, OTHER_KEY/,
    );
    expect(await writing({ WEATHER_KEY: '***' })).toMatch(/nothing is stored/);
    expect(await writing({ WEATHER_KEY: 'a-value\0of-mine' })).toMatch(/NUL/);
    await writeFile(join(folder, 'ann.json'), `{"weather": {"WEATHER_KEY": "${KEY}"`);
    const damaged = await writing({ WEATHER_KEY: 'a-value-of-mine' });
    expect(damaged).toMatch(/_skill_secrets.json is damaged/);
    expect(damaged).not.toMatch(/a-value|weather-0451/);
  });
});
