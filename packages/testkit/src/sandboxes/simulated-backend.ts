import {
  type Clock,
  type CreatedSandbox,
  type CreateSandboxInput,
  type ExecRequest,
  type ExecResult,
  type IsolationReport,
  ReindeerError,
  type SandboxBackend,
  type SandboxClient,
  type SandboxFiles,
  type SandboxIdentity,
  type SandboxInfo,
} from '@reindeer/protocol';

export interface SimulatedContainer {
  readonly info: SandboxInfo;
  /** `dead`: it is still there, but does not run. */
  state: 'running' | 'dead';
  ready: boolean;
}

/** A client that can say whether it was closed, and whose commands end when the test says so. */
export interface SimulatedClient extends SandboxClient {
  readonly info: SandboxInfo;
  readonly closed: boolean;
}

/** The storage of a provider in tests that are about containers: no files at all. */
export const NO_STORAGE = {
  files: (): never => {
    throw new ReindeerError('not_implemented', 'There are no files here.');
  },
  prepare: async (): Promise<void> => {},
  remove: async (): Promise<void> => {},
  close: async (): Promise<void> => {},
};

/**
 * The engine of a test: containers are entries in a map. One engine serves several instances, which each get a view of their own by
 * `backend()`. It counts what a real engine would suffer from: a container that is stopped twice, or while a command runs in it.
 */
export class SimulatedEngine {
  readonly containers = new Map<string, SimulatedContainer>();
  /** Ids of all containers stopped so far, in order. */
  readonly stopped: string[] = [];
  readonly created: string[] = [];
  readonly clients: SimulatedClient[] = [];
  /** Ids of containers in which a command ran when they were stopped: must stay empty. */
  readonly killedUnderCommand: string[] = [];
  /** What a command does; the default answers at once. */
  onCommand: (id: string, request: ExecRequest) => Promise<string> = async () => '';
  /** Are new containers ready? */
  newAreReady = true;
  readonly #clock: Clock;
  readonly #commands = new Map<SandboxInfo, number>();
  #number = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Starts a container by hand, as an earlier process or a peer did. */
  run(id: string, part: { readonly createdAt?: number } = {}): SandboxInfo {
    this.#number += 1;
    const info: SandboxInfo = {
      id,
      name: `simulated-${id}`,
      url: `http://127.0.0.1:${20_000 + this.#number}`,
      createdAt: part.createdAt ?? this.#clock.now(),
    };
    this.containers.set(id, { info, state: 'running', ready: true });
    return info;
  }

  /** Removes a container behind everybody's back. */
  remove(id: string): void {
    this.containers.delete(id);
  }

  running(id: string): boolean {
    return this.containers.get(id)?.state === 'running';
  }

  /** Is a command running in this very container? */
  busy(info: SandboxInfo): boolean {
    return (this.#commands.get(info) ?? 0) > 0;
  }

  openClients(id: string): readonly SimulatedClient[] {
    return this.clients.filter((client) => client.id === id && !client.closed);
  }

  backend(): SandboxBackend {
    const engine = this;
    return {
      report: (): IsolationReport => ({ provider: 'simulated', canExecute: true, network: 'none', limits: [] }),
      async create({ id }: CreateSandboxInput): Promise<CreatedSandbox> {
        const there = engine.containers.get(id);
        if (there !== undefined) return { outcome: 'existing', info: there.info };
        const info = engine.run(id);
        engine.created.push(id);
        const container = engine.containers.get(id);
        if (container !== undefined) container.ready = engine.newAreReady;
        return { outcome: 'created', info };
      },
      async ready(info) {
        const container = engine.#same(info);
        return container?.state === 'running' && container.ready;
      },
      async stop(info) {
        if (engine.#same(info) === undefined) return;
        if (engine.busy(info)) engine.killedUnderCommand.push(info.id);
        engine.stopped.push(info.id);
        engine.containers.delete(info.id);
      },
      async isAlive(info) {
        return engine.#same(info)?.state === 'running';
      },
      async discover(id) {
        const container = engine.containers.get(id);
        return container?.state === 'running' ? container.info : null;
      },
      async listRunning() {
        return [...engine.containers.values()].filter(({ state }) => state === 'running').map(({ info }) => info);
      },
      connect: (info, identity) => engine.#connect(info, identity),
      async close() {},
    };
  }

  #same(info: SandboxInfo): SimulatedContainer | undefined {
    const container = this.containers.get(info.id);
    return container?.info === info ? container : undefined;
  }

  #connect(info: SandboxInfo, _identity: SandboxIdentity): SandboxClient {
    const engine = this;
    let closed = false;
    const client: SimulatedClient = {
      id: info.id,
      info,
      canExecute: true,
      pathStyle: 'virtual',
      get closed() {
        return closed;
      },
      get files(): SandboxFiles {
        throw new ReindeerError('not_implemented', 'The simulated engine has no files.');
      },
      async exec(request): Promise<ExecResult> {
        if (closed || engine.#same(info)?.state !== 'running')
          throw new ReindeerError('sandbox_unavailable', 'This sandbox is gone.');
        engine.#commands.set(info, (engine.#commands.get(info) ?? 0) + 1);
        try {
          const output = await engine.onCommand(info.id, request);
          return { output, exitCode: 0, ended: 'exit', truncatedBytes: 0, durationMs: 0 };
        } finally {
          engine.#commands.set(info, (engine.#commands.get(info) ?? 1) - 1);
        }
      },
      async close() {
        closed = true;
      },
    };
    this.clients.push(client);
    return client;
  }
}
