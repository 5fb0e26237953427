import { createHash } from 'node:crypto';

/** In `additional_kwargs` of a result of `read_file`: which file was read, and the SHA-256 (hex) of all its bytes. */
export const READ_MARK = 'reindeer_read_mark';
/** In `additional_kwargs` of the result of a tool that changed a file: its path. */
export const WRITE_MARK = 'reindeer_write_mark';

export interface ReadMark {
  /** Normalised virtual path. */
  readonly path: string;
  readonly sha256: string;
}

/** Files above this are hashed off the loop. */
const ON_LOOP_BYTES = 256 * 1024;

export const markOf = async (path: string, bytes: Uint8Array): Promise<ReadMark> => ({
  path,
  sha256: await sha256Of(bytes),
});

export async function sha256Of(bytes: Uint8Array): Promise<string> {
  if (bytes.length <= ON_LOOP_BYTES) return createHash('sha256').update(bytes).digest('hex');
  const digest = await globalThis.crypto.subtle.digest('SHA-256', bytes as Uint8Array<ArrayBuffer>);
  return Buffer.from(digest).toString('hex');
}
