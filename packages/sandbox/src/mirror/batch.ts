import type { Directory } from '../files/directory.ts';

interface Held {
  readonly key: string;
  readonly folder: Promise<Directory>;
  users: number;
  /** Another one has taken its place: the last user closes it. */
  left: boolean;
}

/**
 * The folder that was used last, kept open. Entries come folder by folder, and walking down to a folder anew for each costs more than the entry.
 * It is the very folder that was opened: whoever moves it away meanwhile takes along what is put into it, as with a folder that is opened for one entry.
 */
export class FolderBatch {
  #held: Held | null = null;

  async use<T>(key: string, open: () => Promise<Directory>, body: (folder: Directory) => Promise<T>): Promise<T> {
    let held = this.#held;
    const before = held?.key === key ? null : held;
    if (held === null || before !== null) {
      held = { key, folder: open(), users: 0, left: false };
      // It is heard of by who uses it.
      held.folder.catch(() => {});
      this.#held = held;
    }
    // Before anything is waited for: what is used is not closed, and the one that was found is the one that is used.
    held.users += 1;
    try {
      if (before !== null) await leave(before);
      return await body(await held.folder);
    } catch (error) {
      // What could not be opened, or is no more, may be there for the next one.
      if (this.#held === held) {
        this.#held = null;
        held.left = true;
      }
      throw error;
    } finally {
      held.users -= 1;
      if (held.left) await closed(held);
    }
  }

  /** Idempotent. What is still used is closed by its user. */
  async close(): Promise<void> {
    const held = this.#held;
    this.#held = null;
    if (held !== null) await leave(held);
  }
}

async function leave(held: Held): Promise<void> {
  held.left = true;
  await closed(held);
}

async function closed(held: Held): Promise<void> {
  if (held.users > 0) return;
  const folder = await held.folder.catch(() => null);
  await folder?.close();
}
