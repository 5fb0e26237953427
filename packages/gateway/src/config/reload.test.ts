import { mkdtemp, rm, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Logger, NO_LOG } from '@reindeer/protocol';
import { verifies } from '@reindeer/testkit';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { loadConfig } from './load.ts';
import { schemaKeys } from './reference/render.ts';
import { liveSettings, needsRestart, STARTUP_ONLY } from './reload.ts';
import { resolveSettings } from './settings.ts';

let folder = '';
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'reindeer-reload-'));
});
afterEach(async () => {
  await rm(folder, { recursive: true, force: true });
});
const write = (text: string, name = 'config.yaml') => writeFile(join(folder, name), text);

const MODELS = (...names: string[]) =>
  `models:\n${names.map((name) => `  - name: ${name}\n    use: openai\n    model: m-${name}\n    api_key: key-of-${name}\n`).join('')}`;

/** A process that has begun with what the folder says. */
async function begin() {
  const told: string[] = [];
  const tell = (message: string, fields?: object) => void told.push(`${message} ${JSON.stringify(fields ?? {})}`);
  const logger: Logger = { ...NO_LOG, info: tell, warn: tell, error: tell };
  let loads = 0;
  const load = () => {
    loads += 1;
    return loadConfig({ cwd: folder, environment: {} });
  };
  const loaded = await load();
  const live = liveSettings({ loaded, load, resolve: (changed) => resolveSettings(changed, {}), logger });
  let now = resolveSettings(loaded, {});
  live.onChange((settings) => () => {
    now = settings;
  });
  const look = async () => {
    await live.refresh();
    return now;
  };
  const names = async () => (await look()).models.map(({ name }) => name);
  return { live, told, look, names, loads: () => loads };
}

describe('a file that changes while the process runs', () => {
  test('counts at the next look, whole; what is gone has its default again', verifies('CFG-4a', 'GW-27'), async () => {
    await write(`${MODELS('a')}title:\n  max_words: 3\n`);
    const { look, live } = await begin();
    expect((await look()).title).toEqual({ max_words: 3 });
    await write(`${MODELS('b')}title:\n  enabled: false\napprovals:\n  tools: [bash]\n`);
    expect(await look()).toMatchObject({ title: { enabled: false }, approvals: ['bash'], models: [{ name: 'b' }] });
    expect((await look()).title.max_words).toBeUndefined();
    expect(live.state).toEqual({
      file: join(folder, 'config.yaml'),
      revision: 1,
      changed: ['models', 'title.max_words', 'title.enabled', 'approvals.tools'],
      restart: [],
      fault: null,
    });
  });

  test('the content counts, not the time; the same content is read once', verifies('CFG-4a'), async () => {
    await write(MODELS('a'));
    const { names, loads } = await begin();
    const old = new Date(0);
    await utimes(join(folder, 'config.yaml'), old, old);
    await names();
    await names();
    const before = loads();
    await names();
    expect(loads()).toBe(before);
    // As long as before, and with the same time.
    await write(MODELS('b'));
    await utimes(join(folder, 'config.yaml'), old, old);
    expect(await Promise.all([names(), names()])).toEqual([['b'], ['b']]);
    expect(loads()).toBe(before + 1);
  });

  test('a file that is being written counts once it is whole', verifies('CFG-4a'), async () => {
    await write(MODELS('a'));
    const { names, live } = await begin();
    await names();
    await write('');
    const seen = names();
    await write(MODELS('b'));
    expect(await seen).toEqual(['b']);
    expect(live.state.revision).toBe(1);
  });

  test('a variable of .env is part of it', verifies('CFG-4a'), async () => {
    await write('models:\n  - name: a\n    use: openai\n    model: $WHICH\n');
    await write('WHICH=one\n', '.env');
    const { look } = await begin();
    expect((await look()).models[0]?.model).toBe('one');
    await write('WHICH=two\n', '.env');
    expect((await look()).models[0]?.model).toBe('two');
  });

  test.each([
    ['is no YAML', 'models: [a\nb: c\n', /not valid YAML/],
    ['has a wrong value', `${MODELS('b')}title:\n  max_words: many\n`, /line 7: title\.max_words must be a number/],
    [
      'asks for a variable that is not set',
      'models:\n  - name: b\n    api_key: $NOT_SET\n',
      /NOT_SET, which is not set/,
    ],
    ['contradicts itself', `${MODELS('b')}guardrails:\n  enabled: true\n`, /guardrails\.provider is missing/],
    ['opens the port to all', `${MODELS('b')}server:\n  host: 0.0.0.0\n`, /Set a token first/],
  ])('one that %s changes nothing and is told once', verifies('CFG-4a', 'GW-27'), async (_, text, told) => {
    await write(`${MODELS('a')}title:\n  max_words: 3\n`);
    const { live, look, names, told: log } = await begin();
    await write(text);
    for (let time = 0; time < 3; time++) expect(await names()).toEqual(['a']);
    expect((await look()).title.max_words).toBe(3);
    expect(log).toEqual([expect.stringMatching(told)]);
    expect(live.state).toMatchObject({ revision: 0, fault: expect.stringMatching(told) });
    // And put right again it counts.
    await write(MODELS('c'));
    expect(await names()).toEqual(['c']);
    expect(live.state).toMatchObject({ revision: 1, fault: null });
  });

  test('one part that cannot take it keeps it from all, and a later try may', verifies('CFG-4a'), async () => {
    await write(MODELS('a'));
    const { live, names } = await begin();
    let broken = true;
    live.onChange(() => {
      if (broken) throw new Error('the module is missing');
      return () => {};
    });
    await write(MODELS('b'));
    expect(await names()).toEqual(['a']);
    expect(live.state.fault).toBe('the module is missing');
    broken = false;
    expect(await names()).toEqual(['a']);
    await live.refresh('again');
    expect(await names()).toEqual(['b']);
    expect(live.state.fault).toBeNull();
  });

  test('what counts at the start only is named with its reason, and stays', verifies('CFG-4b', 'GW-27'), async () => {
    await write(`${MODELS('a')}sandbox:\n  network: none\n`);
    const { look, live, told } = await begin();
    await write(`${MODELS('b')}server:\n  port: 3000\nsandbox:\n  network: host\n  memory_limit: 100000000\n`);
    await write('REINDEER_HOME=elsewhere\n', '.env');
    const settings = await look();
    expect(settings).toMatchObject({
      models: [{ name: 'b' }],
      home: join(folder, '.reindeer'),
      server: { port: 2026 },
      sandbox: { network: 'none', memory_limit: 100_000_000 },
    });
    expect(live.state.restart).toEqual(['sandbox.network', 'server.port', 'REINDEER_HOME']);
    expect(told).toEqual([
      'The configuration changed {"counts":["models","sandbox.memory_limit"]}',
      expect.stringMatching(/^sandbox\.network: the change counts after a restart\. Who may reach/),
      expect.stringMatching(/^server\.port: the change counts after a restart\. The port is open/),
      expect.stringMatching(/^REINDEER_HOME: the change counts after a restart\./),
    ]);
    await look();
    expect(told).toHaveLength(4);
    // Put back, nothing waits any more.
    await write(`${MODELS('b')}sandbox:\n  memory_limit: 100000000\n  network: none\n`);
    await write('', '.env');
    await look();
    expect(live.state).toMatchObject({ revision: 1, restart: [] });
  });
});

test('what needs a restart is a key of the schema, with a reason', verifies('CFG-4b'), () => {
  const known = schemaKeys().map(({ path }) => path);
  for (const [key, reason] of Object.entries(STARTUP_ONLY)) {
    expect(
      known.some((path) => path === key || path.startsWith(`${key}.`) || path.startsWith(`${key}[`)),
      key,
    ).toBe(true);
    expect(reason).toMatch(/^[A-Z].{15,}\.$/);
    expect(needsRestart(`${key}.more`)).toBe(reason);
  }
  expect(['models', 'tools[].name', 'summarization.enabled', 'sandbox.replicas'].map(needsRestart)).toEqual([
    null,
    null,
    null,
    null,
  ]);
});
