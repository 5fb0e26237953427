import { createHash } from 'node:crypto';
import type { SandboxIdentity } from '@reindeer/protocol';

/**
 * The deterministic id of a (user, thread): 16 hexadecimal characters, so that every instance finds the same container. It is cut
 * short; what two people's ids could have in common is caught by the identity that is kept beside it (SB-09).
 */
export function sandboxIdOf(identity: SandboxIdentity): string {
  return createHash('sha256').update(identityKey(identity)).digest('hex').slice(0, 16);
}

/** One text per identity: a thread id contains no colon. */
export function identityKey({ userId, threadId }: SandboxIdentity): string {
  return `${userId}:${threadId}`;
}
