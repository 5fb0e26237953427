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
  type Surroundings,
} from '@reindeer/protocol';
import { threadPaths } from '../folders.ts';
import { type JsonAnswer, messageOf } from '../http/ask.ts';
import type { ContainerClients } from './clients.ts';
import {
  asContainer,
  asInspection,
  type ContainerInfo,
  containerInfo,
  IMAGE_LABEL,
  LABELS,
  stateOf,
} from './description.ts';
import type { EngineClient } from './engine.ts';
import { askFacts, containerReport, type EngineFacts } from './engine-facts.ts';
import { ownerOf } from './identity.ts';
import { at, listContainers } from './listing.ts';
import type { RunFolderOf, RunFolders } from './run-folders.ts';
import type { ContainerSecrets } from './secrets.ts';
import type { ContainerSettings } from './settings.ts';
import { containerSpec, OWN_PORT } from './spec.ts';
import { memoryOf } from './usage.ts';

export interface ContainerBackendParts {
  readonly engine: EngineClient;
  readonly settings: ContainerSettings;
  readonly surroundings: Surroundings;
  /** Real path of the data folder. */
  readonly home: string;
  /** Names this instance in labels. */
  readonly instance: string;
  readonly secrets: ContainerSecrets;
  readonly folders: RunFolders;
  readonly clients: ContainerClients;
  /** Which port of the host to try; 0 = the engine's choice. Default: its choice first, then random ones. */
  readonly hostPort?: (attempt: number) => number;
  /** Milliseconds that one of two health probes waits for the server in a container. Default 5,000. */
  readonly probeMs?: number;
}

const INSPECT_MS = 5_000;
const LIST_MS = 10_000;
const CREATE_MS = 30_000;
const STOP_MS = 60_000;
/** Attempts with another port (SX-07). */
const PORT_ATTEMPTS = 10;
/** How long a container that somebody else is starting, or removing, is waited for. */
const SETTLE_MS = 20_000;
const POLL_MS = 100;
const READY_PAUSES = [20, 500] as const;
/** Two tries, so that a pause of our own process alone never condemns a container. */
const PROBES = 2;
const PROBE_MS = 5_000;

/**
 * Containers on Docker or Podman. It decides nothing (see `SandboxBackend`); every question to the engine is bounded, and a
 * rejection means that the engine could not be asked or could not do it, never that a container is dead (SX-01).
 */
export class ContainerBackend implements SandboxBackend {
  readonly #parts: ContainerBackendParts;
  readonly #home: string;
  #facts: EngineFacts | null = null;
  #trouble = 'the container engine has not answered yet.';

  constructor(parts: ContainerBackendParts) {
    this.#parts = parts;
    this.#home = createHash('sha256').update(parts.home).digest('hex').slice(0, 16);
  }

  report(): IsolationReport {
    return containerReport(this.#parts.settings, this.#facts, this.#trouble);
  }

  /** What the engine says of itself; asked once it answers, and never again. */
  async facts(): Promise<EngineFacts> {
    if (this.#facts !== null) return this.#facts;
    try {
      const facts = await askFacts(this.#parts.engine);
      this.#facts = facts;
      return facts;
    } catch (error) {
      this.#trouble = error instanceof Error ? error.message : String(error);
      throw error;
    }
  }

  async create(input: CreateSandboxInput): Promise<CreatedSandbox> {
    const name = this.#nameOf(input.id);
    const facts = await this.facts();
    const { image, own } = await this.#image();
    const { transport: wanted, threadDataMounts: mounted } = this.#parts.settings;
    if (!mounted && !own)
      throw new ReindeerError(
        'configuration',
        `sandbox.thread_data_mounts: false needs an image built from images/sandbox; ${this.#parts.settings.image} cannot exchange files.`,
      );
    const transport = own && !facts.virtualMachine && wanted === 'auto' && mounted ? 'socket' : 'port';
    if (transport === 'port' && this.#parts.settings.network === 'none')
      throw new ReindeerError(
        'configuration',
        `The image ${this.#parts.settings.image} is reached by a published port here, which needs a network: set \`sandbox.network: bridge\`, or use the image built from images/sandbox on Linux.`,
      );
    const deadline = this.#now + SETTLE_MS;
    for (let ports = 0; ; ) {
      const made = await this.#tryCreate(name, input, { facts, image, own, transport, attempt: ports });
      if (made === 'port') {
        ports += 1;
        if (ports >= PORT_ATTEMPTS) throw refused('no free port was found');
        continue;
      }
      if (made !== 'name') return { outcome: 'created', info: made };
      const there = await this.#settled(name, deadline);
      if (there !== null) return { outcome: 'existing', info: there };
    }
  }

  async ready(
    info: SandboxInfo,
    options: { readonly withinMs: number; readonly signal?: AbortSignal },
  ): Promise<boolean> {
    const container = asContainer(info);
    return await this.#parts.clients.ready(container, options, READY_PAUSES, async () => {
      const entry = await this.#inspect(container.containerId);
      return entry === null || stateOf(entry) === 'stopped';
    });
  }

  async stop(info: SandboxInfo): Promise<void> {
    const container = asContainer(info);
    await this.#remove(container.containerId);
    this.#parts.clients.forget(container);
    await this.#parts.folders.remove(container).catch((error: unknown) =>
      this.#parts.surroundings.logger.warn('The private folder of a container could not be removed', {
        sandboxId: info.id,
        cause: String(error),
      }),
    );
  }

  async isAlive(info: SandboxInfo): Promise<boolean> {
    const container = asContainer(info);
    const entry = await this.#inspect(container.containerId);
    if (entry === null || stateOf(entry) !== 'running') return false;
    for (let turn = 0; turn < PROBES; turn += 1) {
      const answer = await this.#parts.clients.answers(container, this.#parts.probeMs ?? PROBE_MS);
      if (answer === 'unknown') throw refused('its server cannot be asked from here');
      if (answer !== 'late') return answer === 'yes';
    }
    // It runs and its server says nothing, twice: it hangs, or is paused, and no turn can work with it.
    return false;
  }

  async discover(id: string): Promise<ContainerInfo | null> {
    try {
      const entry = await this.#inspect(this.#nameOf(id));
      const info = entry === null || stateOf(entry) !== 'running' ? null : this.#infoOf(entry);
      if (info === null || info.home !== this.#home) return null;
      return (await this.#parts.clients.works(info, PROBE_MS)) ? info : null;
    } catch (error) {
      this.#parts.surroundings.logger.warn('A container could not be looked for', {
        sandboxId: id,
        cause: String(error),
      });
      return null;
    }
  }

  async listRunning(): Promise<readonly ContainerInfo[]> {
    const { settings, surroundings, engine } = this.#parts;
    const { containerPrefix: prefix, port, bindHost: host } = settings;
    const entries: unknown[] = [];
    const found = await listContainers(
      {
        // One request tells everything about all of them (SX-03).
        names: async (begin) => {
          const filters = encodeURIComponent(
            JSON.stringify({ name: [begin], label: [`${LABELS.home}=${this.#home}`] }),
          );
          const path = `/containers/json?all=true&filters=${filters}`;
          const answer = await engine.ask({ method: 'GET', path, timeoutMs: LIST_MS });
          if (answer.status !== 200 || !Array.isArray(answer.body)) throw refused(messageOf(answer));
          entries.push(...answer.body);
          const running = entries.filter((entry) => at(entry, 'State') === 'running');
          return running.map((entry) => String(at(asInspection(entry), 'Name') ?? '').replace(/^\//, ''));
        },
        inspect: async (names) => {
          const wanted = new Set(names.map((name) => `/${name}`));
          const described = entries.map(asInspection);
          const nameOf = (entry: unknown) => `/${String(at(entry, 'Name') ?? '').replace(/^\//, '')}`;
          return JSON.stringify(described.filter((entry) => wanted.has(nameOf(entry))));
        },
      },
      { prefix, port, host, logger: surroundings.logger },
      (entry) => this.#infoOf(entry),
    );
    return found;
  }

  memory(infos: readonly SandboxInfo[]): Promise<ReadonlyMap<string, number>> {
    return memoryOf(this.#parts.engine, infos.map(asContainer));
  }

  connect(info: SandboxInfo, identity: SandboxIdentity): SandboxClient {
    return this.#parts.clients.connect(asContainer(info), identity);
  }

  async close(): Promise<void> {
    await this.#parts.clients.close();
    this.#parts.engine.close();
  }

  get #now(): number {
    return this.#parts.surroundings.clock.monotonic();
  }

  #nameOf(id: string): string {
    return `${this.#parts.settings.containerPrefix}-${id}`;
  }

  #infoOf(entry: unknown): ContainerInfo | null {
    const { containerPrefix: prefix, port, bindHost: host } = this.#parts.settings;
    return containerInfo(entry, { prefix, port: portIn(entry, port), host });
  }

  /** One attempt: a started container, or which of the two things that can be taken was taken. */
  async #tryCreate(
    name: string,
    input: CreateSandboxInput,
    how: {
      readonly facts: EngineFacts;
      readonly image: string;
      readonly own: boolean;
      readonly transport: 'socket' | 'port';
      readonly attempt: number;
    },
  ): Promise<ContainerInfo | 'name' | 'port'> {
    const { settings, surroundings, folders, secrets, home, engine, instance } = this.#parts;
    const { facts, own, transport } = how;
    const nonce = surroundings.random.uuid();
    const paths = threadPaths(home, input.userId, input.threadId);
    const shifted = facts.rootless ? { uid: 0, gid: 0 } : await ownerOf(home, paths, input);
    const owner = own && !facts.virtualMachine && settings.threadDataMounts ? shifted : null;
    const container = { userId: input.userId, threadId: input.threadId, nonce };
    const runFolder = settings.threadDataMounts
      ? await folders.make(container, secrets.of(nonce), owner, { give: !facts.rootless })
      : null;
    const spec = containerSpec({
      settings: { ...settings, image: how.image },
      paths,
      runFolder,
      secretHash: secrets.hashOf(nonce),
      user: owner === null ? null : `${owner.uid}:${owner.gid}`,
      hostUsers: facts.remapsUsers,
      processors: facts.processors,
      transport,
      own,
      hostPort: transport === 'port' ? this.#hostPort(how.attempt) : 0,
      labels: {
        [LABELS.home]: this.#home,
        [LABELS.user]: input.userId,
        [LABELS.thread]: input.threadId,
        [LABELS.instance]: instance,
        [LABELS.nonce]: nonce,
        [LABELS.transport]: transport,
        [LABELS.server]: own ? 'own' : 'other',
      },
    });
    try {
      const made = await engine.ask({
        method: 'POST',
        path: `/containers/create?name=${encodeURIComponent(name)}`,
        body: spec,
        timeoutMs: CREATE_MS,
      });
      if (isNameConflict(made)) {
        await folders.remove(container);
        return 'name';
      }
      if (made.status !== 201) throw this.#failure('create', made);
      const containerId = String(at(made.body, 'Id') ?? '');
      const path = `/containers/${containerId}/start`;
      const started = await engine.ask({ method: 'POST', path, timeoutMs: CREATE_MS });
      if (started.status !== 204 && started.status !== 304) {
        if (transport === 'port' && isPortConflict(started)) {
          await this.#undo(name, container);
          return 'port';
        }
        throw this.#failure('start', started);
      }
      const entry = await this.#inspect(containerId);
      const info = entry === null ? null : this.#infoOf(entry);
      if (info === null) throw refused('the container ended as soon as it was started');
      await folders.sweep(container, surroundings.clock.now());
      return info;
    } catch (error) {
      // Also after a lost answer: the container may have been made all the same.
      await this.#undo(name, container);
      throw error;
    }
  }

  /** Takes back a container of this attempt, if there is one. Never throws: the reason for undoing is what the caller hears. */
  async #undo(name: string, container: RunFolderOf): Promise<void> {
    try {
      const entry = await this.#inspect(name);
      if (entry !== null && at(at(at(entry, 'Config'), 'Labels'), LABELS.nonce) === container.nonce)
        await this.#remove(String(at(entry, 'Id')));
      await this.#parts.folders.remove(container);
    } catch (error) {
      this.#parts.surroundings.logger.warn('A container that was not wanted may be left', {
        name,
        cause: String(error),
      });
    }
  }

  /**
   * The container that has taken a name, once it runs; null when the name is free again, because what had it was dead and is removed.
   * Rejects when somebody else's container has it, or when nothing is settled by the deadline.
   */
  async #settled(name: string, deadline: number): Promise<ContainerInfo | null> {
    for (;;) {
      const entry = await this.#inspect(name);
      if (entry === null) return null;
      const info = this.#infoOf(entry);
      if (info === null || info.home !== this.#home)
        throw new ReindeerError(
          'configuration',
          `The name ${name} belongs to a container of another deployment. Give each its own \`sandbox.container_prefix\`.`,
        );
      const state = stateOf(entry);
      if (state === 'running' || state === 'paused') return info;
      if (state === 'stopped' || (state === 'starting' && this.#now >= deadline)) {
        await this.#remove(info.containerId);
        await this.#parts.folders.remove(info);
        return null;
      }
      if (this.#now >= deadline) throw refused('a container of the same name is still being removed');
      await this.#parts.surroundings.clock.sleep(POLL_MS);
    }
  }

  /** Resolves when the container is known to be gone (SX-08, SX-15). */
  async #remove(containerId: string): Promise<void> {
    const path = `/containers/${containerId}?force=true&v=true`;
    const answer = await this.#parts.engine.ask({ method: 'DELETE', path, timeoutMs: STOP_MS });
    if (isGone(answer)) return;
    if (answer.status !== 204 && answer.status !== 200 && answer.status !== 409)
      this.#parts.surroundings.logger.warn('The engine complained while it removed a container', {
        status: answer.status,
        reason: messageOf(answer),
      });
    // Removal may still be under way, begun by this request or by the engine itself when the container ended.
    const deadline = this.#now + SETTLE_MS;
    while ((await this.#inspect(containerId)) !== null) {
      if (this.#now >= deadline) throw refused('the container is still there after its removal');
      await this.#parts.surroundings.clock.sleep(POLL_MS);
    }
  }

  /** An inspection; null = there definitely is no such container. Rejects when that cannot be said. */
  async #inspect(nameOrId: string): Promise<unknown> {
    const path = `/containers/${encodeURIComponent(nameOrId)}/json`;
    const answer = await this.#parts.engine.ask({ method: 'GET', path, timeoutMs: INSPECT_MS });
    if (isGone(answer)) return null;
    if (answer.status !== 200 || answer.body === null) throw refused(messageOf(answer));
    return answer.body;
  }

  /** The image under the name by which this engine knows it, and whether our server is in it. */
  async #image(): Promise<{ readonly image: string; readonly own: boolean }> {
    const { engine, settings } = this.#parts;
    // Podman keeps what was built here under `localhost/`, and its API does not look there by itself.
    const local = /^[^/]*[.:][^/]*\//.test(settings.image) ? [] : [`localhost/${settings.image}`];
    for (const image of [settings.image, ...local]) {
      const path = `/images/${image.split('/').map(encodeURIComponent).join('/')}/json`;
      const answer = await engine.ask({ method: 'GET', path, timeoutMs: INSPECT_MS });
      if (answer.status === 404) continue;
      if (answer.status !== 200) throw refused(messageOf(answer));
      return { image, own: at(at(at(answer.body, 'Config'), 'Labels'), IMAGE_LABEL) !== undefined };
    }
    throw new ReindeerError(
      'sandbox_unavailable',
      `The container engine has no image ${settings.image}. Build it ("docker build -t ${settings.image} -f images/sandbox/Dockerfile ."), or fetch it ("docker pull ${settings.image}").`,
    );
  }

  #hostPort(attempt: number): number {
    const { hostPort, surroundings } = this.#parts;
    if (hostPort !== undefined) return hostPort(attempt);
    return attempt === 0 ? 0 : 20_000 + Math.floor(surroundings.random.next() * 40_000);
  }

  /** The engine's words may name folders of the host: they go to the log, not to whoever asked. */
  #failure(step: string, answer: JsonAnswer): ReindeerError {
    this.#parts.surroundings.logger.error('The engine refused a container', {
      step,
      status: answer.status,
      reason: messageOf(answer),
    });
    return refused(`it could not ${step} the container (status ${answer.status}); the log has its reason`);
  }
}

function refused(why: string): ReindeerError {
  return new ReindeerError('sandbox_unavailable', `The container engine gave no sandbox: ${why}.`, { retryable: true });
}

/** Docker answers 409; some versions of Podman answer 500 and say why. */
function isNameConflict(answer: JsonAnswer): boolean {
  return answer.status === 409 || (answer.status === 500 && /name .*already in use/i.test(messageOf(answer)));
}

/** Podman answers 500 while the removal of a container ends, in the words of a container that is not there. */
function isGone(answer: JsonAnswer): boolean {
  return answer.status === 404 || (answer.status === 500 && /no such container/i.test(messageOf(answer)));
}

function isPortConflict(answer: JsonAnswer): boolean {
  return /port is already allocated|address already in use|ports are not available/i.test(messageOf(answer));
}

/** Which port inside this container is published: our server's, or that of another image. */
function portIn(entry: unknown, port: number): number {
  const ports = at(at(entry, 'NetworkSettings'), 'Ports');
  return at(ports, `${port}/tcp`) === undefined ? OWN_PORT : port;
}
