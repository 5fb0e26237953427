import { type Clock, type Logger, ReindeerError } from '@reindeer/protocol';
import { at } from '../container/listing.ts';
import { type JsonAnswer, messageOf } from '../http/ask.ts';
import { KeyedLock } from '../keyed-lock.ts';
import type { KubernetesClient } from './kubernetes.ts';
import {
  objectName,
  type PodFacts,
  podBody,
  podFacts,
  SELECTOR,
  sandboxUrl,
  serviceBody,
  serviceOwner,
} from './pod.ts';
import type { SandboxRequest } from './request.ts';
import type { ProvisionerSettings } from './settings.ts';

export interface ProvisionerParts {
  readonly kubernetes: Pick<KubernetesClient, 'ask'>;
  readonly settings: ProvisionerSettings;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Milliseconds that one question to the API server may take; default 8,000. */
  readonly askMs?: number;
}

/** One sandbox as it is told to gateways. */
export interface ProvisionedSandbox extends PodFacts {
  /** Empty = it has no address yet. */
  readonly url: string;
}

const ASK_MS = 8_000;
/** How long an address, and the end of an earlier pod of the same id, are waited for. */
const POLLS = 20;
const POLL_MS = 500;
const PAGE = 200;
const MAX_PAGES = 50;

/**
 * Creates, finds and removes pods, each with its service. It keeps nothing in memory: the API server is the record, so that it may be
 * restarted at any moment and several may run at once. What of one sandbox is asked for here at once is done one after the other.
 */
export class Provisioner {
  readonly #parts: ProvisionerParts;
  readonly #lock = new KeyedLock();

  constructor(parts: ProvisionerParts) {
    this.#parts = parts;
  }

  /** Idempotent by id: a living pod of that id is the answer (SX-13). A pod without its service is taken back. */
  create(request: SandboxRequest): Promise<{ readonly created: boolean; readonly sandbox: ProvisionedSandbox }> {
    return this.#lock.run(request.id, () => this.#create(request));
  }

  /** null = the API server has no such pod. */
  async get(id: string): Promise<ProvisionedSandbox | null> {
    const pod = await this.#pod(id);
    if (pod === null) return null;
    return { ...pod, url: this.#urlOf(await this.#service(pod.name), pod) };
  }

  /** @param home only those of one deployment; null = all */
  async list(home: string | null): Promise<readonly ProvisionedSandbox[]> {
    const pods = (await this.#all('pods')).flatMap((pod) => podFacts(pod) ?? []);
    const services = new Map((await this.#all('services')).map((one) => [at(at(one, 'metadata'), 'name'), one]));
    return pods
      .filter((pod) => home === null || pod.home === home)
      .map((pod) => ({ ...pod, url: this.#urlOf(services.get(pod.name) ?? null, pod) }));
  }

  /**
   * Removes the service and the pod of an id; what is gone already is no fault. Both are tried, whatever becomes of the other.
   *
   * @param only remove no other pod of that id than the one with this uid, or this nonce
   * @throws ReindeerError `internal` when one of both may still be there (SX-13)
   */
  remove(id: string, only: { readonly uid?: string; readonly nonce?: string } = {}): Promise<void> {
    return this.#lock.run(id, async () => {
      const name = objectName(id);
      const pod = await this.#pod(id);
      const other =
        pod !== null &&
        ((only.uid !== undefined && only.uid !== pod.uid) || (only.nonce !== undefined && only.nonce !== pod.nonce));
      if (other) return;
      const uid = pod?.uid ?? only.uid;
      const failed: string[] = [];
      const service = await this.#service(name).catch(() => undefined);
      const owner = serviceOwner(service);
      const mine = uid === undefined ? only.nonce === undefined : owner === uid;
      if (service === undefined) failed.push('service');
      else if (service !== null && mine && !(await this.#delete('services', name, service))) failed.push('service');
      if (pod !== null && !(await this.#deletePod(pod))) failed.push('pod');
      if (failed.length > 0)
        throw new ReindeerError('internal', `The ${failed.join(' and the ')} of sandbox ${id} could not be removed.`, {
          retryable: true,
        });
    });
  }

  async #create(request: SandboxRequest): Promise<{ created: boolean; sandbox: ProvisionedSandbox }> {
    const made = await this.#makePod(request);
    const { pod } = made;
    try {
      const service = await this.#makeService(pod);
      return { created: made.created, sandbox: { ...pod, url: this.#urlOf(service, pod) } };
    } catch (error) {
      // Of a pod that was there before, somebody else has the say.
      if (made.created) await this.#rollBack(pod);
      throw error;
    }
  }

  async #makePod(request: SandboxRequest): Promise<{ created: boolean; pod: PodFacts }> {
    const { settings, clock } = this.#parts;
    const name = objectName(request.id);
    for (let turn = 0; turn < POLLS; turn += 1) {
      let answer: JsonAnswer;
      try {
        answer = await this.#ask('POST', '/pods', podBody(request, settings));
      } catch (error) {
        return { created: true, pod: await this.#lostPod(request, error) };
      }
      if (answer.status === 201) {
        const pod = podFacts(answer.body);
        if (pod !== null) return { created: true, pod };
        throw refused('the API server answered with no pod');
      }
      if (answer.status !== 409 || at(answer.body, 'reason') !== 'AlreadyExists')
        throw this.#refusal('make the pod', answer);
      const there = await this.#pod(request.id);
      if (there !== null && !there.terminating) {
        if (there.status !== 'Failed' && there.status !== 'Succeeded')
          return { created: there.nonce === request.nonce, pod: there };
        // It has ended: its name goes to the new one.
        await this.#deletePod(there);
      }
      await clock.sleep(POLL_MS);
    }
    throw refused(`an earlier pod ${name} has not gone yet`);
  }

  /** The pod of a request whose answer was lost; when there is none, or nobody can say, the caller hears of the loss. */
  async #lostPod(request: SandboxRequest, error: unknown): Promise<PodFacts> {
    const pod = await this.#pod(request.id).catch(() => null);
    if (pod !== null && pod.nonce === request.nonce) return pod;
    throw error;
  }

  async #makeService(pod: PodFacts): Promise<unknown> {
    const { settings, clock } = this.#parts;
    for (let turn = 0; turn < POLLS; turn += 1) {
      const there = await this.#service(pod.name);
      if (there !== null && serviceOwner(there) === pod.uid) {
        if (sandboxUrl(there, settings) !== null) return there;
        await clock.sleep(POLL_MS);
        continue;
      }
      // Of an earlier pod of this name.
      if (there !== null) await this.#delete('services', pod.name, there);
      const answer = await this.#ask('POST', '/services', serviceBody(pod, settings));
      if (answer.status === 409) await clock.sleep(POLL_MS);
      else if (answer.status !== 201) throw this.#refusal('make the service', answer);
    }
    throw refused('the service got no address');
  }

  /** Never throws: the reason for rolling back is what the caller hears. */
  async #rollBack(pod: PodFacts): Promise<void> {
    const { logger } = this.#parts;
    try {
      const service = await this.#service(pod.name).catch(() => null);
      if (service !== null && serviceOwner(service) === pod.uid) await this.#delete('services', pod.name, service);
      if (await this.#deletePod(pod)) return;
      logger.error('A pod without a service may be left', { sandboxId: pod.id, pod: pod.name });
    } catch (error) {
      logger.error('A pod without a service may be left', { sandboxId: pod.id, pod: pod.name, cause: String(error) });
    }
  }

  #deletePod(pod: PodFacts): Promise<boolean> {
    return this.#delete('pods', pod.name, { metadata: { uid: pod.uid } });
  }

  /** True when the very object is gone or going; a later one of the same name is left alone. */
  async #delete(kind: 'pods' | 'services', name: string, object: unknown): Promise<boolean> {
    const { logger } = this.#parts;
    try {
      const answer = await this.#ask('DELETE', `/${kind}/${name}`, {
        apiVersion: 'v1',
        kind: 'DeleteOptions',
        preconditions: { uid: at(at(object, 'metadata'), 'uid') },
        ...(kind === 'pods' ? { gracePeriodSeconds: 2 } : {}),
      });
      // 409: another object has the name by now.
      if ([200, 202, 404, 409].includes(answer.status)) return true;
      logger.warn('Kubernetes refused a removal', { kind, name, status: answer.status, reason: messageOf(answer) });
    } catch (error) {
      logger.warn('Kubernetes could not be asked for a removal', { kind, name, cause: String(error) });
    }
    return false;
  }

  async #pod(id: string): Promise<PodFacts | null> {
    const pod = await this.#read(`/pods/${objectName(id)}`);
    if (pod === null) return null;
    const facts = podFacts(pod);
    if (facts?.id === id) return facts;
    throw new ReindeerError('conflict', `The name ${objectName(id)} is taken by a pod that is none of ours.`);
  }

  #service(name: string): Promise<unknown> {
    return this.#read(`/services/${name}`);
  }

  /** null = the API server has no such object. Rejects when that cannot be said. */
  async #read(path: string): Promise<unknown> {
    const answer = await this.#ask('GET', path);
    // A 404 of something that stands before the API server is no knowledge.
    if (answer.status === 404 && at(answer.body, 'kind') === 'Status') return null;
    if (answer.status !== 200 || answer.body === null) throw this.#refusal('read an object', answer);
    return answer.body;
  }

  async #all(kind: 'pods' | 'services'): Promise<readonly unknown[]> {
    const found: unknown[] = [];
    let next = '';
    for (let page = 0; page < MAX_PAGES; page += 1) {
      const rest = next === '' ? '' : `&continue=${encodeURIComponent(next)}`;
      const answer = await this.#ask('GET', `/${kind}?labelSelector=${SELECTOR}&limit=${PAGE}${rest}`);
      const items = at(answer.body, 'items');
      if (answer.status !== 200 || !Array.isArray(items)) throw this.#refusal(`list the ${kind}`, answer);
      found.push(...items);
      const token = at(at(answer.body, 'metadata'), 'continue');
      if (typeof token !== 'string' || token === '') return found;
      next = token;
    }
    throw refused(`there are more than ${PAGE * MAX_PAGES} ${kind}`);
  }

  #urlOf(service: unknown, pod: PodFacts): string {
    return serviceOwner(service) === pod.uid ? (sandboxUrl(service, this.#parts.settings) ?? '') : '';
  }

  #ask(method: 'GET' | 'POST' | 'DELETE', path: string, body?: unknown): Promise<JsonAnswer> {
    const namespaced = `/api/v1/namespaces/${this.#parts.settings.namespace}${path}`;
    return this.#parts.kubernetes.ask({ method, path: namespaced, body, timeoutMs: this.#parts.askMs ?? ASK_MS });
  }

  /** The API server's words may tell of the cluster: they go to the log, not to whoever asked. */
  #refusal(step: string, answer: JsonAnswer): ReindeerError {
    this.#parts.logger.error('Kubernetes refused', { step, status: answer.status, reason: messageOf(answer) });
    return refused(`it could not ${step} (status ${answer.status}); the provisioner’s log has its reason`);
  }
}

function refused(why: string): ReindeerError {
  return new ReindeerError('sandbox_unavailable', `Kubernetes gave no sandbox: ${why}.`, { retryable: true });
}
