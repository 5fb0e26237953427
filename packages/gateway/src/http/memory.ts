import { z } from '@hono/zod-openapi';
import type { FactInput, LearnerStatus, Memory, MemoryImport, MemoryOwner } from '@reindeer/agent';
import {
  HISTORY_SECTIONS,
  type JsonObject,
  MEMORY_SECTIONS,
  type MemoryDocument,
  type MemorySectionName,
  ReindeerError,
  type StoredMemoryFact,
  USER_SECTIONS,
} from '@reindeer/protocol';
import type { MemoryConfiguration } from '../config/memory.ts';
import { type Api, type RequestContext, route } from './route.ts';

const tag = 'Memory';

/** What a memory does for these routes. One of the operator's own may lack any of it: what needs that is answered 501 (MEM-8). */
export type MemoryBackend = Partial<
  Pick<Memory, 'document' | 'pending' | 'audit' | 'find' | 'create' | 'update' | 'delete' | 'clear' | 'import'>
>;
type Able = <Name extends keyof MemoryBackend>(name: Name) => NonNullable<MemoryBackend[Name]>;

export interface MemoryRouteParts {
  /** null = this server remembers nothing. */
  readonly memory: MemoryBackend | null;
  readonly learner: { readonly status?: LearnerStatus } | null;
  readonly configuration: MemoryConfiguration;
  /** The model that learns; null = none can. */
  readonly modelName: string | null;
}

const agentQuery = z.object({
  /** Of a custom agent; absent = the default agent. */
  agent_name: z
    .string()
    .regex(/^[A-Za-z0-9-]{1,64}$/)
    .optional(),
});
const factParams = z.object({ fact_id: z.string().min(1).max(100) });
const answers = { 501: 'This server remembers nothing, or its memory cannot do this.' };

/** What is remembered of the user: seen, corrected, taken along and erased (MEM-7). */
export function memoryRoutes(api: Api, parts: MemoryRouteParts): void {
  const { memory } = parts;
  const able: Able = (name) => {
    const operation = memory?.[name];
    if (typeof operation === 'function') return operation.bind(memory) as never;
    throw new ReindeerError(
      'not_implemented',
      memory === null
        ? 'This server remembers nothing: memory.manager_class is noop. That can be changed in config.yaml.'
        : `The memory of this server is its operator’s own and cannot do this: it has no function "${name}".`,
      { detail: { operation: name } },
    );
  };
  const ownerOf = (c: RequestContext, query: z.output<typeof agentQuery>): MemoryOwner => ({
    userId: c.get('userId'),
    agentName: query.agent_name?.toLowerCase() ?? null,
  });
  /** Asked for before a change, so that one whose result cannot be shown is not made. */
  const shown = (): ((owner: MemoryOwner) => Promise<JsonObject>) => {
    const document = able('document');
    return async (owner) => documentView(await document(owner));
  };

  for (const [method, path, summary] of [
    ['get', '/memory', 'Everything that is remembered of the user.'],
    ['get', '/memory/export', 'The same, to take along; `POST /memory/import` takes it.'],
    ['post', '/memory/reload', 'Reads the memory anew; it is never kept back.'],
  ] as const)
    route(
      api,
      {
        method,
        path,
        tag,
        summary,
        query: agentQuery,
        answers: { 200: 'The document.', 500: 'The memory is damaged.', ...answers },
      },
      async ({ c, query }) => c.json(await shown()(ownerOf(c, query))),
    );

  route(
    api,
    {
      method: 'delete',
      path: '/memory',
      tag,
      summary: 'Erases the memory, and what waits to be learned; with `agent_name` the facts of that agent only.',
      query: agentQuery,
      answers: { 200: 'The empty document.', ...answers },
    },
    async ({ c, query }) => {
      const owner = ownerOf(c, query);
      const show = shown();
      await able('clear')(owner);
      return c.json(await show(owner));
    },
  );
  route(
    api,
    {
      method: 'post',
      path: '/memory/import',
      tag,
      summary: 'Puts an exported document in place of the memory.',
      query: agentQuery,
      body: z.looseObject({}),
      answers: { 200: 'The document, with the number of facts left out.', 400: 'It is no memory.', ...answers },
    },
    async ({ c, query, body }) => {
      const owner = ownerOf(c, query);
      const show = shown();
      const { leftOut } = await able('import')(owner, importOf(body));
      return c.json({ ...(await show(owner)), left_out: leftOut });
    },
  );
  factRoutes(api, able, shown, ownerOf);

  route(
    api,
    {
      method: 'get',
      path: '/memory/config',
      tag,
      summary: 'How the memory is set.',
      answers: { 200: 'The settings.' },
    },
    ({ c }) => c.json(configView(parts.configuration)),
  );
  route(
    api,
    {
      method: 'get',
      path: '/memory/status',
      tag,
      summary: 'Does it work, and what waits to be learned?',
      query: agentQuery,
      answers: { 200: 'The state.' },
    },
    async ({ c, query }) => {
      const { learner, modelName, configuration } = parts;
      const owner = ownerOf(c, query);
      const document = await memory?.document?.(owner);
      const { enabled } = configuration.settings;
      const status = learner?.status;
      return c.json({
        ...configView(configuration),
        revision: document?.revision ?? 0,
        facts: document?.facts.length ?? 0,
        pending: (await memory?.pending?.(owner.userId)) ?? 0,
        learning: {
          enabled: enabled && modelName !== null,
          model: enabled ? modelName : null,
          reason: !enabled
            ? 'The memory is switched off.'
            : configuration.mode === 'tool'
              ? 'The agent remembers by its own tools (memory.mode: tool).'
              : modelName === null
                ? 'There is only the demo model, which cannot learn. Configure a model.'
                : null,
          active: status?.active ?? 0,
          last_at: timeOf(status?.lastAt ?? null),
          last_outcome: status?.lastOutcome ?? null,
        },
        removed: ((await memory?.audit?.(owner.userId)) ?? []).slice(-20).map(auditView),
      });
    },
  );
}

function factRoutes(
  api: Api,
  able: Able,
  shown: () => (owner: MemoryOwner) => Promise<JsonObject>,
  ownerOf: (c: RequestContext, query: z.output<typeof agentQuery>) => MemoryOwner,
): void {
  const refused = { 400: 'Empty, too long, or a confidence outside of 0 to 1.', ...answers };
  route(
    api,
    {
      method: 'get',
      path: '/memory/search',
      tag,
      summary: 'Facts with words of the query, the best first.',
      query: agentQuery.extend({
        query: z.string().min(1).max(1_000),
        category: z.string().max(40).optional(),
        limit: z.coerce.number().int().min(1).max(100).default(10),
      }),
      answers: { 200: '{facts}', ...answers },
    },
    async ({ c, query }) => {
      const found = await able('find')(ownerOf(c, query), {
        text: query.query,
        category: query.category ?? null,
        limit: query.limit,
      });
      return c.json({ facts: found.map(({ fact, score }) => ({ ...factView(fact), score })) });
    },
  );
  route(
    api,
    {
      method: 'post',
      path: '/memory/facts',
      tag,
      summary: 'Adds a fact.',
      query: agentQuery,
      body: z.strictObject({ content: z.unknown(), category: z.unknown(), confidence: z.unknown() }).partial(),
      answers: { 201: 'The fact.', 409: 'Another fact says the same, or there is no place for it.', ...refused },
    },
    async ({ c, query, body }) => {
      const input = { category: 'context', confidence: 0.5, ...factOf(body) };
      if (input.content === undefined) throw badFact('content', 'is missing');
      return c.json(factView(await able('create')(ownerOf(c, query), { ...input, content: input.content })), 201);
    },
  );
  route(
    api,
    {
      method: 'patch',
      path: '/memory/facts/:fact_id',
      tag,
      summary: 'Changes what is given of a fact; `revision` insists that nobody changed it meanwhile.',
      params: factParams,
      query: agentQuery,
      body: z
        .strictObject({
          content: z.unknown(),
          category: z.unknown(),
          confidence: z.unknown(),
          revision: z.int().min(0),
        })
        .partial(),
      answers: {
        200: 'The fact.',
        404: 'No such fact.',
        409: 'Another fact says the same, or it was changed meanwhile.',
        ...refused,
      },
    },
    async ({ c, params, query, body }) => {
      const { revision } = body;
      return c.json(factView(await able('update')(ownerOf(c, query), params.fact_id, { ...factOf(body), revision })));
    },
  );
  route(
    api,
    {
      method: 'delete',
      path: '/memory/facts/:fact_id',
      tag,
      summary: 'Forgets a fact, with what summaries say of it.',
      params: factParams,
      query: agentQuery,
      answers: { 200: 'The document without it.', 404: 'No such fact.', ...answers },
    },
    async ({ c, params, query }) => {
      const owner = ownerOf(c, query);
      const show = shown();
      await able('delete')(owner, params.fact_id);
      return c.json(await show(owner));
    },
  );
}

const badFact = (field: string, what: string): ReindeerError =>
  new ReindeerError('bad_request', `${field} ${what}. Correct the fact and send it again.`, { detail: { field } });

/** The given fields of a fact; a wrong kind is the caller's mistake (400), as a wrong value is. */
function factOf(body: { content?: unknown; category?: unknown; confidence?: unknown }, at = ''): Partial<FactInput> {
  const { content, category, confidence } = body;
  if (content !== undefined && typeof content !== 'string') throw badFact(`${at}content`, 'must be text');
  if (category !== undefined && typeof category !== 'string') throw badFact(`${at}category`, 'must be text');
  if (confidence !== undefined && typeof confidence !== 'number')
    throw badFact(`${at}confidence`, 'must be a number from 0 to 1');
  return {
    ...(content === undefined ? {} : { content }),
    ...(category === undefined ? {} : { category }),
    ...(confidence === undefined ? {} : { confidence }),
  };
}

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const timeOf = (milliseconds: number | null): string | null =>
  milliseconds === null ? null : new Date(milliseconds).toISOString();
const millisecondsOf = (value: unknown): number | undefined => {
  const parsed = typeof value === 'string' ? Date.parse(value) : Number.NaN;
  return Number.isFinite(parsed) ? parsed : undefined;
};
const textsOf = (value: unknown): string[] | undefined =>
  Array.isArray(value) && value.every((item) => typeof item === 'string') ? value : undefined;

const MAX_STATEMENTS = 50;

function importOf(body: Readonly<Record<string, unknown>>): MemoryImport {
  const { facts = [] } = body;
  if (!Array.isArray(facts)) throw badFact('facts', 'must be a list');
  const sections = new Map<MemorySectionName, { text: string; sources: string[] | null }[]>();
  for (const name of MEMORY_SECTIONS) {
    const group = body[USER_SECTIONS.includes(name) ? 'user' : 'history'];
    const section = isRecord(group) ? group[name] : undefined;
    if (!isRecord(section)) continue;
    const { summary, statements } = section;
    const list = Array.isArray(statements) ? statements : [{ text: summary }];
    sections.set(
      name,
      list.slice(0, MAX_STATEMENTS).flatMap((item) => {
        const text = isRecord(item) && typeof item.text === 'string' ? item.text.trim().slice(0, 4_000) : '';
        return text === '' ? [] : [{ text, sources: isRecord(item) ? (textsOf(item.sources) ?? null) : null }];
      }),
    );
  }
  return {
    sections,
    facts: facts.map((item: unknown, index): MemoryImport['facts'][number] => {
      const at = `facts[${index}].`;
      if (!isRecord(item)) throw badFact(at.slice(0, -1), 'must be a fact');
      const input = { category: 'context', confidence: 0.5, ...factOf(item, at) };
      if (input.content === undefined) throw badFact(`${at}content`, 'is missing');
      const created = millisecondsOf(item.createdAt);
      const confirmed = millisecondsOf(item.confirmedAt) ?? created;
      const joined = textsOf(item.consolidatedFrom);
      return {
        ...input,
        content: input.content,
        ...(typeof item.id === 'string' ? { id: item.id } : {}),
        ...(created === undefined ? {} : { createdAt: created }),
        ...(confirmed === undefined ? {} : { confirmedAt: confirmed }),
        ...(typeof item.source === 'string' ? { source: item.source.slice(0, 200) } : {}),
        ...(typeof item.sourceError === 'string' ? { sourceError: item.sourceError.slice(0, 2_000) } : {}),
        ...(joined === undefined ? {} : { consolidatedFrom: joined.slice(0, 100) }),
      };
    }),
  };
}

function documentView(document: MemoryDocument): JsonObject {
  const group = (names: readonly MemorySectionName[]): JsonObject =>
    Object.fromEntries(
      names.map((name) => {
        const section = document.sections[name];
        const statements = (section?.statements ?? []).map(({ text, sources }) => ({ text, sources: [...sources] }));
        return [
          name,
          {
            summary: statements.map(({ text }) => text).join(' '),
            updatedAt: timeOf(section?.updatedAt ?? null),
            statements,
          },
        ];
      }),
    );
  return {
    version: '2',
    revision: document.revision,
    lastUpdated: timeOf(document.updatedAt),
    user: group(USER_SECTIONS),
    history: group(HISTORY_SECTIONS),
    facts: document.facts.map(factView),
  };
}

const factView = (fact: StoredMemoryFact): JsonObject => ({
  id: fact.id,
  content: fact.content,
  category: fact.category,
  confidence: fact.confidence,
  createdAt: timeOf(fact.createdAt),
  confirmedAt: timeOf(fact.confirmedAt),
  source: fact.source,
  ...(fact.sourceError === null ? {} : { sourceError: fact.sourceError }),
  ...(fact.consolidatedFrom.length === 0 ? {} : { consolidatedFrom: [...fact.consolidatedFrom] }),
  revision: fact.revision,
});

const auditView = (entry: { at: number; factId: string; act: string }): JsonObject => ({
  at: timeOf(entry.at),
  fact_id: entry.factId,
  act: entry.act,
});

function configView({ settings, manager, mode, flushMs, model }: MemoryConfiguration): JsonObject {
  const { staleness, consolidation } = settings;
  return {
    enabled: settings.enabled,
    mode,
    injection_enabled: settings.injection,
    shutdown_flush_timeout_seconds: flushMs / 1000,
    manager_class: manager,
    backend_config: {
      debounce_seconds: settings.debounceMs / 1000,
      queue_max_depth: settings.maxPending,
      model,
      max_facts: settings.maxFacts,
      fact_confidence_threshold: settings.confidenceThreshold,
      fact_eviction_policy: settings.eviction,
      max_injection_tokens: settings.maxInjectionTokens,
      guaranteed_categories: [...settings.guaranteedCategories],
      guaranteed_token_budget: settings.guaranteedTokens,
      staleness_review_enabled: staleness.enabled,
      staleness_age_days: staleness.ageDays,
      staleness_min_candidates: staleness.minCandidates,
      staleness_max_removals_per_cycle: staleness.maxRemovals,
      staleness_protected_categories: [...staleness.protectedCategories],
      staleness_max_lifetime_multiplier: staleness.maxLifetimeMultiplier,
      staleness_max_extension_days: staleness.maxExtensionDays,
      consolidation_enabled: consolidation.enabled,
      consolidation_min_facts: consolidation.minFacts,
      consolidation_max_groups_per_cycle: consolidation.maxGroups,
      consolidation_max_sources: consolidation.maxSources,
      watermark_max_keys: settings.maxWatermarks,
    },
  };
}
