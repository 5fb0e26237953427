import { chown, mkdir, writeFile } from 'node:fs/promises';
import { VIRTUAL_FOLDERS } from '@reindeer/protocol';
import { INSIDE_UID, type ThreadFolders } from './bubblewrap/arguments.ts';
import { checkThreadId, safeUserId } from './identity.ts';

/** Where everything of one thread lies (ID-3). */
export interface ThreadPaths {
  /** `{home}/users/{user}/threads/{thread}`: all of it is one disk quota and goes with the thread. */
  readonly thread: string;
  readonly userData: string;
  readonly staging: string;
  readonly folders: ThreadFolders;
}

export function threadPaths(home: string, userId: string, threadId: string): ThreadPaths {
  checkThreadId(threadId);
  const thread = `${home}/users/${safeUserId(userId)}/threads/${threadId}`;
  const userData = `${thread}/user-data`;
  return {
    thread,
    userData,
    staging: `${thread}/staging`,
    folders: {
      workspace: `${userData}/workspace`,
      uploads: `${userData}/uploads`,
      outputs: `${userData}/outputs`,
      temporary: `${thread}/tmp`,
      system: `${thread}/system`,
    },
  };
}

/**
 * Makes the folders of a thread, private to the server's user, or to `uid` where commands run under an id of their own. Idempotent:
 * several callers, also in several processes, may do it at once.
 */
export async function makeThreadFolders(paths: ThreadPaths, uid: number | null): Promise<void> {
  const own = [...VIRTUAL_FOLDERS.map((folder) => paths.folders[folder]), paths.folders.temporary];
  await mkdir(paths.userData, { recursive: true, mode: 0o700 });
  for (const folder of [...own, paths.staging, paths.folders.system])
    await mkdir(folder, { recursive: true, mode: 0o700 });
  // Root may have used another identity before, on a machine that offered more or less.
  if (process.getuid?.() === 0) for (const folder of own) await chown(folder, uid ?? 0, uid ?? 0);
  await writeSystemFiles(paths.folders.system, uid ?? INSIDE_UID);
}

/** The few system files that a command sees instead of the machine's own. */
async function writeSystemFiles(folder: string, uid: number): Promise<void> {
  const files = {
    passwd: `root:x:0:0:root:/nonexistent:/usr/sbin/nologin\nagent:x:${uid}:${uid}:agent:/mnt/user-data/workspace:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n`,
    group: `root:x:0:\nagent:x:${uid}:\nnogroup:x:65534:\n`,
    hosts: '127.0.0.1 localhost sandbox\n::1 localhost\n',
    'nsswitch.conf': 'passwd: files\ngroup: files\nhosts: files dns\n',
  };
  for (const [name, text] of Object.entries(files)) await writeFile(`${folder}/${name}`, text, { mode: 0o644 });
}
