import { createHash } from 'node:crypto';
import { isId, ReindeerError } from '@reindeer/protocol';

const SAFE_USER = /^[a-z0-9_-]{1,64}$/;
/** What `safeUserId` makes of an id that cannot stay. */
const MADE = /--[0-9a-f]{16}$/;

/**
 * A user's id as a folder name (ID-2): ids of small letters, digits, `_` and `-` stay; all others become a readable part and a hash of
 * the whole, so that two people never share a folder, also where the file system ignores case. Applying it twice changes nothing.
 */
export function safeUserId(userId: string): string {
  if (userId === '') throw new ReindeerError('bad_request', 'The user id is empty.', { detail: { field: 'userId' } });
  return SAFE_USER.test(userId) ? userId : madeUserId(userId);
}

/**
 * The same for an id as others know the person. One that only looks like ours becomes another: whoever may choose a name elsewhere must not be able to
 * choose the one that somebody else has here.
 */
export function foreignUserId(userId: string): string {
  return MADE.test(userId) ? madeUserId(userId) : safeUserId(userId);
}

function madeUserId(userId: string): string {
  const slug = userId
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')
    .replace(/^-+|-+$/g, '')
    .slice(0, 30);
  const hash = createHash('sha256').update(userId).digest('hex').slice(0, 16);
  return `${slug === '' ? 'user' : slug}--${hash}`;
}

/** Throws `bad_request` unless the thread id may become part of a path (ID-1). */
export function checkThreadId(threadId: string): void {
  if (!isId(threadId)) {
    throw new ReindeerError('bad_request', 'A thread id has 1 to 64 letters, digits, _ or -.', {
      detail: { field: 'threadId' },
    });
  }
}

/** First user id of the range from which private ids are taken: beyond all that Linux distributions and containers hand out. */
const FIRST_PRIVATE_UID = 1_879_048_192;
const PRIVATE_UIDS = 2 ** 27;

/** The user id under which a new thread's commands run when the server is root. */
export function privateUid(home: string, user: string, threadId: string): number {
  const hash = createHash('sha256').update(`${home}\n${user}/${threadId}`).digest();
  return FIRST_PRIVATE_UID + (hash.readUInt32BE(0) % PRIVATE_UIDS);
}

/** Is this one of the ids that `privateUid` gives? */
export function isPrivateUid(uid: number): boolean {
  return uid >= FIRST_PRIVATE_UID && uid < FIRST_PRIVATE_UID + PRIVATE_UIDS;
}
