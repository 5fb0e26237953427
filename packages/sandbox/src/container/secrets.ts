import { createHash, createHmac, randomBytes } from 'node:crypto';
import { link, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { ReindeerError } from '@reindeer/protocol';

const KEY_BYTES = 32;

/**
 * The secrets of containers, derived from one key in the data folder: every instance that shares the folder can use a container that
 * another one started, and nothing has to be kept per container.
 */
export class ContainerSecrets {
  readonly #key: Buffer;

  private constructor(key: Buffer) {
    this.#key = key;
  }

  /** Reads the key, or makes it; of two that make it at once, one wins for both. */
  static async open(file: string): Promise<ContainerSecrets> {
    const existing = await readFile(file).catch(() => null);
    if (existing !== null) return new ContainerSecrets(checked(existing, file));
    await mkdir(dirname(file), { recursive: true, mode: 0o700 });
    const draft = `${file}.${randomBytes(6).toString('hex')}`;
    await writeFile(draft, randomBytes(KEY_BYTES), { mode: 0o600, flag: 'wx' });
    try {
      // A link cannot replace what is there, and appears whole.
      await link(draft, file).catch((error: unknown) => {
        if (!(error instanceof Error && 'code' in error && error.code === 'EEXIST')) throw error;
      });
    } finally {
      await rm(draft, { force: true });
    }
    return new ContainerSecrets(checked(await readFile(file), file));
  }

  /** @param nonce of one container */
  of(nonce: string): string {
    return createHmac('sha256', this.#key).update(`sandbox\0${nonce}`).digest('hex');
  }

  /** What a server may know that is handed no file: by it a secret is recognised, and not found. */
  hashOf(nonce: string): string {
    return createHash('sha256').update(this.of(nonce)).digest('hex');
  }
}

function checked(key: Buffer, file: string): Buffer {
  if (key.length === KEY_BYTES) return key;
  throw new ReindeerError(
    'configuration',
    `${file} is damaged: it must hold ${KEY_BYTES} bytes. Stop all containers of this data folder, remove the file and start again.`,
  );
}
