import type { BaseMessage } from '@langchain/core/messages';
import {
  DEFAULT_MEMORY_AGENT,
  MEMORY_SECTIONS,
  type MemoryAudit,
  type MemoryChange,
  type MemoryChanged,
  type MemoryDocument,
  type MemoryFact,
  type MemorySectionName,
  type MemoryStatement,
  type MemoryStore,
  newId,
  ReindeerError,
  type StoredMemoryFact,
  type Surroundings,
} from '@reindeer/protocol';
import type { MemoryCapture, MemorySource } from '../context/memory-port.ts';
import { evicted } from './capacity.ts';
import { conversationFrom } from './conversation.ts';
import { factsSeen, sectionsSeen, withoutFacts } from './forget.ts';
import { rendered } from './render.ts';
import { FactSearch, type FoundFact } from './search.ts';
import { categoryOf, contentKeyOf, MAX_FACT, type MemorySettings } from './settings.ts';
import { isTrivial, signalsIn } from './signals.ts';

/** Tries of a change that somebody else overtakes. */
const TRIES = 5;
/** Messages of one conversation that wait, the newest. */
const MAX_MESSAGES = 60;
const MAX_TOUCHED = 5_000;
const MAX_IMPORT = 2_000;

/** Whose memory: an agent of a user. */
export interface MemoryOwner {
  readonly userId: string;
  /** Name of a custom agent; null = the default agent. */
  readonly agentName: string | null;
}

export interface FactInput {
  readonly content: string;
  readonly category: string;
  readonly confidence: number;
}

export interface MemoryImport {
  readonly facts: readonly (FactInput & Partial<Omit<MemoryFact, keyof FactInput>>)[];
  readonly sections: ReadonlyMap<
    MemorySectionName,
    readonly { readonly text: string; readonly sources: readonly string[] | null }[]
  >;
}

export interface MemoryParts {
  readonly store: MemoryStore;
  readonly settings: MemorySettings;
  /** Is there a model that learns? Without one conversations are not kept for it. */
  readonly learns: boolean;
  /** Name under which the default agent asks. */
  readonly defaultAgent: string;
  readonly surroundings: Surroundings;
}

/**
 * What is remembered of users: told to models, noted from conversations, and seen, corrected and erased by the users. Holds nothing but
 * words of facts for the search and when facts were last told, both of which may be lost.
 */
export class Memory implements MemorySource, MemoryCapture {
  readonly #parts: MemoryParts;
  readonly #search = new FactSearch();
  /** Fact id → when it was last told. */
  readonly #accessed = new Map<string, number>();
  /** Called when a conversation became due at once. */
  #urgent: () => void = () => {};

  constructor(parts: MemoryParts) {
    this.#parts = parts;
  }

  /** As they are now: they may change while the process runs. */
  get settings(): MemorySettings {
    return this.#parts.settings;
  }

  get accessed(): ReadonlyMap<string, number> {
    return this.#accessed;
  }

  onUrgent(listener: () => void): void {
    this.#urgent = listener;
  }

  async context({ userId, agentName }: Parameters<MemorySource['context']>[0]): Promise<string | null> {
    const { enabled, injection } = this.settings;
    if (!enabled || !injection) return null;
    const { text, told } = rendered(await this.document({ userId, agentName }), this.settings);
    const now = this.#parts.surroundings.clock.now();
    for (const id of told) {
      this.#accessed.delete(id);
      this.#accessed.set(id, now);
    }
    for (const id of this.#accessed.keys()) {
      if (this.#accessed.size <= MAX_TOUCHED) break;
      this.#accessed.delete(id);
    }
    return text;
  }

  async capture(input: {
    readonly userId: string;
    readonly threadId: string;
    readonly agentName: string;
    readonly messages: readonly BaseMessage[];
    readonly leaving: boolean;
  }): Promise<void> {
    const { store, settings, learns, surroundings } = this.#parts;
    if (!settings.enabled || !learns) return;
    const messages = conversationFrom(input.messages);
    if (messages.every(({ role, text }) => role === 'assistant' || isTrivial(text))) return;
    const { userId, threadId, leaving } = input;
    const now = surroundings.clock.now();
    const outcome = await store.enqueue({
      userId,
      threadId,
      agent: this.bucketOf(input.agentName),
      messages,
      leaving,
      signals: signalsIn(messages),
      dueAt: leaving ? now : now + settings.debounceMs,
      maxPending: settings.maxPending,
      maxMessages: MAX_MESSAGES,
      now,
    });
    if (outcome === 'dropped')
      surroundings.logger.warn('Nothing will be learned from this conversation: too many wait already', {
        threadId,
        bound: settings.maxPending,
      });
    else if (leaving) this.#urgent();
  }

  bucketOf(agentName: string | null): string {
    return agentName === null || agentName === this.#parts.defaultAgent ? DEFAULT_MEMORY_AGENT : agentName;
  }

  document({ userId, agentName }: MemoryOwner): Promise<MemoryDocument> {
    return this.#parts.store.read({ userId, agent: this.bucketOf(agentName) });
  }

  pending(userId: string): Promise<number> {
    return this.#parts.store.pending({ userId });
  }

  audit(userId: string): Promise<readonly MemoryAudit[]> {
    return this.#parts.store.audit({ userId });
  }

  async find(
    owner: MemoryOwner,
    query: { readonly text: string; readonly category: string | null; readonly limit: number },
  ): Promise<readonly FoundFact[]> {
    const { facts } = await this.document(owner);
    const { text, category, limit } = query;
    return this.#search.search(
      category === null ? facts : facts.filter((fact) => fact.category === category),
      text,
      limit,
    );
  }

  /** @throws ReindeerError `bad_request` (empty, too long, confidence), `conflict` (said already, or no place for it) */
  async create(owner: MemoryOwner, input: FactInput): Promise<StoredMemoryFact> {
    return (await this.add(owner, input)).fact;
  }

  /** As `create`; also answers the ids of the facts that had to go for it. */
  async add(
    owner: MemoryOwner,
    input: FactInput,
  ): Promise<{ readonly fact: StoredMemoryFact; readonly evicted: readonly string[] }> {
    const { content, category, confidence } = checked(input);
    const id = newId(this.#parts.surroundings.random);
    let left: readonly string[] = [];
    await this.#change(owner, (document, now) => {
      const fact = made(id, { content, category, confidence }, now, 'manual');
      const gone = evicted([...document.facts, fact], this.settings, now);
      if (gone.includes(id))
        throw new ReindeerError(
          'conflict',
          `The memory is full (${this.settings.maxFacts} facts), and each of them is worth more than this one. Delete a fact first, or give this one more confidence.`,
        );
      left = gone;
      return {
        put: [fact],
        remove: gone,
        sections: {},
        audit: gone.map((factId) => ({ at: now, factId, act: 'evicted' as const })),
        touched: gone,
      };
    });
    return { fact: await this.#factOf(owner, id), evicted: left };
  }

  /**
   * Changes what is given. Another content is another fact to the summaries: what they said of the old one goes.
   * @param input.revision the fact's, when the caller insists that nobody changed it since
   * @throws ReindeerError `not_found`, `bad_request`, `conflict`
   */
  async update(
    owner: MemoryOwner,
    id: string,
    input: Partial<FactInput> & { readonly revision?: number | undefined },
  ): Promise<StoredMemoryFact> {
    await this.#change(owner, (document, now) => {
      const before = document.facts.find((fact) => fact.id === id);
      if (before === undefined) throw noFact(id);
      if (input.revision !== undefined && input.revision !== before.revision)
        throw new ReindeerError('conflict', 'The fact was changed since it was read. Read it again, then decide anew.');
      const { revision, ...old } = before;
      const next = checked({
        content: input.content ?? old.content,
        category: input.category ?? old.category,
        confidence: input.confidence ?? old.confidence,
      });
      const fact = { ...old, ...next, confirmedAt: now, reviewAfter: null, contentKey: contentKeyOf(next.content) };
      const sections = fact.contentKey === old.contentKey ? {} : withoutFacts(document.sections, [old]);
      return { put: [fact], remove: [], sections, audit: [], touched: [id] };
    });
    return await this.#factOf(owner, id);
  }

  /** Forgets a fact, with what summaries say of it. @throws ReindeerError `not_found` */
  async delete(owner: MemoryOwner, id: string): Promise<void> {
    await this.#change(owner, (document, now) => {
      const before = document.facts.find((fact) => fact.id === id);
      if (before === undefined) throw noFact(id);
      return {
        put: [],
        remove: [id],
        sections: withoutFacts(document.sections, [before]),
        audit: [{ at: now, factId: id, act: 'removed' }],
        touched: [id],
      };
    });
  }

  /** Everything of the user goes; of one custom agent only its facts, with what summaries say of them. */
  async clear({ userId, agentName }: MemoryOwner): Promise<void> {
    if (agentName === null) return this.#parts.store.clear({ userId, now: this.#parts.surroundings.clock.now() });
    await this.#change({ userId, agentName }, ({ facts, sections }, now) => {
      const remove = facts.map((fact) => fact.id);
      return {
        put: [],
        remove,
        sections: withoutFacts(sections, facts),
        audit: remove.map((factId) => ({ at: now, factId, act: 'removed' as const })),
        touched: remove,
      };
    });
  }

  /**
   * Puts a document in place of the agent's facts and the user's summaries. Facts that say the same are one; past the bound the least valuable
   * ones are left out. A statement without sources may come from any fact of the document.
   * @throws ReindeerError `bad_request`, `conflict`
   */
  async import(owner: MemoryOwner, input: MemoryImport): Promise<{ readonly facts: number; readonly leftOut: number }> {
    if (input.facts.length > MAX_IMPORT)
      throw new ReindeerError('bad_request', `More than ${MAX_IMPORT} facts cannot be imported at once.`);
    const { random } = this.#parts.surroundings;
    const ids = new Map<string, string>();
    let kept: readonly MemoryFact[] = [];
    await this.#change(owner, (document, now) => {
      const byKey = new Map<string, ReturnType<typeof made>>();
      for (const { id: oldId, content, category, confidence, ...rest } of input.facts) {
        const fact = {
          ...made(newId(random), checked({ content, category, confidence }), now, 'import'),
          ...Object.fromEntries(Object.entries(rest).filter(([, value]) => value !== undefined)),
        };
        const same = byKey.get(fact.contentKey);
        if (same === undefined) byKey.set(fact.contentKey, fact);
        if (oldId !== undefined) ids.set(oldId, (same ?? fact).id);
      }
      const gone = new Set(evicted([...byKey.values()], this.settings, now));
      const put = [...byKey.values()].filter((fact) => !gone.has(fact.id));
      kept = put;
      const sections: Partial<Record<MemorySectionName, readonly MemoryStatement[]>> = {};
      for (const name of MEMORY_SECTIONS)
        sections[name] = (input.sections.get(name) ?? []).map(({ text, sources }) => {
          const known = sources?.flatMap((id) => ids.get(id) ?? []) ?? [];
          return { text, sources: known.length > 0 ? known : put.map((fact) => fact.id) };
        });
      const remove = document.facts.map((fact) => fact.id);
      return { put, remove, sections, audit: [], touched: remove };
    });
    return { facts: kept.length, leftOut: input.facts.length - kept.length };
  }

  /** Works a change out on what is there, and again when somebody else was quicker. */
  async #change(
    owner: MemoryOwner,
    decide: (
      document: MemoryDocument,
      now: number,
    ) => Omit<MemoryChange, 'seen' | 'maxFacts'> & { readonly touched: readonly string[] },
  ): Promise<void> {
    const { store, settings, surroundings } = this.#parts;
    const { userId } = owner;
    const agent = this.bucketOf(owner.agentName);
    let outcome: MemoryChanged = { outcome: 'conflict' };
    for (let turn = 0; turn < TRIES && outcome.outcome === 'conflict'; turn += 1) {
      const document = await store.read({ userId, agent });
      const now = surroundings.clock.now();
      const { touched, ...decided } = decide(document, now);
      const change: MemoryChange = {
        ...decided,
        seen: {
          facts: factsSeen(document, touched),
          sections: sectionsSeen(document, Object.keys(decided.sections)),
        },
        maxFacts: settings.maxFacts,
      };
      outcome = await store.change({ userId, agent, change, now });
    }
    if (outcome.outcome === 'duplicate')
      throw new ReindeerError('conflict', 'Another fact says the same. Change that one, or delete it first.', {
        detail: { fact_id: outcome.factId },
      });
    if (outcome.outcome === 'conflict')
      throw new ReindeerError('conflict', 'The memory was changed by somebody else at the same time. Try again.');
  }

  async #factOf(owner: MemoryOwner, id: string): Promise<StoredMemoryFact> {
    const fact = (await this.document(owner)).facts.find((other) => other.id === id);
    if (fact === undefined) throw noFact(id);
    return fact;
  }
}

const noFact = (id: string): ReindeerError =>
  new ReindeerError(
    'not_found',
    `There is no fact "${id.slice(0, 80)}". It may have been deleted, or the id is wrong.`,
  );

const made = (id: string, input: FactInput, now: number, source: string) => ({
  id,
  ...input,
  createdAt: now,
  confirmedAt: now,
  accessedAt: null,
  source,
  sourceError: null,
  reviewAfter: null,
  consolidatedFrom: [],
  contentKey: contentKeyOf(input.content),
});

function checked({ content, category, confidence }: FactInput): FactInput {
  const plain = content.trim();
  if (plain === '') throw new ReindeerError('bad_request', 'The content of a fact must not be empty.');
  if (plain.length > MAX_FACT)
    throw new ReindeerError('bad_request', `The content of a fact may have ${MAX_FACT} characters.`);
  if (!Number.isFinite(confidence) || confidence < 0 || confidence > 1)
    throw new ReindeerError('bad_request', 'The confidence of a fact must be a number from 0 to 1.');
  return { content: plain, category: categoryOf(category), confidence };
}
