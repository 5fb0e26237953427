import { chown, lstat, mkdir, readdir, rm, writeFile } from 'node:fs/promises';
import { passwdFile } from '../bubblewrap/system-view.ts';
import { threadPaths } from '../folders.ts';

/** Which container's: its thread's, and of the thread's containers the one with this nonce. */
export interface RunFolderOf {
  readonly userId: string;
  readonly threadId: string;
  readonly nonce: string;
}

/** Younger folders may belong to a container that a peer tries to start. */
const STALE_MS = 60_000;

/**
 * One private folder per container, mounted into it: the secret until the server has read it, the server's socket, the account file. A
 * folder is named by the container's nonce, so that a later container of the same thread never meets what an earlier one left. It lies
 * in the thread's folder: what a command writes there counts as the thread's disk space.
 */
export class RunFolders {
  readonly #home: string;

  constructor(home: string) {
    this.#home = home;
  }

  of(container: RunFolderOf): string {
    return `${this.#root(container)}/${container.nonce}`;
  }

  /**
   * @param owner user and group of the container's processes, as they see themselves; null = as the image says
   * @param options.give hand the folder over to them; not where the engine maps their ids to ours
   */
  async make(
    container: RunFolderOf,
    secret: string,
    owner: { readonly uid: number; readonly gid: number } | null,
    options: { readonly give: boolean },
  ): Promise<string> {
    const folder = this.of(container);
    await mkdir(folder, { recursive: true, mode: 0o700 });
    await writeFile(`${folder}/secret`, secret, { mode: 0o400, flag: 'wx' });
    if (owner !== null) {
      await writeFile(`${folder}/passwd`, passwdFile(owner.uid, owner.gid), { mode: 0o644 });
      if (options.give && process.getuid?.() === 0)
        for (const path of [`${folder}/secret`, folder]) await chown(path, owner.uid, owner.gid);
    }
    return folder;
  }

  async remove(container: RunFolderOf): Promise<void> {
    await rm(this.of(container), { recursive: true, force: true });
  }

  /** Removes what earlier containers of the thread left. Only while this one runs: then there is no other. */
  async sweep(container: RunFolderOf, now: number): Promise<void> {
    const root = this.#root(container);
    for (const nonce of await readdir(root).catch(() => [])) {
      if (nonce === container.nonce) continue;
      const info = await lstat(`${root}/${nonce}`).catch(() => null);
      if (info !== null && now - info.ctimeMs > STALE_MS) await this.remove({ ...container, nonce });
    }
  }

  #root({ userId, threadId }: RunFolderOf): string {
    return `${threadPaths(this.#home, userId, threadId).thread}/run`;
  }
}
