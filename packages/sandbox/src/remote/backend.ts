import { createHash } from 'node:crypto';
import {
  type CreatedSandbox,
  type CreateSandboxInput,
  type IsolationReport,
  ReindeerError,
  type SandboxBackend,
  type SandboxClient,
  type SandboxIdentity,
  type SandboxInfo,
  SKILLS_ROOT,
  type Surroundings,
  VIRTUAL_FOLDERS,
  VIRTUAL_ROOT,
} from '@reindeer/protocol';
import { asContainer, type ContainerInfo } from '../container/description.ts';
import type { Ground } from '../container/ground.ts';
import { at } from '../container/listing.ts';
import type { ContainerSettings } from '../container/settings.ts';
import { threadPaths } from '../folders.ts';
import { type ProvisionerClient, type RemoteSandbox, refusal, remoteSandbox } from './client.ts';

export interface RemoteBackendParts {
  readonly provisioner: Pick<ProvisionerClient, 'ask' | 'close'>;
  readonly ground: Ground;
  readonly surroundings: Surroundings;
  /** Of commands; what a pod may use, the provisioner says. */
  readonly settings: Pick<ContainerSettings, 'threadDataMounts' | 'bashCommandTimeoutMs' | 'outputBytes'>;
}

const CREATE_MS = 30_000;
const REMOVE_MS = 15_000;
const ASK_MS = 10_000;
const PROBE_MS = 5_000;
/** How long the end of a removed pod is waited for. */
const GONE_MS = 60_000;
const POLL_MS = 250;
const READY_PAUSES = [POLL_MS, 1_000] as const;
/** A sandbox without an address may be in the making. */
const ADDRESS_MS = 60_000;

/**
 * Sandboxes that a provisioner starts. It decides nothing (see `SandboxBackend`). That this server cannot reach a sandbox proves nothing:
 * dead is what the provisioner knows to be gone or ended, or what the node's own probe finds without life as well (SX-01).
 */
export class RemoteBackend implements SandboxBackend {
  readonly #parts: RemoteBackendParts;
  readonly #home: string;
  #limits: Readonly<Record<string, string>> | null = null;
  #trouble = 'the provisioner has not answered yet.';

  constructor(parts: RemoteBackendParts) {
    this.#parts = parts;
    this.#home = createHash('sha256').update(parts.ground.home).digest('hex').slice(0, 16);
  }

  /** What the provisioner says of itself; asked once it answers. */
  async facts(): Promise<void> {
    try {
      const answer = await this.#parts.provisioner.ask({
        method: 'GET',
        path: '/api/capabilities',
        timeoutMs: PROBE_MS,
      });
      if (answer.status !== 200) throw refusal(answer);
      const limits = at(answer.body, 'limits');
      const text = (key: string) => String(at(limits, key) ?? '').slice(0, 40);
      this.#limits = { memory: text('memory'), cpu: text('cpu'), disk: text('disk') };
    } catch (error) {
      this.#trouble = error instanceof Error ? error.message : String(error);
      throw error;
    }
  }

  report(): IsolationReport {
    if (this.#limits === null)
      return {
        provider: 'remote',
        canExecute: false,
        reason: this.#trouble,
        remedy: 'start the provisioner (reindeer provisioner); commands run as soon as it answers.',
        network: 'none',
        limits: [],
      };
    const { memory = '', cpu = '', disk = '' } = this.#limits;
    const { bashCommandTimeoutMs, outputBytes } = this.#parts.settings;
    return {
      provider: 'remote',
      canExecute: true,
      // What the network policy of the cluster lets through cannot be seen from here.
      network: 'bridge',
      limits: [
        { name: 'identity', enforcedBy: 'pod', value: 'no capabilities, no new privileges, read-only system' },
        { name: 'system calls', enforcedBy: 'seccomp', value: 'the node’s default profile' },
        { name: 'network', enforcedBy: null, value: 'as the cluster’s network policies say' },
        { name: 'memory', enforcedBy: 'cgroup', value: memory },
        { name: 'processors', enforcedBy: 'cgroup', value: cpu },
        { name: 'processes', enforcedBy: null, value: 'as the node says (podPidsLimit)' },
        {
          name: 'disk',
          enforcedBy: 'kubelet',
          value: disk,
          note: 'A pod that passes it is removed; its thread gets another.',
        },
        { name: 'output', enforcedBy: 'reader', value: `${Math.round(outputBytes / 1024 / 1024)} MiB` },
        { name: 'time', enforcedBy: 'process kill', value: `${Math.round(bashCommandTimeoutMs / 1000)} s` },
      ],
    };
  }

  async create(input: CreateSandboxInput): Promise<CreatedSandbox> {
    const { provisioner, ground, surroundings } = this.#parts;
    const nonce = surroundings.random.uuid();
    try {
      const answer = await provisioner.ask({
        method: 'POST',
        path: '/api/sandboxes',
        body: {
          sandbox_id: input.id,
          user_id: input.userId,
          thread_id: input.threadId,
          nonce,
          secret_sha256: ground.secrets.hashOf(nonce),
          home: this.#home,
          extra_mounts: this.#mounts(input),
        },
        timeoutMs: CREATE_MS,
      });
      if (answer.status !== 201 && answer.status !== 200) throw refusal(answer);
      const made = remoteSandbox(answer.body);
      if (made === null || made.id !== input.id) throw unreadable();
      if (made.home !== this.#home)
        throw new ReindeerError(
          'configuration',
          `The sandbox ${input.id} belongs to another deployment. Give each a provisioner with a namespace of its own.`,
        );
      if (this.#limits === null) await this.facts().catch(() => {});
      return { outcome: made.nonce === nonce ? 'created' : 'existing', info: infoOf(made) };
    } catch (error) {
      // Also after a lost answer: the pod may have been made all the same.
      await this.#undo(input.id, nonce);
      throw error;
    }
  }

  async ready(
    info: SandboxInfo,
    options: { readonly withinMs: number; readonly signal?: AbortSignal },
  ): Promise<boolean> {
    const pod = asContainer(info);
    if (pod.url === '') return false;
    return await this.#parts.ground.clients.ready(pod, options, READY_PAUSES, async () =>
      hasEnded(await this.#look(pod.id), pod),
    );
  }

  /** Resolves when the pod is known to be gone (SX-08, SX-15). */
  async stop(info: SandboxInfo): Promise<void> {
    const { provisioner, ground, surroundings } = this.#parts;
    const { clock } = surroundings;
    const pod = asContainer(info);
    const path = `/api/sandboxes/${encodeURIComponent(pod.id)}?uid=${encodeURIComponent(pod.containerId)}`;
    const answer = await provisioner.ask({ method: 'DELETE', path, timeoutMs: REMOVE_MS });
    if (answer.status !== 200 || at(answer.body, 'ok') !== true) throw refusal(answer);
    const deadline = clock.monotonic() + GONE_MS;
    for (;;) {
      const now = await this.#look(pod.id);
      if (now === null || now.uid !== pod.containerId) break;
      if (clock.monotonic() >= deadline)
        throw new ReindeerError('sandbox_unavailable', 'The pod is still there after its removal.', {
          retryable: true,
        });
      await clock.sleep(POLL_MS);
    }
    ground.clients.forget(pod);
  }

  async isAlive(info: SandboxInfo): Promise<boolean> {
    const { ground, surroundings } = this.#parts;
    const pod = asContainer(info);
    const now = await this.#look(pod.id);
    if (now === null || hasEnded(now, pod)) return false;
    if (pod.url !== '' && (await ground.clients.answers(pod, PROBE_MS)) === 'yes') return true;
    // It has moved to another address, or has lost its own; while it is being made it has none yet.
    if (now.url !== pod.url && (now.url !== '' || surroundings.clock.now() - now.createdAt > ADDRESS_MS)) return false;
    // We do not reach it. Neither does its own node: it is without life. It does: the way between us is broken.
    if (now.status === 'Running' && !now.ready) return false;
    throw unknown(pod.id);
  }

  async discover(id: string): Promise<ContainerInfo | null> {
    try {
      const found = await this.#look(id);
      if (found === null || found.home !== this.#home || found.terminating || found.url === '') return null;
      const info = infoOf(found);
      return (await this.#parts.ground.clients.works(info, PROBE_MS)) ? info : null;
    } catch (error) {
      this.#parts.surroundings.logger.warn('A sandbox could not be looked for', {
        sandboxId: id,
        cause: String(error),
      });
      return null;
    }
  }

  async listRunning(): Promise<readonly ContainerInfo[]> {
    const { provisioner, surroundings } = this.#parts;
    try {
      const path = `/api/sandboxes?home=${this.#home}`;
      const answer = await provisioner.ask({ method: 'GET', path, timeoutMs: ASK_MS });
      const listed = at(answer.body, 'sandboxes');
      if (answer.status !== 200 || !Array.isArray(listed)) throw refusal(answer);
      const found = listed.flatMap((entry: unknown) => remoteSandbox(entry) ?? []);
      const running = (one: RemoteSandbox) => !one.terminating && one.status !== 'Failed' && one.status !== 'Succeeded';
      return found.filter((one) => one.home === this.#home && running(one)).map(infoOf);
    } catch (error) {
      // Nothing is adopted and nothing stopped by it (SX-04).
      surroundings.logger.warn('The sandboxes of the provisioner could not be listed', { cause: String(error) });
      return [];
    }
  }

  connect(info: SandboxInfo, identity: SandboxIdentity): SandboxClient {
    return this.#parts.ground.clients.connect(asContainer(info), identity);
  }

  async close(): Promise<void> {
    await this.#parts.ground.clients.close();
    this.#parts.provisioner.close();
  }

  /** null = the provisioner knows that there is no such sandbox. A 404 of something that stands before it is no such knowledge. */
  async #look(id: string): Promise<RemoteSandbox | null> {
    const path = `/api/sandboxes/${encodeURIComponent(id)}`;
    const answer = await this.#parts.provisioner.ask({ method: 'GET', path, timeoutMs: ASK_MS });
    if (answer.status === 404 && at(answer.body, 'status') === 'NotFound') return null;
    if (answer.status !== 200) throw refusal(answer);
    const found = remoteSandbox(answer.body);
    if (found === null || found.id !== id) throw unreadable();
    return found;
  }

  /** Never throws: the reason for undoing is what the caller hears. */
  async #undo(id: string, nonce: string): Promise<void> {
    const path = `/api/sandboxes/${encodeURIComponent(id)}?nonce=${nonce}`;
    try {
      const answer = await this.#parts.provisioner.ask({ method: 'DELETE', path, timeoutMs: REMOVE_MS });
      if (answer.status !== 200) throw refusal(answer);
    } catch (error) {
      this.#parts.surroundings.logger.warn('A sandbox that was not wanted may be left', {
        sandboxId: id,
        cause: String(error),
      });
    }
  }

  #mounts(identity: SandboxIdentity): readonly unknown[] {
    if (!this.#parts.settings.threadDataMounts) return [];
    const paths = threadPaths(this.#parts.ground.home, identity.userId, identity.threadId);
    return [
      ...VIRTUAL_FOLDERS.map((name) => ({
        host_path: paths.folders[name],
        container_path: `${VIRTUAL_ROOT}/${name}`,
        read_only: name === 'uploads',
      })),
      { host_path: paths.skills, container_path: SKILLS_ROOT, read_only: true },
    ];
  }
}

function hasEnded(now: RemoteSandbox | null, pod: ContainerInfo): boolean {
  if (now === null || now.uid !== pod.containerId || now.terminating) return true;
  return now.status === 'Failed' || now.status === 'Succeeded';
}

function infoOf(sandbox: RemoteSandbox): ContainerInfo {
  return {
    id: sandbox.id,
    url: sandbox.url,
    name: sandbox.name,
    createdAt: sandbox.createdAt,
    containerId: sandbox.uid,
    home: sandbox.home,
    userId: sandbox.userId,
    threadId: sandbox.threadId,
    nonce: sandbox.nonce,
    transport: 'port',
    ownServer: true,
  };
}

function unknown(id: string): ReindeerError {
  return new ReindeerError(
    'sandbox_unavailable',
    `The sandbox ${id} cannot be reached, and nothing says that it is dead.`,
    {
      retryable: true,
    },
  );
}

function unreadable(): ReindeerError {
  return new ReindeerError(
    'sandbox_unavailable',
    'The provisioner gave an answer that cannot be read. Is it Reindeer’s?',
  );
}
