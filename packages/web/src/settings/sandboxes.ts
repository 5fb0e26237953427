import { isDictionary, listOf, textOr } from '../chat/wire.ts';

export interface Sandbox {
  readonly id: string;
  readonly state: string;
  readonly threadId: string | null;
  readonly idleMs: number;
  /** Bytes; null = not known. */
  readonly memory: number | null;
  readonly commands: number;
}

export function readSandboxes(value: unknown): {
  readonly owner: string | null;
  readonly sandboxes: readonly Sandbox[];
} {
  const answer = isDictionary(value) ? value : {};
  const number = (given: unknown) => (typeof given === 'number' ? given : 0);
  return {
    owner: textOr(answer.owner, null),
    sandboxes: listOf(answer.sandboxes)
      .filter(isDictionary)
      .map((entry) => ({
        id: textOr(entry.id, ''),
        state: textOr(entry.state, ''),
        threadId: textOr(entry.thread_id, null),
        idleMs: number(entry.idle_seconds) * 1000,
        memory: typeof entry.memory_bytes === 'number' ? entry.memory_bytes : null,
        commands: number(entry.commands),
      })),
  };
}
