import { expect, test } from 'vitest';
import { readSandboxes } from './sandboxes.ts';

test('sandboxes are read with care: one without a chat, a size that nobody knows, an answer that is none', () => {
  const thread = { id: 'a', state: 'active', thread_id: 't', idle_seconds: 1.5, memory_bytes: 2048, commands: 1 };
  expect(
    readSandboxes({ owner: 'me', sandboxes: [thread, { id: 'b', state: 'warm', memory_bytes: null }, 7] }),
  ).toEqual({
    owner: 'me',
    sandboxes: [
      { id: 'a', state: 'active', threadId: 't', idleMs: 1_500, memory: 2_048, commands: 1 },
      { id: 'b', state: 'warm', threadId: null, idleMs: 0, memory: null, commands: 0 },
    ],
  });
  expect(readSandboxes(null)).toEqual({ owner: null, sandboxes: [] });
});
