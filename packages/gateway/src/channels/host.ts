import { type Authorization, goalOf, isAgentName, MAX_CONTINUATIONS, MAX_OBJECTIVE, newGoal } from '@reindeer/agent';
import type { ChannelHost, OutgoingFile, StoredUpload, ThreadAddress } from '@reindeer/channels';
import {
  ReindeerError,
  type RunService,
  type SandboxProvider,
  type Surroundings,
  type ThreadService,
} from '@reindeer/protocol';
import { type Convert, makeCompanion } from '../http/companions.ts';
import { safeFileName } from '../http/uploads.ts';

const UPLOADS = '/mnt/user-data/uploads';
const OUTPUTS = '/mnt/user-data/outputs/';
/** What of the memory is told, and of one thing in it. */
const MOST_FACTS = 20;
const MOST_FACT = 200;

export interface HostParts {
  readonly runs: RunService;
  readonly threads: ThreadService;
  readonly sandboxes: Pick<SandboxProvider, 'files'>;
  readonly surroundings: Surroundings;
  readonly accepting: () => boolean;
  readonly uploads: () => { readonly maxFileSize: number; readonly convert: Convert | null };
  /** The graphs that a user may run; the first one is the default. */
  readonly assistants: readonly string[];
  readonly models: () => readonly string[];
  /** Has the user an agent of this name? */
  readonly hasAgent: (userId: string, name: string) => Promise<boolean>;
  readonly remembered: (userId: string) => Promise<readonly string[] | null>;
  readonly skills: (userId: string) => Promise<readonly string[]>;
  readonly authorization: () => Authorization | null;
  /** Refreshes the configuration before something depends on it. */
  readonly refresh: () => Promise<void>;
}

/** A server as channels see it: what a connected account may do is what its user may do over HTTP. */
export function channelHost(parts: HostParts): ChannelHost {
  const { threads, sandboxes, surroundings } = parts;
  const permits = async (userId: string, resource: 'routes' | 'models', name: string): Promise<boolean> => {
    const authorization = parts.authorization();
    if (authorization === null) return true;
    return await authorization.permits(authorization.principal(userId, null, null), resource, name);
  };
  return {
    get uploadLimit() {
      return parts.uploads().maxFileSize;
    },
    runs: {
      create: async (input, signal) => {
        await parts.refresh();
        if (!(await permits(input.userId, 'routes', 'runs:create')))
          throw new ReindeerError('forbidden', 'Your role may not start runs.');
        // Asked again behind the wait: nothing is admitted once the stop has begun (GW-20).
        if (!parts.accepting())
          throw new ReindeerError('shutting_down', 'The server is stopping.', { retryable: true });
        return await parts.runs.create(input, signal);
      },
      stream: (input) => parts.runs.stream(input),
      join: (input) => parts.runs.join(input),
    },
    threads,
    save: async ({ userId, threadId }, name, source, maxBytes): Promise<StoredUpload | null> => {
      const filename = safeFileName(name);
      if (filename === null) return null;
      const files = sandboxes.files({ userId, threadId });
      const path = `${UPLOADS}/${filename}`;
      const before = await files.stat(path);
      if (before !== null && before.kind !== 'file') return null;
      const info = await files.writeStream(path, source, { maxBytes, overwrite: true });
      const { convert } = parts.uploads();
      if (convert !== null) await makeCompanion(files, info, convert, surroundings.logger);
      return { filename, size: info.size, path };
    },
    output: async ({ userId, threadId }, path): Promise<OutgoingFile | null> => {
      if (!path.startsWith(OUTPUTS) || path.split('/').includes('..')) return null;
      const files = sandboxes.files({ userId, threadId });
      try {
        const info = await files.stat(path);
        if (info === null || info.kind !== 'file') return null;
        return {
          name: path.slice(path.lastIndexOf('/') + 1),
          size: info.size,
          open: async () => (await files.openRead(path)).stream,
        };
      } catch (error) {
        if (ReindeerError.is(error) && (error.code === 'path_refused' || error.code === 'not_found')) return null;
        throw error;
      }
    },
    agent: async (userId, name) => {
      const [assistantId = ''] = parts.assistants;
      if (name === null) return { assistantId, agentName: null };
      if (parts.assistants.includes(name)) return { assistantId: name, agentName: null };
      const agentName = name.toLowerCase().replaceAll('_', '-');
      if (!isAgentName(agentName) || !(await parts.hasAgent(userId, agentName))) return null;
      return { assistantId, agentName };
    },
    models: async (userId) => {
      await parts.refresh();
      const allowed: string[] = [];
      for (const name of parts.models()) if (await permits(userId, 'models', name)) allowed.push(name);
      return allowed;
    },
    memory: async (userId) => {
      const facts = await parts.remembered(userId);
      return facts === null ? null : facts.slice(0, MOST_FACTS).map((fact) => fact.slice(0, MOST_FACT).toWellFormed());
    },
    skills: parts.skills,
    goals: {
      limit: MAX_OBJECTIVE,
      read: async (thread: ThreadAddress) => {
        const state = await threads.state({ ...thread, checkpointId: null, subgraphs: false });
        return goalOf(state?.values ?? {})?.objective ?? null;
      },
      write: async (thread, objective) => {
        const changed = await threads.changeState({
          ...thread,
          asNode: 'model',
          change: async ({ values }) => {
            if (objective !== null) return { goal: newGoal(objective, MAX_CONTINUATIONS, surroundings.clock.now()) };
            return goalOf(values) === null ? null : { goal: { cleared: true, of: null } };
          },
        });
        if (changed.outcome === 'busy' || changed.outcome === 'waiting') return 'busy';
        if (changed.outcome === 'invalid') throw new ReindeerError('validation_failed', changed.message);
        return 'written';
      },
    },
  };
}
