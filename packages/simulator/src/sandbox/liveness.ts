import type { SandboxProcess, Surrounding } from './process.ts';

/** Between two looks, in milliseconds. */
const LOOK = 5_000;
/** What calls, starts and stops of a calm world may add to a bound. */
const SLACK = 15_000;

/**
 * Looks at the whole world again and again:
 *
 * SB-47 the lease of a sandbox that an unhindered instance keeps never lapses
 * SB-50 an unhindered instance lets go of what another one owns within a renewal
 * L3 once everything has healed: a container that nobody keeps is adopted within what is left of its lease, one time to live and one
 * sweep (without peers: one sweep); with an idle timeout it is gone within that and one sweep more after its last use
 */
export class Watch {
  readonly #world: Surrounding;
  readonly #processes: readonly SandboxProcess[];
  readonly #foreign = new Map<string, number>();
  readonly #lapsed = new Map<string, number>();
  /** By container: until when somebody must keep it. */
  readonly #adoptedBy = new Map<string, number>();
  #healedAt = Number.POSITIVE_INFINITY;

  constructor(world: Surrounding, processes: readonly SandboxProcess[]) {
    this.#world = world;
    this.#processes = processes;
  }

  heals(): void {
    this.#healedAt = this.#world.scheduler.now;
  }

  async start(): Promise<void> {
    const { scheduler, chronicle } = this.#world;
    while (chronicle.violation === null) {
      await scheduler.sleep(LOOK);
      this.#look();
    }
  }

  /** How long after the last turn everything is as it stays. */
  restsWithin(): number {
    const { settings, ttlMs } = this.#world;
    const { idleTimeoutMs, sweepMs } = settings;
    return 2 * ttlMs + sweepMs + (idleTimeoutMs > 0 ? idleTimeoutMs + sweepMs : 0) + 4 * SLACK;
  }

  /** All is calm, and the last turn was long ago. */
  atRest(): void {
    const { chronicle, engine, settings } = this.#world;
    if (chronicle.violation !== null) return;
    const keepers = new Map<string, string[]>();
    for (const { name, kept } of this.#processes)
      for (const { id } of kept ?? []) keepers.set(id, [...(keepers.get(id) ?? []), name]);
    for (const [id, names] of keepers)
      if (names.length > 1) chronicle.broken('S9', `${id} has two keepers at rest: ${names.join(', ')}`);
    for (const { id, state } of engine.containers.values()) {
      // One that has died by itself is removed by its engine.
      if (state === 'dead') continue;
      if (settings.idleTimeoutMs > 0) chronicle.broken('L3', `container ${id} is ${state} long after its last use`);
      else if (state === 'running' && !keepers.has(id)) chronicle.broken('L3', `container ${id} is kept by nobody`);
    }
    for (const { name, kept } of this.#processes)
      for (const { id } of kept ?? [])
        if (settings.idleTimeoutMs > 0) chronicle.broken('L4', `${name} still keeps ${id}`);
  }

  /** Every process has stopped in order, in a calm world. */
  afterwards(): void {
    const { chronicle, engine } = this.#world;
    if (chronicle.violation !== null) return;
    for (const { id, state } of engine.containers.values())
      if (state === 'running') chronicle.broken('SB-66', `container ${id} runs on after every process has stopped`);
  }

  #look(): void {
    const { scheduler, leases, ttlMs, settings, chronicle } = this.#world;
    const now = scheduler.now;
    const kept = new Set<string>();
    const looked = new Set<string>();
    for (const process of this.#processes) {
      for (const { id, stopping } of process.kept ?? []) {
        kept.add(id);
        looked.add(`${process.incarnation?.name} ${id}`);
        if (leases === null) continue;
        const value = leases.value(id);
        const calm = now - process.calmSince;
        const name = process.incarnation?.name;
        const free = !stopping && process.listening !== null;
        // After a stop that failed the next renewal writes it again.
        const lapsed = this.#since(this.#lapsed, `${name} ${id}`, free && value === null, now);
        if (lapsed > settings.renewalIntervalMs + SLACK && calm > ttlMs + settings.renewalIntervalMs)
          chronicle.broken('SB-47', `${name} keeps ${id} and has let its lease lapse`);
        const foreign = this.#since(
          this.#foreign,
          `${name} ${id}`,
          free && value !== null && value.owner !== name,
          now,
        );
        // A verdict that meets a stop under way is void: the next renewal decides.
        if (foreign > 2 * settings.renewalIntervalMs + SLACK && calm > foreign + settings.renewalIntervalMs)
          chronicle.broken('SB-50', `${name} keeps ${id}, which ${value?.owner} has owned for ${foreign} ms`);
      }
    }
    for (const times of [this.#foreign, this.#lapsed])
      for (const key of times.keys()) if (!looked.has(key)) times.delete(key);
    if (now >= this.#healedAt) this.#orphans(now, kept);
  }

  /** For how long something has held, look after look. */
  #since(times: Map<string, number>, key: string, holds: boolean, now: number): number {
    if (!holds) {
      times.delete(key);
      return 0;
    }
    const since = times.get(key) ?? now;
    times.set(key, since);
    return now - since;
  }

  #orphans(now: number, kept: ReadonlySet<string>): void {
    const { leases, ttlMs, settings, chronicle, engine } = this.#world;
    for (const { id, info, state } of engine.containers.values()) {
      const key = info.url;
      // One that is being started or stopped is in somebody's hands.
      if (state !== 'running' || kept.has(id) || this.#inHand(id)) {
        this.#adoptedBy.delete(key);
        continue;
      }
      const lease = leases?.value(id) == null ? 0 : ttlMs;
      const within = leases === null ? 0 : lease + ttlMs;
      const due = this.#adoptedBy.get(key) ?? now + within + settings.sweepMs + SLACK;
      this.#adoptedBy.set(key, due);
      if (now > due) chronicle.broken('L3', `container ${id} has been kept by nobody for too long`);
    }
  }

  #inHand(id: string): boolean {
    const container = this.#world.engine.containers.get(id);
    return container !== undefined && container.stops.size > 0;
  }
}
