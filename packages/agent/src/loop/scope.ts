import type { BaseChatModel } from '@langchain/core/language_models/chat_models';
import { type AttemptContext, ReindeerError, type Sandbox, type SandboxLeases } from '@reindeer/protocol';
import type { ActiveAgent } from '../profiles/active.ts';
import type { SkillAccess } from '../skills/access.ts';
import type { Skill } from '../skills/library.ts';

/** The key in `configurable` under which hooks and tools find their attempt. The double underscore keeps it out of metadata. */
export const SCOPE = '__reindeer_scope';

/**
 * What one attempt lends to its hooks and tools: the attempt itself and, on first use, the sandbox of its thread.
 *
 * The sandbox: none → (`sandbox()`) held in the attempt's name → (`release()`) none. Each use asks the leases again, which costs nothing
 * while the sandbox is known and gives its replacement when it died or moved (SQ-11). `release` waits for uses that are being
 * answered and is idempotent. Who else holds the same sandbox is the leases' business.
 */
export class AttemptScope {
  readonly attempt: AttemptContext;
  /** The model that the run chose; null where the loop's owner always uses the same one. */
  readonly model: BaseChatModel | null;
  /** Tokens that the model takes; null = unknown. */
  readonly contextWindow: number | null;
  /** Does the model see pictures? */
  readonly vision: boolean;
  /** The user's skills at the start of the attempt, those that are off among them; null = they could not be read. */
  readonly skills: readonly Skill[] | null;
  /** Which of the user's agents this is; null = the default one. */
  readonly agent: ActiveAgent | null;
  /** Verdicts on skills, and the secrets of those that are active; null = there are no skills. */
  readonly access: SkillAccess | null;
  /** Null: this agent has no sandboxes. */
  readonly leases: SandboxLeases | null;
  /** In whose name sandboxes are held: made of the server's own ids, so that nothing in a request can choose it (SQ-13). */
  readonly owner: string;
  readonly #holding = new Set<Promise<unknown>>();
  #sandboxId: string | null = null;
  readonly #queues = new Map<string, Promise<unknown>>();

  constructor(
    attempt: AttemptContext,
    leases: SandboxLeases | null,
    model: BaseChatModel | null = null,
    owner = `run:${attempt.run.runId}:${attempt.attempt}`,
    contextWindow: number | null = null,
    skills: readonly Skill[] | null = [],
    vision = false,
    agent: ActiveAgent | null = null,
    access: SkillAccess | null = null,
  ) {
    this.attempt = attempt;
    this.model = model;
    this.contextWindow = contextWindow;
    this.skills = skills;
    this.vision = vision;
    this.agent = agent;
    this.access = access;
    this.leases = leases;
    this.owner = owner;
  }

  /** Did a model write the messages that ask? Then none of them calls a skill in a person's name. */
  get delegated(): boolean {
    return false;
  }

  /** The thread's sandbox, acquired at first use (MW-6). Throws `sandbox_unavailable`. */
  async sandbox(): Promise<Sandbox> {
    const { leases, owner } = this;
    if (leases === null) throw new ReindeerError('sandbox_unavailable', 'This agent has no sandbox provider.');
    const { userId, threadId } = this.attempt.run;
    await this.attempt.touchFiles?.();
    const holding = leases.hold({ userId, threadId, owner, signal: this.attempt.signal });
    this.#holding.add(holding);
    try {
      const sandbox = await holding;
      this.#sandboxId = sandbox.id;
      return sandbox;
    } finally {
      this.#holding.delete(holding);
    }
  }

  /** Runs `work` after all earlier work on the same path, whatever became of that: two parallel edits of one file cannot mix. */
  serialise<T>(path: string, work: () => Promise<T>): Promise<T> {
    const before = this.#queues.get(path) ?? Promise.resolve();
    const current = before.then(work, work);
    const settled = current.then(
      () => undefined,
      () => undefined,
    );
    this.#queues.set(path, settled);
    return current.finally(() => {
      // The last one out removes the queue, so that the map does not grow with every path.
      if (this.#queues.get(path) === settled) this.#queues.delete(path);
    });
  }

  /** Id of the sandbox in hand; null before the first use and after the release. */
  get sandboxId(): string | null {
    return this.#sandboxId;
  }

  /** LangGraph's debug frames print the configuration; an attempt is nothing to show. */
  toJSON(): undefined {
    return undefined;
  }

  /** Gives the sandbox back to the warm pool. Never throws: a store that cannot answer must not fail a finished turn. */
  async release(): Promise<void> {
    await Promise.allSettled([...this.#holding]);
    this.#sandboxId = null;
    await this.leases?.leave(this.owner).catch(() => {
      // The leases are going down: nothing is held.
    });
  }
}

/** The scope of the attempt that a hook or tool runs in. Throws `internal` outside of one. */
export function scopeOf(holder: {
  readonly configurable?: Readonly<Record<string, unknown>> | undefined;
}): AttemptScope {
  const scope = holder.configurable?.[SCOPE];
  if (scope instanceof AttemptScope) return scope;
  throw new ReindeerError('internal', 'This hook or tool was called outside of a run of the Reindeer agent.');
}
