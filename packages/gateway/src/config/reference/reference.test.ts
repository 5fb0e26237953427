import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { STARTUP_ONLY } from '../reload.ts';
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

test('what needs a restart is described as such', verifies('CFG-4b'), () => {
  const page = configurationReference();
  for (const [name, reason] of Object.entries(STARTUP_ONLY))
    expect(page).toContain(`## ${name}\n\nstartup-only: ${reason}\n`);
  expect(page.match(/^startup-only: /gm)).toHaveLength(Object.keys(STARTUP_ONLY).length);
});
