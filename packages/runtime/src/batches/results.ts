import type { Batch, ClaimedItem, Logger, SandboxFiles } from '@reindeer/protocol';
import type { BatchSettings } from './settings.ts';

/** Where the files of a batch stand in its thread's files. */
export const folderOf = (batchId: string): string => `/mnt/user-data/outputs/batches/${batchId}`;

export type FilesOf = (thread: { readonly userId: string; readonly threadId: string }) => SandboxFiles;

/** What of a result goes into the row, and where the rest is (BT-15). */
export interface KeptResult {
  readonly result: string;
  readonly resultPreview: string;
  readonly resultTruncated: boolean;
  readonly resultFile: string | null;
}

export class ResultKeeper {
  readonly #files: FilesOf | null;
  readonly #settings: Pick<BatchSettings, 'maxResultChars' | 'previewChars'>;
  readonly #logger: Logger;

  /** @param files null = there is no place for files: what the row does not hold is lost, and the flag says so */
  constructor(files: FilesOf | null, settings: Pick<BatchSettings, 'maxResultChars' | 'previewChars'>, logger: Logger) {
    this.#files = files;
    this.#settings = settings;
    this.#logger = logger;
  }

  /** Bounds a result. One that is too long for its row stands whole in a file of the thread. Never rejects. */
  async keep(batch: Batch, item: ClaimedItem, text: string): Promise<KeptResult> {
    const { maxResultChars, previewChars } = this.#settings;
    const resultPreview = cut(text, previewChars);
    if (text.length <= maxResultChars) return { result: text, resultPreview, resultTruncated: false, resultFile: null };
    const resultFile = await this.#write(batch, item, text);
    return { result: cut(text, maxResultChars), resultPreview, resultTruncated: true, resultFile };
  }

  async #write(batch: Batch, item: ClaimedItem, text: string): Promise<string | null> {
    if (this.#files === null) return null;
    // Named by its position: a key may be no file name.
    const path = `${folderOf(batch.batchId)}/results/${item.position}.txt`;
    try {
      await this.#files({ userId: batch.userId, threadId: batch.threadId }).write(path, text);
      return path;
    } catch (error) {
      this.#logger.warn('A long result of a batch item could not be written to its file', {
        itemId: item.lease.itemId,
        error: String(error),
      });
      return null;
    }
  }
}

/** At most `limit` characters, and no half of a pair at the end. */
const cut = (text: string, limit: number): string =>
  text
    .slice(0, limit)
    .toWellFormed()
    .replace(/\uFFFD$/u, '');
