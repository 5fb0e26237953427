import type { OwnershipValue, SandboxEvent, SandboxState, SandboxTransition } from '@reindeer/protocol';
import type { Chronicle } from '../frame/chronicle.ts';
import type { Incarnation, Request } from '../frame/incarnation.ts';
import type { Container, Engine, Stop } from './engine.ts';

/** One turn of a thread in one process, from the answer of its acquire to its release. */
export interface Turn {
  readonly name: string;
  readonly sandboxId: string;
  readonly incarnation: Incarnation;
  /** False once its run is over, or fenced because its process was paused or died. */
  live: boolean;
}

/** What the checker may know of a process. */
export interface Watched {
  readonly incarnation: Incarnation;
  /** World time since which nothing has hindered it: no pause, no lost or late call, no outage, no flush. */
  readonly calmSince: number;
  /** Value of a key as this process's store holds it. */
  value(id: string): OwnershipValue;
  /** How many more sandboxes it may have before it gives up idle ones. */
  readonly room: number;
  /** How it keeps an id; null = not. */
  phase(id: string): 'active' | 'warm' | null;
}

/** A call that has just left its process. */
type Sent = Omit<Request, 'fate'>;

/** A grant of the ownership store, in the order in which the store gave them. */
interface Grant {
  readonly owner: string;
  readonly kind: 'own' | 'del';
  readonly at: number;
  readonly request: Request;
  /** False once it is known that the answer does not reach who asked. */
  told: boolean;
}

export interface CheckerSettings {
  readonly ttlMs: number;
  readonly renewalIntervalMs: number;
  readonly teardownWaitMs: number;
  readonly idleTimeoutMs: number;
}

/** A store answers or fails within this time (SO-16). */
export const STORE_OPERATION_MS = 5_000;
/** Grants per id that are remembered. */
const REMEMBERED = 60;

/**
 * Watches every request to the ownership store and the engine, every change of phase that forgets, and every turn:
 *
 * S9 a container is stopped only by the holder of its teardown marker, and never with a command of a live turn in it
 * SB-37 one instance never stops the same container twice at once
 * SB-10 nothing is handed out whose ownership was not published in this very acquire
 * SB-15 nothing is handed out that is being stopped
 * SB-48, SB-60 … SB-62 an instance forgets only what the store gave to somebody else since its own last grant
 * SB-19 what is handed out is kept as active, and only so
 * SB-33 … SB-34 a marker goes with its stop
 * SB-57, SB-59 nothing is adopted that is being stopped, and nothing is stopped right after it was adopted
 *
 * What no guard in the product can give is not asked for: a marker that its holder could not refresh, since it was paused, dead or
 * cut off, protects nothing after its time to live; nor does one that the store lost in a flush, until it is written again.
 */
export class SandboxChecker {
  readonly #chronicle: Chronicle;
  readonly #now: () => number;
  readonly #settings: CheckerSettings;
  readonly #grants = new Map<string, Grant[]>();
  readonly #stopping = new Map<string, Set<Sent>>();
  /** World time of adoptions, by instance and container. */
  readonly #adoptions = new Map<string, number>();
  /** Containers that some instance keeps, or has kept. */
  readonly #given = new Set<string>();
  readonly #failed = new WeakSet<Request>();
  readonly #turns = new Map<string, Turn>();
  readonly #flushes: number[] = [];
  /** Ids that two instances kept when the store lost everything: whoever renews first has it. */
  readonly #ambiguous = new Set<string>();
  readonly #watched = new Map<Incarnation, Watched>();
  #commands = 0;

  constructor(chronicle: Chronicle, now: () => number, settings: CheckerSettings) {
    this.#chronicle = chronicle;
    this.#now = now;
    this.#settings = settings;
  }

  get turns(): number {
    return this.#turns.size;
  }
  get commands(): number {
    return this.#commands;
  }

  watch(process: Watched): void {
    this.#watched.set(process.incarnation, process);
  }

  /** A call leaves a process. */
  sent(request: Sent): void {
    if (request.method === 'stop') this.#stopSent(request);
  }

  /** The store has answered; `told` = the answer will arrive. */
  granted(request: Request, answer: unknown): void {
    const { method, incarnation } = request;
    const id = request.input as string;
    this.#chronicle.note(
      () => `${incarnation.name} ${method} ${id.slice(0, 4)} (sent ${request.sentAt}) → ${String(answer)}`,
    );
    const forDestroy = (request.args[1] as { forDestroy?: boolean } | undefined)?.forDestroy === true;
    const grants = method === 'renew' ? answer === 'renewed' : ['take', 'claim'].includes(method) && answer === true;
    if (!grants) return;
    const list = this.#grants.get(id) ?? [];
    const kind = forDestroy ? 'del' : 'own';
    list.push({
      owner: incarnation.name,
      kind,
      at: this.#now(),
      request,
      told: request.fate.lost === null && !this.#failed.has(request),
    });
    if (list.length > REMEMBERED) list.shift();
    this.#grants.set(id, list);
  }

  /** The answer to a call has arrived at the process, or that nobody can tell. */
  answered(request: Request, failed: boolean): void {
    if (failed) {
      this.#failed.add(request);
      this.#chronicle.note(
        () => `${request.incarnation.name} cannot tell: ${request.port} ${request.method} (sent ${request.sentAt})`,
      );
    }
    if (failed && request.port === 'ownership')
      for (const grant of this.#grants.get(request.input as string) ?? [])
        if (grant.request === request) grant.told = false;
    if (request.method !== 'stop') return;
    const { incarnation } = request;
    const id = (request.input as { id: string }).id;
    this.#stopping.get(keyOf(request))?.delete(request);
    void this.#markerGoes(incarnation, id, this.#now());
  }

  /** Set by the world: is this very container running? Another one may have its id. */
  runs: (id: string, url: string) => boolean = () => false;
  /** Set by the world: waits in virtual time. */
  sleep: (milliseconds: number) => Promise<void> = () => new Promise(() => {});

  flushed(kept: ReadonlyMap<string, number>): void {
    this.#flushes.push(this.#now());
    for (const [id, keepers] of kept) if (keepers > 1) this.#ambiguous.add(id);
  }

  /** The engine is about to end a container. */
  killing(stop: Stop): void {
    const { container, incarnation } = stop;
    this.#chronicle.note(() => `ENGINE stops ${nameOf(container)} for ${incarnation.name}`);
    const holder = this.#watched.get(incarnation)?.value(container.id) ?? null;
    const holds = holder?.state === 'del' && holder.owner === incarnation.name;
    const excused =
      this.#unguarded(container, incarnation) || this.#hindered(incarnation, stop.sentAt) || this.#lostUnheard(stop);
    if (!holds && !excused)
      this.#chronicle.broken(
        'S9',
        `${incarnation.name} stopped ${nameOf(container)} while its key read ${textOf(holder)}`,
      );
    for (const command of container.commands) {
      const turn = this.#turns.get(command.turn);
      if (turn === undefined || !turn.live || this.#outOfReach(turn, container.id, stop)) continue;
      this.#chronicle.broken(
        'S9',
        `${incarnation.name} stopped ${nameOf(container)} with a command of the live turn ${turn.name} in it`,
      );
    }
  }

  turnBegins(turn: Turn, engine: Engine, askedAt: number): void {
    this.#turns.set(turn.name, turn);
    this.handedOut(turn, engine, askedAt);
  }

  /** A sandbox was handed out for a turn. `askedAt`: when the acquire began. */
  handedOut({ name, sandboxId, incarnation }: Turn, engine: Engine, askedAt: number): void {
    this.#chronicle.note(() => `${incarnation.name} hands ${sandboxId.slice(0, 4)} to ${name}`);
    const published = this.#grants
      .get(sandboxId)
      ?.some(({ owner, kind, at }) => owner === incarnation.name && kind === 'own' && at >= askedAt);
    if (published !== true)
      this.#chronicle.broken('SB-10', `${incarnation.name} handed out ${sandboxId} without having published it`);
    if (incarnation.alive && this.#watched.get(incarnation)?.phase(sandboxId) !== 'active')
      this.#chronicle.broken('SB-19', `${incarnation.name} handed out ${sandboxId} and does not keep it as active`);
    const container = engine.containers.get(sandboxId);
    for (const request of container === undefined ? [] : (this.#stopping.get(container.info.url) ?? []))
      if (request.incarnation === incarnation)
        this.#chronicle.broken('SB-15', `${incarnation.name} handed out ${sandboxId} while stopping it`);
  }

  commandBegins(): void {
    this.#commands += 1;
  }

  /** The lifecycle of one sandbox in one process has changed. */
  changed(incarnation: Incarnation, before: SandboxState, event: SandboxEvent, transition: SandboxTransition): void {
    if (transition.outcome === 'refused' || !incarnation.alive) return;
    if (event.type === 'track' || event.type === 'adopt') this.#given.add(event.info.url);
    if (event.type === 'adopt') this.#adopted(incarnation, event.info.id, event.info.url);
    if (event.type !== 'forget') return;
    const id = before.info?.id ?? '';
    this.#chronicle.note(() => `${incarnation.name} forgets ${id.slice(0, 4)}`);
    const grants = this.#grants.get(id) ?? [];
    const mine = grants.findLastIndex(({ owner, told }) => owner === incarnation.name && told);
    if (mine < 0 || mine !== grants.length - 1) return;
    const last = grants[mine];
    // Its own marker, which it could not take away after a stop that failed, is a refusal like any other.
    if (last?.kind === 'del' && this.#hindered(incarnation, last.at)) return;
    this.#chronicle.broken('SB-61', `${incarnation.name} forgot ${id}, which the store had given to nobody else since`);
  }

  #adopted(incarnation: Incarnation, id: string, url: string): void {
    this.#chronicle.note(() => `${incarnation.name} adopts ${id.slice(0, 4)}`);
    this.#adoptions.set(`${incarnation.name} ${url}`, this.#now());
    // SB-56: whoever cannot tell adopts nothing.
    const holder = this.#watched.get(incarnation)?.value(id) ?? null;
    const recently = this.#now() - this.#settings.renewalIntervalMs;
    const right = holder?.owner === incarnation.name || this.#wasGranted(incarnation, id);
    if (!right && !this.#flushedSince(recently) && !incarnation.pausedSince(recently))
      this.#chronicle.broken('SB-56', `${incarnation.name} adopted ${id} while its key read ${textOf(holder)}`);
    for (const stop of this.#stopping.get(url) ?? [])
      if (stop.incarnation === incarnation)
        this.#chronicle.broken('SB-57', `${incarnation.name} adopted ${id} while stopping it`);
  }

  /** The store gave it, and an acquire of somebody else took it over while the answer was on its way: the next renewal lets go of it. */
  #wasGranted({ name }: Incarnation, id: string): boolean {
    const since = this.#now() - STORE_OPERATION_MS;
    return (
      this.#grants.get(id)?.some(({ owner, kind, at }) => owner === name && kind === 'own' && at >= since) === true
    );
  }

  #stopSent(request: Sent): void {
    const { incarnation } = request;
    const { id, url } = request.input as { id: string; url: string };
    const key = keyOf(request);
    const others = this.#stopping.get(key) ?? new Set();
    this.#stopping.set(key, others);
    this.#chronicle.note(() => `${incarnation.name} asks to stop ${id.slice(0, 4)} at ${url.slice(-5)}`);
    for (const other of others)
      if (other.incarnation === incarnation)
        this.#chronicle.broken('SB-37', `${incarnation.name} stops ${id} twice at once`);
    others.add(request);
    // SB-59: what was adopted is given a whole idle time, unless there is no room for it.
    const adoptedAt = this.#adoptions.get(`${incarnation.name} ${url}`);
    const room = this.#watched.get(incarnation)?.room ?? 0;
    const had = this.#now() - (adoptedAt ?? Number.NEGATIVE_INFINITY);
    if (had < this.#settings.idleTimeoutMs && room > 0 && this.runs(id, url))
      this.#chronicle.broken('SB-59', `${incarnation.name} stops ${id} ${had} ms after it was adopted`);
  }

  /** Looked at when the request is at the engine's door: the right must stand then. */
  asked(request: Request, container: Container): void {
    const { incarnation, sentAt } = request;
    const holder = this.#watched.get(incarnation)?.value(container.id) ?? null;
    if (holder?.state === 'del' && holder.owner === incarnation.name) return;
    if (this.#unguarded(container, incarnation) || this.#flushedSince(sentAt - this.#settings.ttlMs)) return;
    // Paused or dead while the request was on its way.
    if (!incarnation.alive || incarnation.pausedSince(sentAt)) return;
    this.#chronicle.broken(
      'S9',
      `${incarnation.name} asked to stop ${nameOf(container)} while its key read ${textOf(holder)}`,
    );
  }

  /** A container that its maker could not publish is taken back without a marker: nobody was ever given it (SB-11). */
  #unguarded(container: Container, incarnation: Incarnation): boolean {
    return container.createdBy === incarnation && !this.#given.has(container.info.url);
  }

  /** The holder had no way to keep its marker since then. */
  #hindered(incarnation: Incarnation, since: number): boolean {
    const calmSince = this.#watched.get(incarnation)?.calmSince ?? Number.POSITIVE_INFINITY;
    return !incarnation.alive || incarnation.pausedSince(since) || calmSince > since || this.#flushedSince(since);
  }

  /**
   * The store gave the marker, and lost it again before its holder had heard the answer and begun the stop. Nobody can know: to ask once
   * more would only move the moment. The first heartbeat of the stop writes the marker again, so that after one interval and
   * the time of a call it must stand.
   */
  #lostUnheard({ container, incarnation, sentAt }: Stop): boolean {
    if (this.#now() - sentAt > this.#settings.renewalIntervalMs + STORE_OPERATION_MS) return false;
    const marked = this.#grants
      .get(container.id)
      ?.findLast(({ owner, kind, at }) => owner === incarnation.name && kind === 'del' && at <= sentAt);
    return marked !== undefined && this.#flushes.some((at) => at >= marked.at && at <= sentAt);
  }

  #flushedSince(since: number): boolean {
    return this.#flushes.some((at) => at >= since);
  }

  /** Its process could not renew for a whole lease, so that the store had every right to give the sandbox away. */
  #outOfReach({ incarnation }: Turn, id: string, stop: Stop): boolean {
    if (stop.incarnation === incarnation) return false;
    if (this.#ambiguous.has(id)) return true;
    const { ttlMs } = this.#settings;
    const claimed = this.#grants
      .get(id)
      ?.findLast(({ owner, kind }) => owner === stop.incarnation.name && kind === 'del');
    const at = claimed?.at ?? stop.sentAt;
    const calmSince = this.#watched.get(incarnation)?.calmSince ?? Number.POSITIVE_INFINITY;
    // A stop that its process did not live to the end of: the marker has run out, and the store gave the sandbox away after it (SO-15).
    const later = this.#grants
      .get(id)
      ?.some((grant) => grant.owner === incarnation.name && grant.kind === 'own' && grant.at > at);
    if (later === true && this.#hindered(stop.incarnation, at)) return true;
    if (calmSince <= at - 2 * ttlMs) return false;
    const kept = this.#grants
      .get(id)
      ?.some(
        (grant) => grant.owner === incarnation.name && grant.kind === 'own' && grant.at > at - ttlMs && grant.at <= at,
      );
    return kept !== true;
  }

  /** SB-30, SB-33: some time after a stop its marker is gone, unless the store could not be asked. */
  async #markerGoes(incarnation: Incarnation, id: string, since: number): Promise<void> {
    await this.sleep(this.#settings.teardownWaitMs + 1_000);
    const value = this.#watched.get(incarnation)?.value(id) ?? null;
    if (value?.state !== 'del' || value.owner !== incarnation.name) return;
    const marked = this.#grants.get(id)?.findLast(({ owner, kind }) => owner === incarnation.name && kind === 'del');
    if (this.#hindered(incarnation, Math.min(since, marked?.at ?? since) - this.#settings.renewalIntervalMs)) return;
    // Claimed again for another stop since.
    const again = this.#grants.get(id)?.some(({ owner, at }) => owner === incarnation.name && at > since);
    const busy = [...this.#stopping.values()].some((stops) =>
      [...stops].some((stop) => stop.incarnation === incarnation && (stop.input as { id: string }).id === id),
    );
    if (busy || again === true) return;
    this.#chronicle.broken('SB-30', `the marker of ${incarnation.name} on ${id} outlives its stop`);
  }
}

const keyOf = (request: Sent): string => (request.input as { url: string }).url;
const nameOf = (container: Container): string => `${container.id.slice(0, 4)} at ${container.info.url.slice(-5)}`;
const textOf = (value: OwnershipValue): string => (value === null ? 'nothing' : `${value.state}:${value.owner}`);
