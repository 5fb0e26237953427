import type { Agent } from 'node:http';
import { type Clock, ReindeerError } from '@reindeer/protocol';
import { askJson, type JsonAnswer, type JsonRequest } from '../http/ask.ts';
import { agentFor, type ProxyEnvironment } from '../http/proxy.ts';
import type { KubernetesAccess } from './access.ts';

const CONNECTIONS = 16;

/**
 * The few routes of the Kubernetes API that the provisioner needs. An answer, whatever its status, is what the API server knows; a
 * rejection (`sandbox_unavailable`) means that it could not be asked, and then a request may have been carried out or not.
 */
export class KubernetesClient {
  readonly #access: KubernetesAccess;
  readonly #clock: Clock;
  readonly #agent: Agent;

  constructor(access: KubernetesAccess, clock: Clock, environment: ProxyEnvironment) {
    this.#access = access;
    this.#clock = clock;
    this.#agent = agentFor(access.url, environment, CONNECTIONS);
  }

  /** @param request its path begins behind the address of the API server */
  async ask(request: JsonRequest): Promise<JsonAnswer> {
    const { url, ca, certificate, token } = this.#access;
    try {
      const bearer = await token();
      return await askJson(
        this.#clock,
        {
          protocol: url.protocol,
          hostname: url.hostname.replace(/^\[|\]$/g, ''),
          port: url.port,
          agent: this.#agent,
          ...(ca === null ? {} : { ca }),
          ...(certificate ?? {}),
        },
        {
          ...request,
          path: `${url.pathname.replace(/\/$/, '')}${request.path}`,
          headers: bearer === null ? {} : { authorization: `Bearer ${bearer}` },
        },
      );
    } catch (cause) {
      const why = cause instanceof Error ? cause.message : 'no reason given';
      throw new ReindeerError('sandbox_unavailable', `The Kubernetes API does not answer (${why.slice(0, 200)}).`, {
        cause,
        retryable: true,
      });
    }
  }

  /** Idempotent. */
  close(): void {
    this.#agent.destroy();
  }
}
