import { glob, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { toolTitle } from './tools.ts';

const AGENT = join(import.meta.dirname, '../../../agent/src');

/** The names that tools are defined with, as they stand in the sources: literally, or as a constant. */
async function definedTools(): Promise<readonly string[]> {
  const named: string[] = [];
  const constants = new Map<string, string>();
  for await (const file of glob('**/*.ts', { cwd: AGENT, exclude: (name) => /\.test\.ts$|test-support/.test(name) })) {
    const text = await readFile(join(AGENT, file), 'utf8');
    for (const [, name = '', value = ''] of text.matchAll(/const ([A-Z_]+) = '(\w+)'/g)) constants.set(name, value);
    for (const [, name = ''] of text.matchAll(/defineTool\(\{\s*name: ([^,]+),/g)) named.push(name);
  }
  return named.map((name) => constants.get(name) ?? name.replaceAll("'", ''));
}

test('every tool that comes along has a title in both languages', async () => {
  const tools = await definedTools();
  expect(tools).toEqual(expect.arrayContaining(['bash', 'batch_wait', 'web_fetch', 'task']));
  expect(tools.filter((name) => toolTitle(name, 'en') === name)).toEqual([]);
  expect(tools.filter((name) => !/\p{Script=Han}/u.test(toolTitle(name, 'zh')))).toEqual([]);
});

test('other tools keep their names, whatever they are called', () => {
  for (const name of ['all_echo', 'result', 'constructor', '']) {
    expect(toolTitle(name, 'en')).toBe(name);
    expect(toolTitle(name, 'zh')).toBe(name);
  }
});
