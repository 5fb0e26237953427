import type { MemoryStore } from '@reindeer/protocol';
import type { Call } from '../scripts.ts';

export function userMemoryStore(call: Call): MemoryStore {
  return {
    read: (input) => call('memory.read', input),
    change: (input) => call('memory.change', input),
    audit: (input) => call('memory.audit', input),
    clear: (input) => call('memory.clear', input),
    enqueue: (input) => call('memory.enqueue', input),
    claim: (input) => call('memory.claim', input),
    settle: (input) => call('memory.settle', input),
    postpone: (input) => call('memory.postpone', input),
    pending: (input) => call('memory.pending', input),
  };
}
