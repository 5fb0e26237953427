import { type Checkpoint, TASKS } from '@langchain/langgraph-checkpoint';
import { type MessageLists, readList } from './lists.ts';
import type { Packer } from './packer.ts';
import { isHidden } from './updates.ts';

/** What is remembered of a namespace: its newest checkpoint that passed through the saver. */
export interface Position {
  readonly checkpointId: string;
  readonly lists: MessageLists;
  /** Value of `__pregel_tasks`: the Sends that the tasks of the next step come from. */
  readonly sends: readonly unknown[];
}

export const NOWHERE: Position = { checkpointId: '', lists: new Map(), sends: [] };

/** Namespaces of finished sub-graphs are forgotten; one that is needed again is loaded. */
const MAX_POSITIONS = 64;

/** The newest checkpoint of each namespace, the least recently used forgotten first, the root never. */
export class Positions {
  readonly #positions = new Map<string, Position>();

  get(ns: string): Position | undefined {
    return this.#positions.get(ns);
  }

  /** The position at a checkpoint; null = before the first one. */
  at(ns: string, checkpointId: string | null): Position | undefined {
    if (checkpointId === null) return NOWHERE;
    const position = this.#positions.get(ns);
    return position?.checkpointId === checkpointId ? position : undefined;
  }

  set(ns: string, position: Position): void {
    this.#positions.delete(ns);
    this.#positions.set(ns, position);
    if (this.#positions.size <= MAX_POSITIONS) return;
    for (const key of this.#positions.keys()) {
      if (key === '' || key === ns) continue;
      this.#positions.delete(key);
      return;
    }
  }

  clear(): void {
    this.#positions.clear();
  }

  /** Answers whether a message stands in an enclosing namespace; collected on the first question only. */
  enclosing(ns: string): (hash: string) => boolean {
    if (ns === '') return () => false;
    let hashes: Set<string> | undefined;
    return (hash) => {
      hashes ??= this.#hashesAround(ns);
      return hashes.has(hash);
    };
  }

  #hashesAround(ns: string): Set<string> {
    const hashes = new Set<string>();
    for (let outer = ns; outer !== ''; ) {
      outer = outer.slice(0, Math.max(0, outer.lastIndexOf('|')));
      for (const list of this.#positions.get(outer)?.lists.values() ?? []) {
        for (const known of list.known) hashes.add(known.hash);
      }
    }
    return hashes;
  }
}

/** The position at a checkpoint that was loaded. */
export function positionOf(checkpointId: string, checkpoint: Checkpoint, packer: Packer): Position {
  const lists = new Map<string, NonNullable<ReturnType<typeof readList>>['list']>();
  const values = checkpoint.channel_values as Record<string, unknown>;
  for (const name in values) {
    if (isHidden(name)) continue;
    const read = readList(values[name], String(checkpoint.channel_versions[name] ?? ''), undefined, packer);
    if (read !== null) lists.set(name, read.list);
  }
  return { checkpointId, lists, sends: sendsOf(values) };
}

export function sendsOf(values: Readonly<Record<string, unknown>>): readonly unknown[] {
  const sends = values[TASKS];
  return Array.isArray(sends) ? sends : [];
}
