import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { NO_LOG } from '@reindeer/protocol';
import { testSurroundings, verifies } from '@reindeer/testkit';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { loadConfig } from './config/load.ts';
import { resolveSettings } from './config/settings.ts';
import { ownMemory, ownOwnership, ownPolicies, ownSandboxes, ownTools } from './own-parts.ts';

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'reindeer-own-parts-'));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

const file = (name: string, text: string) => writeFile(join(folder, name), text);
async function settings(text: string) {
  await file('config.yaml', text);
  const loaded = await loadConfig({ cwd: folder, environment: {} });
  return { ...resolveSettings(loaded, {}), told: loaded.warnings };
}
const parts = { secrets: [], logger: NO_LOG };
const surroundings = testSurroundings();
const TOOL = (more = '') =>
  `({ description: 'Shouts.', parameters: { type: 'object', properties: {} }, run: () => 'hey' ${more} })`;

describe('tools of one’s own', () => {
  test('come from a module or an installed package, with what their entry says', verifies('TOOL-18'), async () => {
    await file(
      'tools.mjs',
      `export const plain = ${TOOL()};\nexport const made = ({ word }) => ({ ...plain, description: word });`,
    );
    const installed = join(folder, 'node_modules/@me/tools');
    await mkdir(installed, { recursive: true });
    // Only for `import`, as most packages are by now.
    await writeFile(
      join(installed, 'package.json'),
      '{"name": "@me/tools", "type": "module", "exports": {".": {"import": "./main.js"}}}',
    );
    await writeFile(join(installed, 'main.js'), `export const packed = async () => ${TOOL()};`);
    const given = await settings(
      `tools:
  - {name: ls}
  - {name: shout, group: noise, use: './tools.mjs:plain'}
  - {name: whisper, use: './tools.mjs:made', word: Whispers.}
  - {name: web_search, use: 'npm:@me/tools:packed', key: value}
`,
    );
    const tools = await ownTools(given, parts);
    expect(tools.map(({ name, description }) => [name, description])).toEqual([
      ['shout', 'Shouts.'],
      ['whisper', 'Whispers.'],
      ['web_search', 'Shouts.'],
    ]);
    expect(given.told).toEqual([]);
    expect(given.tools).toMatchObject({ sandbox: ['ls'], web: [], groups: new Map([['shout', 'noise']]) });
  });

  test.each([
    ['bash', './tools.mjs:plain', /"bash" is the name of a tool of Reindeer/],
    ['task', './tools.mjs:plain', /"task" is the name of a tool of Reindeer/],
    ['a b', './tools.mjs:plain', /"a b" may only have letters/],
    ['a', './tools.mjs:plian', /tools: a: .* exports no "plian"\. Did you mean "plain"/],
    ['a', './none.mjs:plain', /tools: a: the module .* does not exist/],
    ['a', 'npm:not-there:plain', /the package not-there is not installed in .* npm install not-there/],
    ['a', './tools.mjs:text', /tools: a: it is no tool/],
    ['a', './tools.mjs:failing', /tools: a: its function failed: no key/],
  ])('"%s" from %s is refused with what to do', verifies('TOOL-18'), async (name, use, message) => {
    await file(
      'tools.mjs',
      `export const plain = ${TOOL()};\nexport const text = 'text';\nexport const failing = () => { throw new Error('no key'); };`,
    );
    const made = async () => await ownTools(await settings(`tools:\n  - {name: '${name}', use: '${use}'}\n`), parts);
    await expect(made()).rejects.toMatchObject({ code: 'configuration', message: expect.stringMatching(message) });
  });
});

describe('other parts of one’s own', () => {
  test(
    'a guardrail, an authorization and a safety detector, with settings of their own',
    verifies('EXT-4', 'SAFE-2'),
    async () => {
      await file(
        'policy.mjs',
        `export const policy = ({ forbidden }) => ({ decide: ({ toolName }) => ({ allow: toolName !== forbidden, reasons: [] }) });
export const roles = ({ boss }) => ({ permits: ({ userId }, resource, name) => userId === boss || (name === 'ls' && 'yes') });
export const detector = () => ({ name: 'mine', detect: () => 'found' });`,
      );
      const given = await settings(
        `guardrails:
  enabled: true
  provider: {use: './policy.mjs:policy', config: {forbidden: ls}}
authorization:
  enabled: true
  provider: {use: './policy.mjs:roles', config: {boss: ann}}
safety_finish_reason: {detectors: [openai, './policy.mjs:detector']}
`,
      );
      const { guardrail, authorization, detectors } = await ownPolicies(given);
      const decide = async (toolName: string) => (await guardrail?.decide({ toolName } as never, undefined))?.allow;
      expect([await decide('ls'), await decide('bash')]).toEqual([false, true]);
      const permits = (userId: string, name: string) =>
        authorization?.permits({ userId, role: 'user', channel: null }, 'tools', name);
      // Only a plain yes is one.
      expect([await permits('ann', 'bash'), await permits('bob', 'ls')]).toEqual([true, false]);
      expect(detectors.map(({ name, detect }) => [name, detect({} as never)])).toEqual([['mine', 'found']]);
      expect(given.agent.safeguards.safetyFinish.detectors).toEqual(['openai']);
      expect(given.told).toEqual([]);
      await expect(settings('safety_finish_reason: {detectors: [mine]}\n')).rejects.toThrow(
        /or \.\/module\.mjs:export/,
      );
    },
  );

  test('a memory, sandboxes and an ownership store; what lacks something is refused', verifies('EXT-4'), async () => {
    const methods = (names: string) => names.split(' ').map((name) => `${name}: async () => null`);
    await file(
      'parts.mjs',
      `export const memory = ({ config }) => ({ config, ${methods('context capture')} });
export const sandboxes = (given) => ({ given, ${methods('report acquire get release files removeThread shutdown')} });
export const store = () => ({ ownerId: 'me', seesPeers: true, ${methods('take claim renew release owner close')} });
export const nameless = () => ({ ${methods('take claim renew release owner close')} });
export const half = () => ({ context: 1 });`,
    );
    const given = await settings(
      `memory: {manager_class: './parts.mjs:memory', backend_config: {anything: 1}}
sandbox: {use: './parts.mjs:sandboxes', region: north, ownership: {type: './parts.mjs:store'}}
`,
    );
    expect(given.told).toEqual([]);
    expect(await ownMemory(given, surroundings)).toMatchObject({ config: { anything: 1 } });
    expect(await ownSandboxes(given, surroundings)).toMatchObject({
      given: { home: join(folder, '.reindeer'), config: { region: 'north' } },
    });
    expect(await ownOwnership(given, surroundings)).toMatchObject({ ownerId: 'me' });
    expect(await ownMemory(await settings(''), surroundings)).toBeNull();

    const half = await settings("memory: {manager_class: './parts.mjs:half'}\n");
    await expect(ownMemory(half, surroundings)).rejects.toThrow(
      /memory\.manager_class: .* it has no context\(\), capture\(\)\./,
    );
    const nameless = await settings("sandbox: {use: container, ownership: {type: './parts.mjs:nameless'}}\n");
    await expect(ownOwnership(nameless, surroundings)).rejects.toThrow(/has no ownerId/);
  });
});
