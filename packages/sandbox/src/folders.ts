import { chown, mkdir, writeFile } from 'node:fs/promises';
import { VIRTUAL_FOLDERS } from '@reindeer/protocol';
import { PRIVATE_GID, type ThreadFolders } from './bubblewrap/arguments.ts';
import { passwdFile } from './bubblewrap/system-view.ts';
import { checkThreadId, safeUserId } from './identity.ts';

/** Where everything of one thread lies (ID-3). */
export interface ThreadPaths {
  /** `{home}/users/{user}/threads/{thread}`: all of it is one disk quota and goes with the thread. */
  readonly thread: string;
  readonly userData: string;
  readonly staging: string;
  /** `{home}/users/{user}/skills/view`: the user's skills that are switched on. All of the user's threads read the same. */
  readonly skills: string;
  readonly folders: ThreadFolders;
}

/** Where a user's skills lie (ID-3). */
export interface SkillFolders {
  /** `{name}/SKILL.md` of the user's own skills. */
  readonly custom: string;
  /** What sandboxes see: copies of the skills that are switched on. */
  readonly view: string;
  /** Earlier versions of the user's own skills. */
  readonly history: string;
  /** Switches of the user's own skills. */
  readonly states: string;
  /** Values that the user gave for secrets which skills declare. */
  readonly secrets: string;
}

export function skillFolders(home: string, userId: string): SkillFolders {
  const skills = `${home}/users/${safeUserId(userId)}/skills`;
  return {
    custom: `${skills}/custom`,
    view: `${skills}/view`,
    history: `${skills}/.history`,
    states: `${skills}/_skill_states.json`,
    secrets: `${skills}/_skill_secrets.json`,
  };
}

export function threadPaths(home: string, userId: string, threadId: string): ThreadPaths {
  checkThreadId(threadId);
  const thread = `${home}/users/${safeUserId(userId)}/threads/${threadId}`;
  const userData = `${thread}/user-data`;
  return {
    thread,
    userData,
    staging: `${thread}/staging`,
    skills: skillFolders(home, userId).view,
    folders: {
      workspace: `${userData}/workspace`,
      uploads: `${userData}/uploads`,
      outputs: `${userData}/outputs`,
      temporary: `${thread}/tmp`,
      passwd: `${thread}/passwd`,
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
  // Read inside under another user id; what is in it was checked before it came there.
  await mkdir(paths.skills, { recursive: true, mode: 0o755 });
  await Promise.all([...own, paths.staging].map((folder) => mkdir(folder, { recursive: true, mode: 0o700 })));
  if (process.getuid?.() !== 0) return;
  // Root may have used another identity before, on a machine that offered more or less.
  const [owner, group] = uid === null ? [0, 0] : [uid, PRIVATE_GID];
  await Promise.all([
    ...own.map((folder) => chown(folder, owner, group)),
    uid === null ? undefined : writeFile(paths.folders.passwd, passwdFile(uid, PRIVATE_GID), { mode: 0o644 }),
  ]);
}
