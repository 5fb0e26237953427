import type { Client as LangGraphClient } from '@langchain/langgraph-sdk/client';
import type { Connection, Method, Request } from './connection.ts';
import type { RunEvent } from './events.ts';
import type { RunOptions } from './options.ts';
import { type Resources, resourcesOn } from './resources.ts';
import { type Answer, answerOf, type RunInput, type StreamOptions, streamRun } from './run.ts';

/**
 * Reindeer for a program: `openClient` starts one inside of it, `connectClient` uses one that runs. Both speak HTTP, so both have its contracts. What
 * is refused or fails is a `ReindeerError` with the server's code and words. States: open → closed (`close`, any number of times).
 */
class Client {
  readonly #connection: Connection;
  readonly #defaults: RunOptions;
  readonly #stop: () => Promise<void>;
  #closing: Promise<void> | null = null;

  /** @param stop ends the server, where it is this client's own */
  constructor(connection: Connection, defaults: RunOptions, stop: () => Promise<void>) {
    this.#connection = connection;
    this.#defaults = defaults;
    this.#stop = stop;
    Object.assign(this, resourcesOn(connection));
  }

  /** The official LangGraph client on the same server: threads, runs, state and history as LangGraph knows them. */
  get sdk(): LangGraphClient {
    return this.#connection.sdk;
  }

  /** Starts a run and tells what it does. Each call is a run of its own. Whoever stops reading ends the run. */
  stream(input: RunInput, options: StreamOptions = {}): AsyncGenerator<RunEvent, void, undefined> {
    return streamRun(this.#connection, this.#defaults, input, options);
  }

  /** Starts a run and waits for its end. */
  chat(input: RunInput, options: StreamOptions = {}): Promise<Answer> {
    return answerOf(this.stream(input, options));
  }

  /** Any other route of the HTTP API; `path` is below `/api`. */
  request<T>(method: Method, path: string, request: Request = {}): Promise<T> {
    return this.#connection.request<T>(method, path, request);
  }

  /**
   * Stops what this client started. Runs at work get `runs.drain_timeout` to end and are interrupted then; requests under way are cut last.
   *
   * @throws ReindeerError when something did not stop cleanly
   */
  close(): Promise<void> {
    this.#closing ??= this.#stop().finally(() => this.#connection.end());
    return this.#closing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

export type ReindeerClient = Client & Resources;
export const ReindeerClient = Client as new (
  connection: Connection,
  defaults: RunOptions,
  stop: () => Promise<void>,
) => ReindeerClient;
