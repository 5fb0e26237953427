import type { Clock, SandboxBackend, SandboxInfo } from '@reindeer/protocol';
import { SimulatedEngine } from '@reindeer/testkit';
import { KeyedLock } from '../../keyed-lock.ts';
import type { ThreadStorage } from '../../lifecycle/parts.ts';
import type { ContainerInfo } from '../description.ts';

/** The real backend, of whatever kind, and the files below it. */
export interface RealParts {
  readonly backend: SandboxBackend;
  readonly storage: ThreadStorage;
}

const PATIENCE_MS = 30_000;

/**
 * The engine of the contract's scenes, with a real container behind each simulated one: whatever a provider does is done to both, and
 * both have to say the same. So the suite's gates and counts work as ever, and every order of its races is tried on a real engine.
 */
export class MirroredEngine extends SimulatedEngine {
  readonly #parts: Promise<RealParts>;
  /** Simulated container → the real one, once it is begun. */
  readonly #real = new Map<SandboxInfo, Promise<ContainerInfo>>();
  readonly #removed: Promise<void>[] = [];
  readonly #turn = new KeyedLock();
  /** A scene may say that a dead one runs again; a real one does not. */
  readonly #crashed = new Set<ContainerInfo>();
  /** Where the two did not agree: must stay empty. */
  readonly differences: string[] = [];

  constructor(clock: Clock, parts: Promise<RealParts>) {
    super(clock);
    this.#parts = parts;
  }

  override run(id: string, part: { readonly createdAt?: number } = {}): SandboxInfo {
    const info = super.run(id, part);
    this.#real.set(info, this.#start(id));
    return info;
  }

  override remove(id: string): void {
    const info = this.containers.get(id)?.info;
    super.remove(id);
    if (info !== undefined) this.#removed.push(this.#stop(info));
  }

  override backend(): SandboxBackend {
    const simulated = super.backend();
    return {
      ...simulated,
      create: (input) =>
        this.#together(async (backend) => {
          const made = await simulated.create(input);
          const real = await this.#realOf(made.info);
          if (made.outcome === 'existing' && this.running(input.id)) {
            const again = await backend.create({ ...input, ...identityOf(input.id) });
            this.#same(`create ${input.id}`, [again.outcome, idOf(again.info)], ['existing', real.containerId]);
          }
          return made;
        }),
      ready: (info, options) =>
        this.#together(async (backend) => {
          if (!(await simulated.ready(info, options))) return false;
          const really = await backend.ready(await this.#realOf(info), { withinMs: PATIENCE_MS });
          this.#same(`ready ${info.id}`, really, true);
          return really;
        }),
      stop: (info) =>
        this.#together(async () => {
          await this.#stop(info);
          await simulated.stop(info);
        }),
      isAlive: (info) =>
        this.#together(async (backend) => {
          const alive = await simulated.isAlive(info);
          const real = await this.#realOf(info);
          // Dead in the scene, as a container that crashed: so must the real one be.
          if (alive) await backend.ready(real, { withinMs: PATIENCE_MS });
          else await this.#crash(info, real);
          const really = await backend.isAlive(real);
          this.#same(`alive ${info.id}`, really, alive);
          return really;
        }),
      discover: (id) =>
        this.#together(async (backend) => {
          const found = await simulated.discover(id);
          if (found === null) return null;
          const real = await this.#realOf(found);
          await backend.ready(real, { withinMs: PATIENCE_MS });
          this.#same(`discover ${id}`, idOf(await backend.discover(id)), real.containerId);
          return found;
        }),
      listRunning: () =>
        this.#together(async (backend) => {
          const listed = await (simulated.listRunning?.() ?? []);
          const known = await Promise.all(listed.map((info) => this.#realOf(info)));
          const really = new Set(((await backend.listRunning?.()) ?? []).map(idOf));
          for (const one of known)
            if (!this.#crashed.has(one)) this.#same(`list ${one.id}`, really.has(one.containerId), true);
          return listed;
        }),
    };
  }

  /** One thing after another, so that both engines change in one step. Who may go first is decided before, by the provider and the gates. */
  #together<T>(work: (backend: SandboxBackend) => Promise<T>): Promise<T> {
    return this.#turn.run('engine', async () => {
      const { backend } = await this.#parts;
      await this.settled();
      return work(backend);
    });
  }

  /** Every removal behind the provider's back has really happened. */
  async settled(): Promise<void> {
    await Promise.all(this.#removed);
  }

  /** Ends what is left of the real ones. */
  async end(): Promise<void> {
    await this.settled();
    await Promise.all([...this.#real.keys()].map((info) => this.#stop(info)));
    const { backend, storage } = await this.#parts;
    await storage.close();
    await backend.close();
  }

  async #start(id: string): Promise<ContainerInfo> {
    const { backend, storage } = await this.#parts;
    await this.settled();
    await storage.prepare(identityOf(id));
    const { info } = await backend.create({ id, ...identityOf(id) });
    return info as ContainerInfo;
  }

  #realOf(info: SandboxInfo): Promise<ContainerInfo> {
    const real = this.#real.get(info);
    if (real === undefined) throw new Error(`There is no container behind ${info.id}.`);
    return real;
  }

  async #crash(info: SandboxInfo, real: ContainerInfo): Promise<void> {
    this.#crashed.add(real);
    await this.#stop(info);
  }

  async #stop(info: SandboxInfo): Promise<void> {
    const { backend } = await this.#parts;
    const real = await this.#realOf(info);
    await backend.stop(real);
    this.#same(`stopped ${info.id}`, await backend.isAlive(real), false);
  }

  #same(what: string, really: unknown, simulated: unknown): void {
    if (JSON.stringify(really) !== JSON.stringify(simulated))
      this.differences.push(`${what}: really ${JSON.stringify(really)}, simulated ${JSON.stringify(simulated)}`);
  }
}

/** Containers of the scenes need folders; whose they are in the scene does not matter to them. */
function identityOf(id: string): { readonly userId: string; readonly threadId: string } {
  return { userId: 'scene', threadId: id.replace(/[^A-Za-z0-9_-]/g, '_') };
}

function idOf(info: SandboxInfo | null): string {
  return info === null ? '' : (info as ContainerInfo).containerId;
}
