import { chown, lstat, mkdir, readdir, rm, writeFile } from 'node:fs/promises';
import { passwdFile } from '../bubblewrap/system-view.ts';

/** Younger folders may belong to a container that is being started. */
const STALE_MS = 10 * 60 * 1000;

/**
 * One private folder per container, mounted into it: the secret until the server has read it, the server's socket, the account file. A
 * folder is named by the container's nonce, so that a later container of the same thread never meets what an earlier one left.
 */
export class RunFolders {
  readonly #root: string;

  constructor(root: string) {
    this.#root = root;
  }

  of(nonce: string): string {
    return `${this.#root}/${nonce}`;
  }

  /**
   * @param owner user and group of the container's processes, as they see themselves; null = as the image says
   * @param options.give hand the folder over to them; not where the engine maps their ids to ours
   */
  async make(
    nonce: string,
    secret: string,
    owner: { readonly uid: number; readonly gid: number } | null,
    options: { readonly give: boolean },
  ): Promise<string> {
    const folder = this.of(nonce);
    await mkdir(folder, { recursive: true, mode: 0o700 });
    await writeFile(`${folder}/secret`, secret, { mode: 0o400, flag: 'wx' });
    if (owner !== null) {
      await writeFile(`${folder}/passwd`, passwdFile(owner.uid, owner.gid), { mode: 0o644 });
      if (options.give && process.getuid?.() === 0)
        for (const path of [`${folder}/secret`, folder]) await chown(path, owner.uid, owner.gid);
    }
    return folder;
  }

  async remove(nonce: string): Promise<void> {
    await rm(this.of(nonce), { recursive: true, force: true });
  }

  /** Removes folders of containers that are gone. @param live nonces of all containers that there are */
  async sweep(live: ReadonlySet<string>, now: number): Promise<void> {
    for (const name of await readdir(this.#root).catch(() => [])) {
      if (live.has(name)) continue;
      const info = await lstat(this.of(name)).catch(() => null);
      if (info !== null && now - info.ctimeMs > STALE_MS) await this.remove(name);
    }
  }
}
