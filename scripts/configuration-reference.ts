// Writes docs/configuration-reference.md from the schema of the configuration.
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { configurationReference } from '../packages/gateway/src/config/reference/render.ts';

const page = join(import.meta.dirname, '../docs/configuration-reference.md');
await writeFile(page, configurationReference());
console.log(`Written: ${page}`);
