import { chmod, lstat, mkdir, mkdtemp, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { verifies } from '@reindeer/testkit';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { ExtensionsFile } from './extensions.ts';

let root: string;
beforeEach(async () => {
  const parent = await mkdtemp(join(tmpdir(), 'reindeer-extensions-'));
  root = join(parent, 'project');
  await mkdir(root);
});
afterEach(() => rm(join(root, '..'), { recursive: true, force: true }));

const file = (options: Partial<ConstructorParameters<typeof ExtensionsFile>[0]> = {}) =>
  new ExtensionsFile({ root, variables: () => ({}), overrides: () => null, ...options });
const path = (): string => join(root, 'extensions_config.json');

test(
  'without a file there is nothing; the first entry makes one that only this user can read',
  verifies('CFG-5'),
  async () => {
    expect(await file().raw()).toEqual({});
    await file().update('mcpServers', () => ({ a: { command: 'npx' } }));
    expect(JSON.parse(await readFile(path(), 'utf8'))).toEqual({ mcpServers: { a: { command: 'npx' } } });
    expect((await stat(path())).mode & 0o777).toBe(0o600);
  },
);

test(
  'placeholders survive a write and are filled in for use; a missing variable becomes empty; config.yaml stands above',
  verifies('CFG-2', 'CFG-5'),
  async () => {
    await writeFile(path(), JSON.stringify({ mcp_servers: { a: { env: { T: '$TOKEN', U: '$NONE' } } }, future: [1] }));
    const extensions = file({ variables: () => ({ TOKEN: 'value' }) });
    await extensions.update('skills', () => ({ x: { enabled: false } }));
    expect(JSON.parse(await readFile(path(), 'utf8'))).toEqual({
      mcpServers: { a: { env: { T: '$TOKEN', U: '$NONE' } } },
      future: [1],
      skills: { x: { enabled: false } },
    });
    expect((await extensions.resolved()).mcpServers).toEqual({ a: { env: { T: 'value', U: '' } } });
    const above = file({ overrides: () => ({ mcp_servers: { b: {} } }) });
    expect((await above.resolved()).mcpServers).toEqual({ b: {} });
    await expect(above.update('mcpServers', () => ({}))).rejects.toThrow(/set in config.yaml/);
  },
);

test(
  'a write goes through a link, keeps the mode, and leaves nothing beside it; a refused one changes nothing',
  verifies('CFG-5'),
  async () => {
    const target = join(root, '..', 'real.json');
    await writeFile(target, '{"skills": {}}');
    await chmod(target, 0o640);
    await symlink(target, path());
    await file().update('mcpServers', () => ({}));
    expect((await stat(target)).mode & 0o777).toBe(0o640);
    const written = await readFile(target, 'utf8');
    expect(JSON.parse(written)).toEqual({ skills: {}, mcpServers: {} });
    expect((await lstat(path())).isSymbolicLink()).toBe(true);
    await expect(
      file().update('mcpServers', () => {
        throw new Error('no');
      }),
    ).rejects.toThrow('no');
    expect(await readFile(target, 'utf8')).toBe(written);
    expect(await readdir(root)).toEqual(['extensions_config.json']);
  },
);

test(
  'writers of one process come one after another, whichever part they change: none is lost',
  verifies('CFG-5', 'BL-03'),
  async () => {
    const extensions = file();
    await Promise.all(
      Array.from({ length: 20 }, (_, at) =>
        extensions.update(at % 2 === 0 ? 'skills' : 'mcpServers', (before) => ({
          ...(before as object),
          [`s${at}`]: { enabled: true },
        })),
      ),
    );
    const { skills, mcpServers } = await extensions.raw();
    expect([skills, mcpServers].map((part) => Object.keys((part ?? {}) as object).length)).toEqual([10, 10]);
  },
);

test(
  'a file that is named must exist; a broken one is named with the line and without its text',
  verifies('CFG-5'),
  async () => {
    await expect(
      file({ variables: () => ({ REINDEER_EXTENSIONS_CONFIG_PATH: 'nowhere.json' }) }).check(),
    ).rejects.toThrow(/nowhere\.json cannot be read \(ENOENT\)/);
    await writeFile(path(), '{\n  "mcpServers": {"a": {"env": {"T": "hush"}}\n');
    await expect(file().check()).rejects.toThrow(
      /extensions_config\.json is no JSON: (line \d has a mistake|it ends too early)/,
    );
    await expect(file().check()).rejects.not.toThrow(/hush/);
    await writeFile(path(), '[]');
    await expect(file().check()).rejects.toThrow(/must hold one JSON object/);
  },
);

test('looked for in the project folder, then its parent, then under its earlier name', verifies('CFG-5'), async () => {
  await writeFile(join(root, 'mcp_config.json'), '{"mcpServers": {"old": {}}}');
  expect(await file().raw()).toEqual({ mcpServers: { old: {} } });
  await writeFile(join(root, '..', 'extensions_config.json'), '{"mcpServers": {"parent": {}}}');
  expect(await file().raw()).toEqual({ mcpServers: { parent: {} } });
  await writeFile(path(), '{"mcpServers": {"own": {}}}');
  expect(await file().raw()).toEqual({ mcpServers: { own: {} } });
});

test('what could not be read again is not written: the next start would fail', verifies('CFG-5'), async () => {
  await file().update('mcpServers', () => ({ a: { command: 'npx' } }));
  await expect(
    file().update('mcpServers', () => ({ a: { command: 'npx', description: 'x'.repeat(3 * 1024 * 1024) } })),
  ).rejects.toMatchObject({ code: 'too_large' });
  expect(await file().raw()).toEqual({ mcpServers: { a: { command: 'npx' } } });
});
