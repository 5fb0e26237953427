import { readFile } from 'node:fs/promises';
import { ReindeerError } from '@reindeer/protocol';

/**
 * The object in a file of the server's own; empty without a file.
 *
 * @throws ReindeerError `configuration` with `damaged` for what is no JSON object: the parser's own message would quote the file
 */
export async function readJsonFile(file: string, damaged: string): Promise<Readonly<Record<string, unknown>>> {
  let text: string;
  try {
    text = await readFile(file, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return {};
    throw error;
  }
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  } catch {
    // Told below.
  }
  throw new ReindeerError('configuration', damaged);
}
