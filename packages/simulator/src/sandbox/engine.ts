import {
  type CreatedSandbox,
  type CreateSandboxInput,
  type ExecRequest,
  type ExecResult,
  ReindeerError,
  type SandboxBackend,
  type SandboxInfo,
} from '@reindeer/protocol';
import type { SeededRandom } from '@reindeer/testkit';
import type { Incarnation, Request } from '../frame/incarnation.ts';
import type { Scheduler } from '../frame/scheduler.ts';

export interface Container {
  readonly id: string;
  readonly info: SandboxInfo;
  readonly createdBy: Incarnation;
  /** World time. */
  readonly bornAt: number;
  /** `dead`: it ended by itself and still has its name. */
  state: 'starting' | 'running' | 'dead' | 'removed';
  ready: boolean;
  readonly commands: Set<Command>;
  readonly stops: Set<Stop>;
}

export interface Command {
  readonly incarnation: Incarnation;
  /** What the command line says: which turn it is of. */
  readonly turn: string;
  readonly cut: (error: Error) => void;
}

/** One request to stop a container, from its arrival at the engine to its end there. */
export interface Stop {
  readonly container: Container;
  readonly incarnation: Incarnation;
  readonly sentAt: number;
}

type ReadyOptions = Parameters<SandboxBackend['ready']>[1];

/** How an engine behaves; times in milliseconds. */
export interface EngineWeather {
  readonly slowStops: number;
  readonly slowStopMs: number;
  readonly failingStops: number;
  readonly failingCreates: number;
  readonly neverReady: number;
}

export interface EngineWatch {
  /** A request to stop a container that exists has arrived. */
  asked(request: Request, container: Container): void;
  /** Right before a container and everything in it ends. */
  killing(stop: Stop): void;
}

/**
 * One container engine that all processes of a world share. It does what it is told, slowly: a stop may take longer than a lease, fail at
 * its end, or go on although its caller has died. It hands out a new description of a container each time, as a real one does.
 */
export class Engine {
  /** By id: the name of a container is given away once. */
  readonly containers = new Map<string, Container>();
  created = 0;
  stopped = 0;
  readonly #scheduler: Scheduler;
  readonly #random: SeededRandom;
  readonly #weather: EngineWeather;
  readonly #healed: () => boolean;
  readonly #watch: EngineWatch;

  constructor(parts: {
    scheduler: Scheduler;
    random: SeededRandom;
    weather: EngineWeather;
    healed: () => boolean;
    watch: EngineWatch;
  }) {
    this.#scheduler = parts.scheduler;
    this.#random = parts.random;
    this.#weather = parts.weather;
    this.#healed = parts.healed;
    this.#watch = parts.watch;
  }

  serve(request: Request): Promise<unknown> {
    const [first, second] = request.args;
    switch (request.method) {
      case 'create':
        return this.#create(first as CreateSandboxInput, request.incarnation);
      case 'ready':
        return this.#ready(first as SandboxInfo, second as ReadyOptions);
      case 'stop':
        return this.#stop(first as SandboxInfo, request);
      case 'isAlive':
        return Promise.resolve(this.#runs(this.#same(first as SandboxInfo)));
      case 'discover':
        return Promise.resolve(this.#described(this.containers.get(first as string)));
      case 'listRunning':
        return Promise.resolve([...this.containers.values()].flatMap((container) => this.#described(container) ?? []));
      case 'exec':
        return this.#exec(first as SandboxInfo, second as ExecRequest, request.incarnation);
      default:
        return Promise.reject(new Error(`No method ${request.method}`));
    }
  }

  /** The container ends by itself, as one that runs out of memory does, or is removed by hand. */
  lose(id: string, removed: boolean): void {
    const container = this.containers.get(id);
    if (container?.state !== 'running') return;
    container.state = 'dead';
    this.#cut(container);
    if (removed) this.#remove(container);
  }

  /** The running container that a description means. */
  same(info: SandboxInfo): Container | undefined {
    return this.#same(info);
  }

  async #create(input: CreateSandboxInput, incarnation: Incarnation): Promise<CreatedSandbox> {
    const there = this.containers.get(input.id);
    if (there !== undefined) {
      await this.#scheduler.sleep(20 + this.#random.below(200));
      return { outcome: 'existing', info: { ...there.info } };
    }
    this.created += 1;
    const container: Container = {
      id: input.id,
      info: {
        id: input.id,
        name: `simulated-${input.id}`,
        url: `http://127.0.0.1:${20_000 + this.created}`,
        createdAt: this.#random.chance(0.1) ? 0 : this.#scheduler.now,
      },
      createdBy: incarnation,
      bornAt: this.#scheduler.now,
      state: 'starting',
      ready: this.#healed() || !this.#random.chance(this.#weather.neverReady),
      commands: new Set(),
      stops: new Set(),
    };
    this.containers.set(input.id, container);
    await this.#scheduler.sleep(100 + this.#random.below(3_000));
    if (!this.#healed() && this.#random.chance(this.#weather.failingCreates)) {
      this.#remove(container);
      throw unavailable('The container could not be started.');
    }
    container.state = 'running';
    return { outcome: 'created', info: { ...container.info } };
  }

  async #ready(info: SandboxInfo, { withinMs, signal }: ReadyOptions): Promise<boolean> {
    await this.#wait(Math.min(withinMs, 50 + this.#random.below(2_000)), signal);
    const container = this.#same(info);
    if (container === undefined || container.state === 'dead') return false;
    if (container.state === 'running' && container.ready) return true;
    await this.#wait(withinMs, signal);
    return container.ready && this.#runs(this.#same(info));
  }

  async #wait(milliseconds: number, signal: AbortSignal | undefined): Promise<void> {
    if (signal?.aborted === true) return;
    const cut = Promise.withResolvers<void>();
    const timer = this.#scheduler.after(milliseconds, cut.resolve);
    signal?.addEventListener('abort', () => cut.resolve(), { once: true });
    await cut.promise;
    timer.cancel();
  }

  async #stop(info: SandboxInfo, request: Request): Promise<void> {
    const { incarnation, sentAt } = request;
    const container = this.#same(info);
    if (container === undefined) return;
    this.#watch.asked(request, container);
    const stop: Stop = { container, incarnation, sentAt };
    container.stops.add(stop);
    const { slowStops, slowStopMs, failingStops } = this.#weather;
    const slow = !this.#healed() && this.#random.chance(slowStops);
    await this.#scheduler.sleep(50 + this.#random.below(slow ? slowStopMs : 2_500));
    container.stops.delete(stop);
    if (this.#same(info) === undefined) return;
    if (!this.#healed() && this.#random.chance(failingStops)) throw unavailable('The container could not be stopped.');
    this.#watch.killing(stop);
    this.stopped += 1;
    this.#remove(container);
    this.#cut(container);
  }

  #exec(info: SandboxInfo, request: ExecRequest, incarnation: Incarnation): Promise<ExecResult> {
    const container = this.#same(info);
    if (container?.state !== 'running') return Promise.reject(unavailable('This sandbox is gone.'));
    const [turn = '', milliseconds = '0'] = request.command.split(' ');
    return new Promise((resolve, reject) => {
      const command: Command = { incarnation, turn, cut: reject };
      container.commands.add(command);
      this.#scheduler.after(Number(milliseconds), () => {
        if (!container.commands.delete(command)) return;
        resolve({ output: '', exitCode: 0, ended: 'exit', truncatedBytes: 0, durationMs: Number(milliseconds) });
      });
    });
  }

  #cut(container: Container): void {
    for (const { cut } of container.commands) cut(unavailable('This sandbox is gone.'));
    container.commands.clear();
  }

  #remove(container: Container): void {
    container.state = 'removed';
    if (this.containers.get(container.id) === container) this.containers.delete(container.id);
  }

  #runs(container: Container | undefined): boolean {
    return container?.state === 'running';
  }

  #described(container: Container | undefined): SandboxInfo | null {
    return container?.state === 'running' ? { ...container.info } : null;
  }

  #same(info: SandboxInfo): Container | undefined {
    const container = this.containers.get(info.id);
    return container?.info.url === info.url ? container : undefined;
  }
}

const unavailable = (message: string): ReindeerError =>
  new ReindeerError('sandbox_unavailable', message, { retryable: true });
