import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { verifies } from '@reindeer/testkit';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { isOwnModule, ownMaker } from './class-path.ts';

let folder = '';
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'reindeer-class-path-'));
  await writeFile(
    join(folder, 'mine.mjs'),
    'export const createModel = (options) => ({ made: options });\nexport const size = 3;\n',
  );
  await writeFile(join(folder, 'needy.mjs'), "import 'a-package-that-nobody-has';\n");
  await writeFile(join(folder, 'broken.mjs'), 'export const = 1;\n');
});
afterEach(async () => {
  await rm(folder, { recursive: true, force: true });
});

test('an export of a module of one’s own, from the project folder or anywhere', verifies('CFG-6'), async () => {
  const maker = await ownMaker('./mine.mjs:createModel', folder, 'models');
  expect(maker({ model: 'm' } as never)).toEqual({ made: { model: 'm' } });
  expect(await ownMaker(`${join(folder, 'mine.mjs')}:createModel`, '/', 'models')).toBe(maker);
  expect(['./a.mjs:make', '../a.mjs:make', '/a/b.mjs:make'].every(isOwnModule)).toBe(true);
  expect(['openai', 'langchain_openai:ChatOpenAI', './a.mjs', 'https://x.org/a.mjs:make'].some(isOwnModule)).toBe(
    false,
  );
});

test.each([
  [
    'no such module',
    './none.mjs:make',
    /models: the module .*none\.mjs, or one that it imports, does not exist\. Correct the path/,
  ],
  [
    'a package that is not installed',
    './needy.mjs:make',
    /needs the package a-package-that-nobody-has.*npm install a-package-that-nobody-has/,
  ],
  ['a module that is broken', './broken.mjs:make', /broken\.mjs cannot be loaded/],
  [
    'no such export',
    './mine.mjs:createModle',
    /exports no "createModle"\. Did you mean "createModel"\? It exports: createModel, size\./,
  ],
  ['an export of another type', './mine.mjs:size', /"size" of .* is no function but number/],
])('%s has an error of its own', verifies('CFG-6'), async (_, use, message) => {
  await expect(ownMaker(use, folder, 'models')).rejects.toMatchObject({
    code: 'configuration',
    message: expect.stringMatching(message),
  });
});
