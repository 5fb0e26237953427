import type { IsolationReport, Sandbox } from './sandbox.ts';

/** Whose sandbox it is. */
export interface SandboxIdentity {
  readonly userId: string;
  readonly threadId: string;
}

/**
 * One running container (or pod, or virtual machine) as its backend knows it. The *object* is its identity: a health check speaks about
 * the object that it was given, and a later object with the same id is another container (SB-41). A backend may return a wider type.
 */
export interface SandboxInfo {
  readonly id: string;
  /** Where its server listens; empty when no port is published. */
  readonly url: string;
  readonly name: string;
  /** Wall-clock milliseconds; 0 = unknown age. */
  readonly createdAt: number;
}

/** A sandbox that holds a host-side connection. */
export interface SandboxClient extends Sandbox {
  /** Lets go of the connection; never of the container. Idempotent, never throws (SX-18). */
  close(): Promise<void>;
}

export interface CreateSandboxInput extends SandboxIdentity {
  readonly id: string;
}

/** `existing`: the name was taken by a running container, which is returned instead; it was not made by this call (SX-06). */
export interface CreatedSandbox {
  readonly outcome: 'created' | 'existing';
  readonly info: SandboxInfo;
}

/**
 * Starts, stops and finds containers. It decides nothing: who may stop what, and when, is the lifecycle's. A rejection means *cannot
 * tell*, never *no*.
 */
export interface SandboxBackend {
  report(): IsolationReport;
  /** Starts a container with the deterministic name of `id`. Rejects with `sandbox_unavailable`; nothing of its own is then left running. */
  create(input: CreateSandboxInput): Promise<CreatedSandbox>;
  /**
   * Waits until a real command ran in it, at most `withinMs`. False = it does not become ready.
   * @param options.signal ends the wait with false
   */
  ready(info: SandboxInfo, options: { readonly withinMs: number; readonly signal?: AbortSignal }): Promise<boolean>;
  /** Stops and removes it; resolves only when it is known to be gone (SX-08, SX-15). Bounded. */
  stop(info: SandboxInfo): Promise<void>;
  /** True, false (it definitely does not run), or a rejection: unknown (SX-01). Bounded. */
  isAlive(info: SandboxInfo): Promise<boolean>;
  /** The running container of that id; null when there is none or its liveness cannot be verified (SX-02). */
  discover(id: string): Promise<SandboxInfo | null>;
  /** All running containers of ours, whoever started them. A backend without it lists nothing: no adoption. */
  listRunning?(): Promise<readonly SandboxInfo[]>;
  /** Bytes of memory that they use right now, by id; those that cannot be asked are left out. Bounded. */
  memory?(infos: readonly SandboxInfo[]): Promise<ReadonlyMap<string, number>>;
  /** A host-side client; no I/O yet. */
  connect(info: SandboxInfo, identity: SandboxIdentity): SandboxClient;
  /** Lets go of connections to the engine, not of containers. Idempotent. */
  close(): Promise<void>;
}
