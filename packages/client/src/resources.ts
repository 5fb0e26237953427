import { type JsonObject, ReindeerError } from '@reindeer/protocol';
import type { Connection, Method, Request } from './connection.ts';
import { listOf } from './fields.ts';

type Answer = Promise<JsonObject>;
type List = Promise<readonly JsonObject[]>;
type Page = { readonly limit?: number; readonly offset?: number };

/** Parts of a path. Those that an address would lose or climb with are refused: the request would be for something else. */
function at(...parts: readonly string[]): string {
  for (const part of parts)
    if (part === '' || part === '.' || part === '..')
      throw new ReindeerError('bad_request', `"${part}" is no id, name or file. Nothing was asked for.`);
  return parts.map((part) => `/${encodeURIComponent(part)}`).join('');
}

/** What a file is made of: bytes, text, or what `fs.openAsBlob` gives. */
export interface UploadFile {
  readonly name: string;
  readonly data: Blob | Uint8Array<ArrayBuffer> | string;
}

/**
 * Everything beside runs, under the names of the HTTP API and with its answers as they are (`/openapi.json` has the shapes). One line is one route.
 */
export function resourcesOn(connection: Connection) {
  const ask = (method: Method, path: string, request?: Request): Answer => connection.request(method, path, request);
  const list = (method: Method, path: string, request?: Request): List => connection.request(method, path, request);
  const within = async (key: string, path: string): List =>
    listOf((await ask('GET', path))[key]) as readonly JsonObject[];
  const ofAgent = (agentName: string | undefined): Request => ({ query: { agent_name: agentName } });

  return {
    models: {
      list: () => within('models', '/models'),
      get: (name: string) => ask('GET', `/models${at(name)}`),
    },
    skills: {
      list: () => within('skills', '/skills'),
      get: (name: string) => ask('GET', `/skills${at(name)}`),
      update: (name: string, enabled: boolean) => ask('PUT', `/skills${at(name)}`, { body: { enabled } }),
      /** A `.skill` archive that was uploaded to the thread, or made in it. */
      install: (threadId: string, path: string) =>
        ask('POST', '/skills/install', { body: { thread_id: threadId, path } }),
    },
    mcp: {
      get: () => ask('GET', '/mcp/config'),
      /** Replaces all servers. A masked value keeps what is stored. */
      update: (servers: JsonObject) => ask('PUT', '/mcp/config', { body: { mcp_servers: servers } }),
      setEnabled: (name: string, enabled: boolean) =>
        ask('PATCH', '/mcp/config', { body: { server_name: name, enabled } }),
    },
    memory: {
      status: (agentName?: string) => ask('GET', '/memory/status', ofAgent(agentName)),
      get: (agentName?: string) => ask('GET', '/memory', ofAgent(agentName)),
      reload: (agentName?: string) => ask('POST', '/memory/reload', ofAgent(agentName)),
      export: (agentName?: string) => ask('GET', '/memory/export', ofAgent(agentName)),
      import: (document: JsonObject, agentName?: string) =>
        ask('POST', '/memory/import', { ...ofAgent(agentName), body: document }),
      clear: (agentName?: string) => ask('DELETE', '/memory', ofAgent(agentName)),
      createFact: (fact: JsonObject, agentName?: string) =>
        ask('POST', '/memory/facts', { ...ofAgent(agentName), body: fact }),
      updateFact: (id: string, change: JsonObject, agentName?: string) =>
        ask('PATCH', `/memory/facts${at(id)}`, { ...ofAgent(agentName), body: change }),
      deleteFact: (id: string, agentName?: string) => ask('DELETE', `/memory/facts${at(id)}`, ofAgent(agentName)),
    },
    goals: {
      get: (threadId: string) => ask('GET', `/threads${at(threadId)}/goal`),
      set: (threadId: string, objective: string, maxContinuations?: number) =>
        ask('PUT', `/threads${at(threadId)}/goal`, { body: { objective, max_continuations: maxContinuations } }),
      clear: (threadId: string) => ask('DELETE', `/threads${at(threadId)}/goal`),
    },
    threads: {
      /** `filter`: what `POST /threads/search` takes, such as `{metadata, status, limit, offset}`. */
      list: (filter: JsonObject = {}) => list('POST', '/threads/search', { body: filter }),
      /** Threads with a message that has every word of `query`; within bounds, of which `complete: false` tells. */
      find: (query: string, limit?: number) => ask('POST', '/threads/messages/search', { body: { query, limit } }),
      get: (threadId: string) => ask('GET', `/threads${at(threadId)}`),
      delete: (threadId: string) => ask('DELETE', `/threads${at(threadId)}`),
    },
    uploads: {
      upload: (threadId: string, files: readonly UploadFile[]) => {
        const body = new FormData();
        for (const { name, data } of files) body.append('files', data instanceof Blob ? data : new Blob([data]), name);
        return ask('POST', `/threads${at(threadId)}/uploads`, { body });
      },
      list: (threadId: string) => within('files', `/threads${at(threadId)}/uploads/list`),
      delete: (threadId: string, name: string) => ask('DELETE', `/threads${at(threadId)}/uploads${at(name)}`),
    },
    schedules: {
      list: (page: Page = {}) => list('GET', '/scheduled-tasks', { query: { ...page } }),
      get: (id: string) => ask('GET', `/scheduled-tasks${at(id)}`),
      create: (task: JsonObject) => ask('POST', '/scheduled-tasks', { body: task }),
      update: (id: string, change: JsonObject) => ask('PATCH', `/scheduled-tasks${at(id)}`, { body: change }),
      delete: (id: string): Promise<null> => connection.request('DELETE', `/scheduled-tasks${at(id)}`),
      act: (id: string, action: 'pause' | 'resume' | 'trigger') => ask('POST', `/scheduled-tasks${at(id)}/${action}`),
      runs: (id: string, page: Page = {}) => list('GET', `/scheduled-tasks${at(id)}/runs`, { query: { ...page } }),
    },
    batches: {
      start: (threadId: string, batch: JsonObject) =>
        ask('POST', `/threads${at(threadId)}/subagent-batches`, { body: batch }),
      list: (threadId: string) => list('GET', `/threads${at(threadId)}/subagent-batches`),
      get: (threadId: string, id: string) => ask('GET', `/threads${at(threadId)}/subagent-batches${at(id)}`),
      items: (threadId: string, id: string, page: Page & { readonly status?: string } = {}) =>
        list('GET', `/threads${at(threadId)}/subagent-batches${at(id)}/items`, { query: { ...page } }),
      act: (threadId: string, id: string, action: 'pause' | 'resume' | 'cancel') =>
        ask('POST', `/threads${at(threadId)}/subagent-batches${at(id)}/${action}`),
      actOnItem: (threadId: string, id: string, itemId: string, action: 'retry' | 'cancel') =>
        ask('POST', `/threads${at(threadId)}/subagent-batches${at(id)}/items${at(itemId)}/${action}`),
      /** All results as they come, as lines of JSON or as a table. */
      results: (threadId: string, id: string, format: 'jsonl' | 'csv' = 'jsonl') =>
        connection.send('GET', `/threads${at(threadId)}/subagent-batches${at(id)}/results.${format}`),
    },
    /** Up to five questions that the user may want to ask next. */
    suggestions: async (
      threadId: string,
      messages: readonly { readonly role: string; readonly content: string }[],
      options: { readonly n?: number; readonly modelName?: string } = {},
    ): Promise<readonly string[]> => {
      const body = { messages, n: options.n, model_name: options.modelName };
      const answer = await ask('POST', `/threads${at(threadId)}/suggestions`, { body });
      return listOf(answer.suggestions) as readonly string[];
    },
    /** A file of a thread, by its path: `/mnt/user-data/outputs/report.md`. */
    getArtifact: async (
      threadId: string,
      path: string,
    ): Promise<{ readonly bytes: Uint8Array; readonly mime: string }> => {
      const file = at(...path.replace(/^\/+/, '').split('/'));
      const response = await connection.send('GET', `/threads${at(threadId)}/artifacts${file}`);
      const bytes = await response.bytes().catch((error: unknown) => {
        throw connection.fault(error, undefined);
      });
      return { bytes, mime: (response.headers.get('content-type') ?? 'application/octet-stream').split(';')[0] ?? '' };
    },
    /** Reads the configuration again, as after an edit by hand. */
    reload: () => ask('POST', '/config/reload'),
  };
}

export type Resources = ReturnType<typeof resourcesOn>;
