import type { Agent } from 'node:http';
import { type Clock, ReindeerError } from '@reindeer/protocol';
import { at } from '../container/listing.ts';
import { askJson, type JsonAnswer, type JsonRequest, messageOf } from '../http/ask.ts';
import { agentFor, type ProxyEnvironment } from '../http/proxy.ts';

const CONNECTIONS = 16;

/** What a provisioner says of one sandbox. */
export interface RemoteSandbox {
  readonly id: string;
  /** Empty = it has no address yet. */
  readonly url: string;
  readonly status: string;
  readonly ready: boolean;
  readonly terminating: boolean;
  readonly uid: string;
  readonly name: string;
  readonly nonce: string;
  readonly home: string;
  readonly userId: string;
  readonly threadId: string;
  readonly createdAt: number;
}

/**
 * The routes of a provisioner. An answer, whatever its status, is what it knows; a rejection (`sandbox_unavailable`) means that it could
 * not be asked, which proves nothing about any sandbox. The key is in no message.
 */
export class ProvisionerClient {
  readonly #url: URL;
  readonly #key: string;
  readonly #clock: Clock;
  readonly #agent: Agent;

  constructor(url: URL, key: string, clock: Clock, environment: ProxyEnvironment) {
    this.#url = url;
    this.#key = key;
    this.#clock = clock;
    this.#agent = agentFor(url, environment, CONNECTIONS);
  }

  /** @param request its path begins behind the address of the provisioner */
  async ask(request: JsonRequest): Promise<JsonAnswer> {
    const { protocol, hostname, port, pathname } = this.#url;
    const where = { protocol, hostname: hostname.replace(/^\[|\]$/g, ''), port, agent: this.#agent };
    const path = `${pathname.replace(/\/$/, '')}${request.path}`;
    try {
      return await askJson(this.#clock, where, { ...request, path, headers: { 'x-api-key': this.#key } });
    } catch (cause) {
      const why = cause instanceof Error ? cause.message : 'no reason given';
      throw new ReindeerError(
        'sandbox_unavailable',
        `The provisioner at ${this.#url.origin} does not answer (${why.slice(0, 200)}). Is it running, and is sandbox.provisioner_url right?`,
        { cause, retryable: true },
      );
    }
  }

  /** Idempotent. */
  close(): void {
    this.#agent.destroy();
  }
}

/** What an answer says of one sandbox; every field is checked. null = it does not. */
export function remoteSandbox(body: unknown): RemoteSandbox | null {
  const text = (key: string): string | null => {
    const value = at(body, key);
    return typeof value === 'string' && value.length <= 2_000 ? value : null;
  };
  const [id, url, status, uid, name] = ['sandbox_id', 'sandbox_url', 'status', 'uid', 'name'].map(text);
  const [nonce, home, userId, threadId] = ['nonce', 'home', 'user_id', 'thread_id'].map(text);
  const createdAt = at(body, 'created_at');
  if (id == null || url == null || status == null || uid == null || uid === '' || name == null) return null;
  if (nonce == null || nonce === '' || home == null || userId == null || threadId == null) return null;
  return {
    id,
    url,
    status,
    uid,
    name,
    nonce,
    home,
    userId,
    threadId,
    ready: at(body, 'ready') === true,
    terminating: at(body, 'terminating') === true,
    createdAt: typeof createdAt === 'number' && createdAt > 0 ? createdAt : 0,
  };
}

/** Why an answer is no help, in words for whoever asked. */
export function refusal(answer: JsonAnswer): ReindeerError {
  if (answer.status === 401)
    return new ReindeerError(
      'sandbox_unavailable',
      'The provisioner refused the key: sandbox.provisioner_api_key must be its PROVISIONER_API_KEY.',
    );
  const why = messageOf(answer) || 'no reason given';
  return new ReindeerError('sandbox_unavailable', `The provisioner gave no sandbox (status ${answer.status}): ${why}`, {
    retryable: answer.status >= 500 || answer.status === 429,
  });
}
