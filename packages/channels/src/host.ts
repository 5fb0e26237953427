import type { RunService, ThreadService } from '@reindeer/protocol';
import type { OutgoingFile } from './adapter.ts';

export interface ThreadAddress {
  readonly userId: string;
  readonly threadId: string;
}

export interface StoredUpload {
  readonly filename: string;
  readonly size: number;
  readonly path: string;
}

/** What channels stand on; the composition root hands it over. */
export interface ChannelHost {
  /** `create` rejects with `shutting_down` from the first step of the stop on. */
  readonly runs: Pick<RunService, 'create' | 'stream' | 'join'>;
  readonly threads: Pick<ThreadService, 'create' | 'get' | 'messages' | 'facts'>;
  /** Bytes of one upload. */
  readonly uploadLimit: number;
  /** Keeps a file in the uploads of a thread; null = the name cannot be used. Rejects with `too_large` past `maxBytes`. */
  save(
    thread: ThreadAddress,
    name: string,
    source: AsyncIterable<Uint8Array>,
    maxBytes: number,
  ): Promise<StoredUpload | null>;
  /** A regular file in the outputs of a thread; null = there is none, whatever else there is. */
  output(thread: ThreadAddress, path: string): Promise<OutgoingFile | null>;
  /** The graph, and the user's own agent, that a name stands for (null = the default); null = there is none. */
  agent(
    userId: string,
    name: string | null,
  ): Promise<{ readonly assistantId: string; readonly agentName: string | null } | null>;
  models(userId: string): Promise<readonly string[]>;
  /** What is remembered, newest first; null = nothing ever is. */
  memory(userId: string): Promise<readonly string[] | null>;
  /** Skills that are switched on for the user. */
  skills(userId: string): Promise<readonly string[]>;
  readonly goals: {
    /** Characters. */
    readonly limit: number;
    read(thread: ThreadAddress): Promise<string | null>;
    /** null takes it away. `busy`: a run works on the thread. */
    write(thread: ThreadAddress, objective: string | null): Promise<'written' | 'busy'>;
  };
}
