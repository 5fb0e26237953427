import { useEffect, useState } from 'react';
import type { Rest } from '../api/rest.ts';
import { asTrouble } from '../api/trouble.ts';
import type { Trouble } from '../chat/state.ts';
import { addLook, type BatchView, batchPath, doneOf, isOver, type Look, paceOf, readBatch } from './batch.ts';

const AGAIN_MS = 3_000;

export interface LiveBatch {
  readonly batch: BatchView;
  readonly pace: ReturnType<typeof paceOf>;
  /** null = it is followed; else why not. It is tried again. */
  readonly trouble: Trouble | null;
  /** What an action answered, until the stream says more; a batch that goes on again is followed again. */
  readonly told: (batch: BatchView) => void;
}

/** A batch as it is now, from its event stream; after a cut it is joined again. One that is over is read once. */
export function useBatch(rest: Rest, first: BatchView): LiveBatch {
  const [batch, setBatch] = useState(first);
  const [looks, setLooks] = useState<readonly Look[]>([]);
  const [trouble, setTrouble] = useState<Trouble | null>(null);
  const { threadId, batchId } = first;
  const over = isOver(batch.status) && batch.counts !== null;
  useEffect(() => {
    if (over) return;
    const leave = new AbortController();
    const { signal } = leave;
    const take = (value: unknown) => {
      const next = readBatch(value);
      if (next === null || signal.aborted) return;
      setTrouble(null);
      setBatch(next);
      setLooks((before) => addLook(before, { at: performance.now(), done: doneOf(next) }));
    };
    const follow = async () => {
      const path = batchPath({ threadId, batchId });
      for (;;) {
        try {
          let heard = false;
          for await (const { event, data } of rest.events(`${path}/stream`, signal)) {
            heard = true;
            if (event === 'progress' || event === 'end') take(data);
          }
          if (!heard) take(await rest.get(path, signal));
        } catch (error) {
          if (signal.aborted) return;
          const found = asTrouble(error);
          setTrouble(found);
          if (found.kind === 'not-found') return;
        }
        if (signal.aborted) return;
        await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
        if (signal.aborted) return;
      }
    };
    void follow();
    return () => leave.abort();
  }, [rest, threadId, batchId, over]);
  const left = batch.total - doneOf(batch);
  return {
    batch,
    pace: batch.status === 'running' ? paceOf(looks, left) : null,
    trouble,
    told: (next) => {
      setTrouble(null);
      setBatch(next);
    },
  };
}
