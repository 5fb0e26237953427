import { Client } from '@langchain/langgraph-sdk/client';
import { type Dictionary, isDictionary, listOf, textOr } from '../chat/wire.ts';
import { messengerOf } from '../settings/channels.ts';
import type { Api, FileContent, JoinRun, ModelEntry, RunEntry, StartRun, StreamPart, ThreadEntry } from './api.ts';
import { httpRest } from './rest.ts';
import { ApiError, asApiError } from './trouble.ts';

const ASSISTANT = 'lead_agent';
/** Chats that a search inside them answers at the most. */
const FOUND = 20;
const MODES = ['values', 'messages-tuple', 'custom'] as const;

export interface HttpApiOptions {
  /** Address of the API, e.g. `http://127.0.0.1:2026/api`. */
  readonly url: string;
  readonly token: () => string | null;
  readonly newId: () => string;
  readonly fetch: typeof fetch;
  /** Tells whether the last request reached the server at all. */
  readonly onConnection: (reached: boolean) => void;
}

/** The API over HTTP: threads and runs through the official LangGraph client, files and the rest directly. */
export function httpApi(options: HttpApiOptions): Api {
  const reach: typeof fetch = async (input, init) => {
    try {
      const response = await options.fetch(input, init);
      options.onConnection(true);
      return response;
    } catch (error) {
      if (init?.signal?.aborted !== true) options.onConnection(false);
      throw error;
    }
  };
  const rest = httpRest({ url: options.url, token: options.token, fetch: reach });
  const { authorize, request } = rest;
  const client = new Client({
    apiUrl: options.url,
    apiKey: null,
    callerOptions: { maxRetries: 2, maxConcurrency: 6, fetch: reach },
    onRequest: (url, init) => {
      const headers = new Headers(init.headers);
      authorize(headers);
      // Should an answer get lost on the way, the same request again finds the run instead of starting a second one.
      if (init.method === 'POST' && url.pathname.endsWith('/runs/stream'))
        headers.set('idempotency-key', options.newId());
      return { ...init, headers };
    },
  });

  const orNull = async <Result>(work: Promise<Result>): Promise<Result | null> => {
    try {
      return await work;
    } catch (error) {
      const failure = asApiError(error);
      if (failure.status === 404) return null;
      throw failure;
    }
  };

  const thread = (threadId: string) => `/threads/${encodeURIComponent(threadId)}`;
  const translated = async <Result>(work: Promise<Result>): Promise<Result> => {
    try {
      return await work;
    } catch (error) {
      throw asApiError(error);
    }
  };

  return {
    rest,
    async searchThreads(limit, offset) {
      const found = await translated(client.threads.search({ limit, offset }));
      return found.map(
        (entry): ThreadEntry => ({
          threadId: entry.thread_id,
          title: isDictionary(entry.values) ? textOr(entry.values.title, null) : null,
          status: entry.status,
          updatedAt: entry.updated_at,
          pinned: entry.metadata?.pinned === true,
          messenger: messengerOf(entry.metadata),
        }),
      );
    },
    async findInChats(text, signal) {
      const response = await rest.request('/threads/messages/search', {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ query: text, limit: FOUND }),
        signal,
      });
      const found = (await response.json()) as Dictionary;
      return {
        complete: found.complete === true,
        chats: listOf(found.data)
          .filter(isDictionary)
          .map(({ thread, match }) => {
            const { thread_id: threadId, values } = isDictionary(thread) ? thread : {};
            return {
              threadId: textOr(threadId, ''),
              title: isDictionary(values) ? textOr(values.title, null) : null,
              snippet: isDictionary(match) ? textOr(match.snippet, '') : '',
            };
          }),
      };
    },
    async createThread(threadId, agent) {
      const metadata = agent == null ? {} : { metadata: { agent_name: agent } };
      await translated(client.threads.create({ threadId, ifExists: 'do_nothing', ...metadata }));
    },
    async renameThread(threadId, title) {
      // The state holds the title; the list follows it.
      await translated(client.threads.updateState(threadId, { values: { title } }));
    },
    async pinThread(threadId, pinned) {
      await translated(client.threads.update(threadId, { metadata: { pinned: pinned ? true : null } }));
    },
    async deleteThread(threadId) {
      await translated(client.threads.delete(threadId));
    },
    async state(threadId) {
      const state = await orNull(client.threads.getState<Dictionary>(threadId));
      if (state === null) return null;
      const own = (state as unknown as Dictionary).interrupts;
      const interrupts = listOf(own).length > 0 ? own : (state.tasks ?? []).flatMap((task) => listOf(task.interrupts));
      return { values: isDictionary(state.values) ? state.values : {}, next: state.next ?? [], interrupts };
    },
    async newestRun(threadId) {
      const runs = await orNull(client.runs.list(threadId, { limit: 1 }));
      const newest = runs?.[0];
      return newest === undefined ? null : readRun(newest);
    },
    async run(threadId, runId) {
      const run = await orNull(client.runs.get(threadId, runId));
      return run === null ? null : readRun(run);
    },
    startRun: (input) => startRun(client, input),
    joinRun: (input) => joinRun(client, input),
    async stopRun(threadId, runId) {
      try {
        const response = await request(
          `${thread(threadId)}/runs/${encodeURIComponent(runId)}/cancel?wait=1&action=interrupt`,
          {
            method: 'POST',
          },
        );
        if (response.status === 204) return { stopped: true, stillRunning: [] };
        const body: unknown = await response.json().catch(() => null);
        const still = isDictionary(body) ? listOf(body.still_running).filter((name) => typeof name === 'string') : [];
        return { stopped: false, stillRunning: still };
      } catch (error) {
        // It has ended by itself in the meantime.
        if (error instanceof ApiError && error.status === 409) return { stopped: true, stillRunning: [] };
        throw error;
      }
    },
    async models() {
      const body = await rest.get('/models');
      return listOf(isDictionary(body) ? body.models : null)
        .filter(isDictionary)
        .map(
          (model): ModelEntry => ({
            name: textOr(model.name, ''),
            displayName: textOr(model.display_name, textOr(model.name, '')),
            description: textOr(model.description, ''),
            demo: model.demo === true,
            thinks: model.supports_thinking === true,
            effort: model.supports_reasoning_effort === true,
            sees: model.supports_vision === true,
            model: textOr(model.model, ''),
          }),
        )
        .filter((model) => model.name !== '');
    },
    async features() {
      const body = await rest.get('/features');
      const features = isDictionary(body) ? body : {};
      const report = isDictionary(features.sandbox) ? features.sandbox : null;
      return {
        agents: isDictionary(features.agents_api) && features.agents_api.enabled === true,
        sandbox:
          report === null
            ? null
            : {
                canExecute: report.canExecute !== false,
                reason: textOr(report.reason, null),
                remedy: textOr(report.remedy, null),
                provider: textOr(report.provider, ''),
              },
      };
    },
    async uploadLimits(threadId) {
      const body = await rest.get(`${thread(threadId)}/uploads/limits`);
      const limits = isDictionary(body) ? body : {};
      const number = (value: unknown, otherwise: number) => (typeof value === 'number' ? value : otherwise);
      return {
        maxFiles: number(limits.max_files, 10),
        maxFileSize: number(limits.max_file_size, 52_428_800),
        maxTotalSize: number(limits.max_total_size, 104_857_600),
      };
    },
    async upload(threadId, files, signal) {
      const form = new FormData();
      for (const file of files) form.append('files', file, file.name);
      const body: unknown = await (
        await request(`${thread(threadId)}/uploads`, { method: 'POST', body: form, signal })
      ).json();
      const answer = isDictionary(body) ? body : {};
      return {
        files: listOf(answer.files)
          .filter(isDictionary)
          .map((file) => ({
            name: textOr(file.filename, ''),
            path: textOr(file.virtual_path, textOr(file.path, '')),
            size: typeof file.size === 'number' ? file.size : 0,
          })),
        skipped: listOf(answer.skipped_files).map((entry) =>
          isDictionary(entry)
            ? `${textOr(entry.filename, '')}: ${textOr(entry.reason, textOr(entry.detail, ''))}`
            : String(entry),
        ),
      };
    },
    async file(threadId, path, maxBytes, signal): Promise<FileContent> {
      const encoded = path.replace(/^\/+/, '').split('/').map(encodeURIComponent).join('/');
      const response = await request(`${thread(threadId)}/artifacts/${encoded}`, {
        signal,
        // An empty file has no first byte: it is asked for whole.
        ...(maxBytes === null ? {} : { headers: { range: `bytes=0-${maxBytes - 1}` } }),
      }).catch((error: unknown) => {
        if (maxBytes !== null && error instanceof ApiError && error.status === 416) {
          return request(`${thread(threadId)}/artifacts/${encoded}`, { signal });
        }
        throw error;
      });
      const range = /\/(\d+)$/.exec(response.headers.get('content-range') ?? '')?.[1];
      const blob = await response.blob();
      return { blob, size: range === undefined ? blob.size : Number(range) };
    },
  };
}

function readRun(run: { run_id: string; status: string }): RunEntry {
  const { error, kwargs } = run as unknown as Dictionary;
  const context = isDictionary(kwargs) && isDictionary(kwargs.context) ? kwargs.context : {};
  return {
    runId: run.run_id,
    status: run.status,
    error: textOr(error, null),
    agent: context.is_bootstrap === true ? null : textOr(context.agent_name, null),
  };
}

/** The options of a run; absent when there are none. */
function contextOf(start: StartRun): { context?: Dictionary } {
  const { model, plan, helpers, thinking, effort, agent, bootstrap } = start;
  const context = {
    ...(model === null ? {} : { model_name: model }),
    ...(plan === true ? { is_plan_mode: true } : {}),
    ...(helpers === true ? { subagent_enabled: true } : {}),
    ...(thinking === undefined ? {} : { thinking_enabled: thinking }),
    ...(effort === undefined ? {} : { reasoning_effort: effort }),
    ...(agent === undefined ? {} : { agent_name: agent }),
    ...(bootstrap === true ? { is_bootstrap: true } : {}),
  };
  return Object.keys(context).length === 0 ? {} : { context };
}

async function* startRun(client: Client, input: StartRun): AsyncGenerator<StreamPart> {
  const isResume = 'resume' in input;
  const stream = client.runs.stream(input.threadId, ASSISTANT, {
    ...(isResume ? { command: { resume: input.resume } } : { input: input.input }),
    ...contextOf(input),
    ...(input.checkpoint === undefined ? {} : { checkpoint: input.checkpoint as never }),
    ...(input.metadata === undefined ? {} : { metadata: input.metadata }),
    streamMode: [...MODES],
    // A reload of the page must not end the work.
    onDisconnect: 'continue',
    streamResumable: true,
    ifNotExists: 'create',
    multitaskStrategy: 'reject',
    signal: input.signal,
    onRunCreated: (run) => input.onRun(run.run_id),
  });
  yield* parts(stream as AsyncIterable<StreamPart>, input.signal);
}

async function* joinRun(client: Client, input: JoinRun): AsyncGenerator<StreamPart> {
  const stream = client.runs.joinStream(input.threadId, input.runId, {
    signal: input.signal,
    lastEventId: input.lastEventId ?? '-1',
    streamMode: [...MODES],
    cancelOnDisconnect: false,
  });
  yield* parts(stream as AsyncIterable<StreamPart>, input.signal);
}

async function* parts(stream: AsyncIterable<StreamPart>, signal: AbortSignal): AsyncGenerator<StreamPart> {
  try {
    for await (const part of stream) yield part;
  } catch (error) {
    if (signal.aborted) return;
    throw asApiError(error);
  }
}
