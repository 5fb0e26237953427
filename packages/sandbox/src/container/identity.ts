import { stat } from 'node:fs/promises';
import { PRIVATE_GID } from '../bubblewrap/arguments.ts';
import type { ThreadKey } from '../executor.ts';
import type { ThreadPaths } from '../folders.ts';
import { isPrivateUid, privateUid, safeUserId } from '../identity.ts';

export interface Owner {
  readonly uid: number;
  readonly gid: number;
}

/**
 * Under which ids a thread's processes run, so that the files in its folders belong to one owner whoever wrote them: the server's own, or,
 * when that is root, a private id per thread, the same as with bubblewrap.
 */
export async function ownerOf(home: string, paths: ThreadPaths, { userId, threadId }: ThreadKey): Promise<Owner> {
  const own = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 };
  if (own.uid !== 0) return own;
  const owner = await stat(paths.folders.workspace).then(
    (info) => info.uid,
    () => null,
  );
  const uid = owner !== null && isPrivateUid(owner) ? owner : privateUid(home, safeUserId(userId), threadId);
  return { uid, gid: PRIVATE_GID };
}
