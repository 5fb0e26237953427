import type { RelayedFrame, TokenRelay, WantedRun } from '@reindeer/protocol';

/** What a message on its way meets: it arrives, or it is lost. */
export type Fate = (frame: RelayedFrame) => 'arrives' | 'lost' | 'twice';

/** Relays of several instances in one process; each message arrives in a later microtask. `sent` counts frames. */
export function relays(): { relay(): TokenRelay; sent: RelayedFrame[]; fate: Fate; deliver: boolean } {
  const wanted = new Map<TokenRelay, Set<(runs: readonly WantedRun[]) => void>>();
  const watching = new Map<TokenRelay, Map<string, (frames: readonly RelayedFrame[]) => void>>();
  const bus = {
    sent: [] as RelayedFrame[],
    fate: (() => 'arrives') as Fate,
    deliver: true,
    relay(): TokenRelay {
      const wishes = new Set<(runs: readonly WantedRun[]) => void>();
      const watched = new Map<string, (frames: readonly RelayedFrame[]) => void>();
      const relay: TokenRelay = {
        want: (runs) => {
          for (const [other, listeners] of wanted)
            if (other !== relay && bus.deliver) for (const listener of listeners) queueMicrotask(() => listener(runs));
        },
        onWanted: (listener) => {
          wishes.add(listener);
          return () => wishes.delete(listener);
        },
        send: (runId, frames) => {
          bus.sent.push(...frames);
          const arriving = frames.flatMap((frame) => {
            const fate = bus.fate(frame);
            return fate === 'lost' ? [] : fate === 'twice' ? [frame, frame] : [frame];
          });
          const copy = JSON.parse(JSON.stringify(arriving)) as RelayedFrame[];
          for (const [other, runs] of watching)
            if (other !== relay && copy.length > 0) queueMicrotask(() => runs.get(runId)?.(copy));
        },
        watch: (runId, listener) => {
          watched.set(runId, listener);
          return () => watched.delete(runId);
        },
        close: async () => undefined,
      };
      wanted.set(relay, wishes);
      watching.set(relay, watched);
      return relay;
    },
  };
  return bus;
}
