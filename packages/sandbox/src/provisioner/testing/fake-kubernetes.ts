import { randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

type Kind = 'pods' | 'services';

export interface FakeObject {
  metadata: {
    name: string;
    uid: string;
    creationTimestamp: string;
    deletionTimestamp?: string;
    labels: Record<string, string>;
    annotations: Record<string, string>;
    ownerReferences?: { uid: string }[];
  };
  spec: Record<string, unknown> & { ports?: { nodePort?: number }[]; type?: string };
  status?: { phase: string; conditions: { type: string; status: string }[] };
}

/** What goes wrong with the next requests that match. */
export interface Fault {
  /** As in `POST /services`: the method, and how the path behind the namespace begins. */
  readonly at: string;
  /** An answer instead of the work; `lost`: the work is done and its answer never comes; `cut`: neither; `late`: no answer at all. */
  readonly kind: 'lost' | 'cut' | 'late' | { readonly status: number; readonly body?: unknown };
  /** How many requests; default 1. */
  times?: number;
}

/** What stands for the node: starts what is in a pod, and says at which port it is reached. */
export interface FakeNode {
  start(pod: FakeObject): Promise<number>;
  stop(pod: FakeObject): Promise<void>;
}

const NO_NODE: FakeNode = { start: async () => 30_000, stop: async () => {} };
const NAMESPACE = '/api/v1/namespaces/reindeer';

/** The few routes of the API server of Kubernetes that the provisioner uses, over a real socket, with faults on demand. */
export class FakeKubernetes {
  readonly objects: Record<Kind, Map<string, FakeObject>> = { pods: new Map(), services: new Map() };
  readonly asked: string[] = [];
  readonly bodies: unknown[] = [];
  readonly tokens: (string | undefined)[] = [];
  readonly faults: Fault[] = [];
  /** How a removed pod leaves: at once, or when the test says so. */
  lingering = false;
  readonly #node: FakeNode;
  readonly #ports = new Map<string, number>();
  readonly #server = createServer((request, response) => {
    this.#handle(request, response).catch(() => response.destroy());
  });

  constructor(node: FakeNode = NO_NODE) {
    this.#node = node;
  }

  async listen(): Promise<URL> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
    return new URL(`http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`);
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
    for (const pod of this.objects.pods.values()) await this.#node.stop(pod);
  }

  /** A removed pod is gone at last, and with it the services that it owned. */
  async vanish(name: string): Promise<void> {
    const pod = this.objects.pods.get(name);
    if (pod === undefined) return;
    this.objects.pods.delete(name);
    for (const [key, service] of this.objects.services)
      if (service.metadata.ownerReferences?.some(({ uid }) => uid === pod.metadata.uid))
        this.objects.services.delete(key);
    await this.#node.stop(pod);
  }

  async #handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? '/', 'http://kubernetes');
    const parts: Buffer[] = [];
    for await (const part of request) parts.push(part as Buffer);
    const text = Buffer.concat(parts).toString('utf8');
    const path = url.pathname.startsWith(NAMESPACE) ? url.pathname.slice(NAMESPACE.length) : url.pathname;
    this.asked.push(`${request.method} ${path}`);
    this.bodies.push(text);
    this.tokens.push(request.headers.authorization);
    const fault = this.faults.find(({ at, times = 1 }) => times > 0 && `${request.method} ${path}`.startsWith(at));
    if (fault !== undefined) {
      fault.times = (fault.times ?? 1) - 1;
      if (fault.kind === 'late') return;
      if (fault.kind === 'cut') return void request.socket.destroy();
      if (typeof fault.kind === 'object')
        return say(response, fault.kind.status, fault.kind.body ?? failure(fault.kind.status, 'InternalError'));
    }
    const { status, body } = await this.#work(request.method ?? '', path, text === '' ? null : JSON.parse(text));
    if (fault?.kind === 'lost') return void request.socket.destroy();
    say(response, status, body);
  }

  async #work(method: string, path: string, body: unknown): Promise<{ status: number; body: unknown }> {
    const [, kind = '', name] = path.split('/');
    if (kind !== 'pods' && kind !== 'services') return { status: 404, body: 'page not found' };
    const objects = this.objects[kind];
    if (name === undefined && method === 'GET')
      return { status: 200, body: { kind: 'List', metadata: {}, items: [...objects.values()] } };
    if (name === undefined) return this.#make(kind, body as FakeObject);
    const object = objects.get(name);
    if (object === undefined) return { status: 404, body: failure(404, 'NotFound') };
    if (method === 'GET') return { status: 200, body: object };
    const wanted = (body as { preconditions?: { uid?: string } } | null)?.preconditions?.uid;
    if (wanted !== undefined && wanted !== object.metadata.uid) return { status: 409, body: failure(409, 'Conflict') };
    if (kind === 'services') objects.delete(name);
    else if (this.lingering) object.metadata.deletionTimestamp = new Date().toISOString();
    else await this.vanish(name);
    return { status: 200, body: object };
  }

  async #make(kind: Kind, given: FakeObject): Promise<{ status: number; body: unknown }> {
    const { name } = given.metadata;
    if (this.objects[kind].has(name)) return { status: 409, body: failure(409, 'AlreadyExists') };
    const object: FakeObject = {
      ...given,
      metadata: { ...given.metadata, uid: randomUUID(), creationTimestamp: new Date().toISOString() },
    };
    this.objects[kind].set(name, object);
    if (kind === 'pods') {
      object.status = { phase: 'Running', conditions: [{ type: 'Ready', status: 'True' }] };
      this.#ports.set(name, await this.#node.start(object));
    } else if (object.spec.type === 'NodePort') {
      const [port] = object.spec.ports ?? [];
      if (port !== undefined) port.nodePort = this.#ports.get(name) ?? 30_000;
    }
    return { status: 201, body: object };
  }
}

function failure(code: number, reason: string): unknown {
  return { kind: 'Status', status: 'Failure', code, reason, message: `${reason}: of the cluster at /secret/place` };
}

function say(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify(body));
}
