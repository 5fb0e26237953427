import { mkdtemp, rm, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createModelRegistry } from '@reindeer/agent';
import { type Logger, NO_LOG } from '@reindeer/protocol';
import { ScriptedChatModel, turns } from '@reindeer/scripted';
import { verifies } from '@reindeer/testkit';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { liveModels } from '../live-models.ts';
import { loadConfig } from './load.ts';
import { liveSettings, OF_THE_FILE, RELOADED, STARTUP_ONLY } from './reload.ts';
import { configSchema, SECTIONS_WITHOUT_EFFECT } from './schema.ts';
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
  `models:\n${names.map((name) => `  - name: ${name}\n    use: fake\n    model: m-${name}\n    api_key: key-of-${name}\n`).join('')}`;

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
  const settings = resolveSettings(loaded, {});
  const live = liveSettings({ loaded, load, resolve: (changed) => resolveSettings(changed, {}), logger });
  const kept = await liveModels({
    settings,
    variables: loaded.variables,
    live,
    make: ({ models }, environment) =>
      createModelRegistry({
        entries: models.map((model) => ({ ...model, use: model.use ?? '', model: model.model ?? '' }) as never),
        environment,
        logger,
        factories: { fake: () => new ScriptedChatModel({ script: turns([]) }) },
      }),
    view: (registry) => registry.list() as never,
    secrets: ({ models }) => models.map((model) => String(model.api_key)),
  });
  return { ...kept, live, told, loads: () => loads };
}

describe('a file that changes while the process runs', () => {
  test('the next choice has the models and the title of now', verifies('CFG-4a', 'GW-27'), async () => {
    await write(`${MODELS('a')}title:\n  max_words: 3\n`);
    const { models, views, names, title, secrets } = await begin();
    expect((await models.choose({ name: null })).entry.name).toBe('a');
    await write(`${MODELS('b', 'c')}title:\n  enabled: false\n`);
    expect((await models.choose({ name: null })).entry.name).toBe('b');
    expect((await models.choose({ name: 'c' })).entry.name).toBe('c');
    expect([views.map(({ name }) => name), names]).toEqual([
      ['b', 'c'],
      ['b', 'c'],
    ]);
    // What is gone has its default again.
    expect(title).toMatchObject({ enabled: false, maxWords: 6 });
    // The key that was taken out is still a secret.
    expect(secrets).toEqual(['key-of-a', 'key-of-b', 'key-of-c']);
  });

  test('the content counts, not the time; the same content is read once', verifies('CFG-4a'), async () => {
    await write(MODELS('a'));
    const { models, loads } = await begin();
    const old = new Date(0);
    await utimes(join(folder, 'config.yaml'), old, old);
    await models.choose({ name: null });
    await models.choose({ name: null });
    const before = loads();
    await models.choose({ name: null });
    expect(loads()).toBe(before);
    // As long as before, and with the same time.
    await write(MODELS('b'));
    await utimes(join(folder, 'config.yaml'), old, old);
    const [first, second] = await Promise.all([models.choose({ name: null }), models.choose({ name: null })]);
    expect([first.entry.name, second.entry.name]).toEqual(['b', 'b']);
    expect(loads()).toBe(before + 1);
  });

  test('a variable of .env is part of it', verifies('CFG-4a'), async () => {
    await write('models:\n  - name: a\n    use: fake\n    model: $WHICH\n');
    await write('WHICH=one\n', '.env');
    const { models } = await begin();
    expect((await models.choose({ name: 'a' })).entry.model).toBe('one');
    await write('WHICH=two\n', '.env');
    expect((await models.choose({ name: 'a' })).entry.model).toBe('two');
  });

  test.each([
    ['is no YAML', 'models: [a\nb: c\n', /not valid YAML/],
    ['has a wrong value', `${MODELS('b')}title:\n  max_words: many\n`, /line 7: title\.max_words must be a number/],
    [
      'asks for a variable that is not set',
      'models:\n  - name: b\n    api_key: $NOT_SET\n',
      /NOT_SET, which is not set/,
    ],
    ['names a provider that is not there', MODELS('b').replace('fake', 'nowhere'), /nowhere\\+", which is not known/],
    ['opens the port to all', `${MODELS('b')}server:\n  host: 0.0.0.0\n`, /Set a token first/],
  ])('one that %s changes nothing and is told once', verifies('CFG-4a', 'GW-27'), async (_, text, told) => {
    await write(`${MODELS('a')}title:\n  max_words: 3\n`);
    const { models, title, names, told: log } = await begin();
    await write(text);
    for (let time = 0; time < 3; time++) expect((await models.choose({ name: null })).entry.name).toBe('a');
    expect([names, title.maxWords]).toEqual([['a'], 3]);
    expect(log).toEqual([expect.stringMatching(told)]);
    // And put right again it counts.
    await write(MODELS('c'));
    expect((await models.choose({ name: null })).entry.name).toBe('c');
  });

  test('what counts at the start only is named with its reason, and stays', verifies('CFG-4b', 'GW-27'), async () => {
    await write(MODELS('a'));
    const { models, told } = await begin();
    await write(`${MODELS('b')}server:\n  port: 3000\n`);
    await models.choose({ name: null });
    expect(told).toEqual([
      'The configuration changed {"counts":["models"]}',
      expect.stringMatching(/^server: the change counts after a restart\. The port is open\./),
    ]);
    await models.choose({ name: null });
    expect(told).toHaveLength(2);
  });
});

test('every section counts either from the next run or from the next start, with a reason', verifies('CFG-4b'), () => {
  const lists = [RELOADED, Object.keys(STARTUP_ONLY), OF_THE_FILE];
  const listed = lists.flat();
  expect(listed.toSorted()).toEqual(Object.keys(configSchema.shape).toSorted());
  expect(new Set(listed).size).toBe(listed.length);
  for (const reason of Object.values(STARTUP_ONLY)) expect(reason).toMatch(/^[A-Z].{15,}\.$/);
  expect(listed.filter((key) => SECTIONS_WITHOUT_EFFECT.includes(key))).toEqual([]);
});
