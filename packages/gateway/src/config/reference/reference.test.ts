import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { needsRestart, STARTUP_ONLY } from '../reload.ts';
import { KEYS } from './keys.ts';
import { configurationReference, schemaKeys } from './render.ts';

const PAGE = fileURLToPath(new URL('../../../../../docs/configuration-reference.md', import.meta.url));

test('every key is explained, and nothing that is no key', () => {
  expect(Object.keys(KEYS).toSorted()).toEqual(
    schemaKeys()
      .map(({ path }) => path)
      .toSorted(),
  );
});

test('the page is that of the schema; npm run reference writes it', async () => {
  expect(await readFile(PAGE, 'utf8')).toBe(configurationReference());
});

test('each key says from when a change of it counts', verifies('CFG-4b'), () => {
  const page = configurationReference();
  for (const [key, reason] of Object.entries(STARTUP_ONLY))
    expect(page).toContain(key.includes('.') ? `- \`${key}\`: ${reason}\n` : `## ${key}\n\nstartup-only: ${reason}\n`);
  const rows = page.split('\n').filter((line) => line.startsWith('| `'));
  for (const row of rows) {
    const [, path = '', , , from] = row
      .split(' | ')
      .join('|')
      .split('|')
      .map((cell) => cell.trim());
    const key = path.replaceAll('`', '');
    if (key !== 'config_version')
      expect([key, from]).toEqual([key, needsRestart(key) === null ? 'next run' : 'restart']);
  }
  expect(rows.filter((row) => row.includes('| restart |')).length).toBeGreaterThan(20);
});
