import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { CREDENTIALS, type CredentialStore } from '@reindeer/channels';
import { ReindeerError } from '@reindeer/protocol';
import { replaceFile } from '@reindeer/sandbox';

type Entries = Readonly<Record<string, Readonly<Record<string, string>>>>;

/**
 * What was entered in the page, in a file of the data folder that only its owner reads. It stands above the configuration. Reads of a file that is
 * broken fail, so that no bot is silently another one; a write begins with what can be read.
 */
export function fileCredentials(home: string): CredentialStore {
  const file = join(home, 'channels', 'runtime-config.json');
  let writing: Promise<unknown> = Promise.resolve();
  const readAll = async (): Promise<Entries> => {
    let text: string;
    try {
      text = await readFile(file, 'utf8');
    } catch (cause) {
      if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return {};
      throw broken(cause);
    }
    try {
      return entriesOf(JSON.parse(text));
    } catch (cause) {
      throw broken(cause);
    }
  };
  const broken = (cause: unknown) =>
    new ReindeerError(
      'configuration',
      `The file ${file} cannot be read. Correct it or delete it, then enter the credentials again.`,
      {
        cause,
      },
    );
  return {
    read: async (provider) => (await readAll())[provider] ?? null,
    write: (provider, values) => {
      const write = async (): Promise<void> => {
        const { [provider]: _before, ...others } = await readAll();
        const next = values === null ? others : { ...others, [provider]: values };
        await replaceFile(file, `${JSON.stringify(next, null, 2)}\n`, 0o600);
      };
      const written = writing.then(write);
      writing = written.catch(() => {});
      return written;
    },
  };
}

function entriesOf(value: unknown): Entries {
  const entries: Record<string, Record<string, string>> = {};
  if (typeof value !== 'object' || value === null) return entries;
  for (const [provider, { fields }] of Object.entries(CREDENTIALS)) {
    const given: unknown = (value as Record<string, unknown>)[provider];
    if (typeof given !== 'object' || given === null) continue;
    const known = fields.flatMap(({ name }) => {
      const text: unknown = (given as Record<string, unknown>)[name];
      return typeof text === 'string' ? [[name, text] as const] : [];
    });
    entries[provider] = Object.fromEntries(known);
  }
  return entries;
}
