import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createModelRegistry } from '@reindeer/agent';
import { NO_LOG } from '@reindeer/protocol';
import { verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { loadConfig } from './config/load.ts';
import { resolveSettings } from './config/settings.ts';
import { ownModels } from './own-models.ts';

test('a model of one’s own is made with what its entry says; what is none is refused', verifies('CFG-6'), async () => {
  const folder = await mkdtemp(join(tmpdir(), 'reindeer-own-models-'));
  try {
    const entry = (name: string) =>
      `  - {name: ${name}, use: './mine.mjs:${name}', model: m1, api_key: k1, top_p: 0.5}\n`;
    await writeFile(join(folder, 'config.yaml'), `models:\n${entry('good')}${entry('bad')}`);
    await writeFile(
      join(folder, 'mine.mjs'),
      'export const good = (options) => ({ options, async *_streamResponseChunks() {} });\nexport const bad = () => "text";\n',
    );
    const settings = resolveSettings(await loadConfig({ cwd: folder, environment: {} }), {});
    const registry = createModelRegistry({
      entries: settings.models as never,
      environment: {},
      logger: NO_LOG,
      factories: await ownModels(settings),
    });
    expect((await registry.choose({ name: 'good' })).model).toMatchObject({
      options: { model: 'm1', apiKey: 'k1', settings: { top_p: 0.5 } },
    });
    await expect(registry.choose({ name: 'bad' })).rejects.toThrow(/"bad": \.\/mine\.mjs:bad made no chat model/);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});
