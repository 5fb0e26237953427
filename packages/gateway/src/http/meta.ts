import { z } from '@hono/zod-openapi';
import { ReindeerError } from '@reindeer/protocol';
import { notFound } from './errors.ts';
import type { Assistant, HttpParts, ModelView } from './parts.ts';
import { type Api, type RequestContext, route } from './route.ts';

const tag = 'About';
const object = z.record(z.string(), z.unknown());

/** Models, features, server information. */
export function metaRoutes(api: Api, parts: HttpParts): void {
  route(
    api,
    {
      method: 'get',
      path: '/models',
      tag,
      summary: 'The configured models.',
      answers: { 200: '{models, token_usage}' },
    },
    async ({ c }) => c.json({ models: await permittedModels(c, parts), token_usage: { enabled: parts.tokenUsage } }),
  );
  route(
    api,
    {
      method: 'get',
      path: '/models/:name',
      tag,
      summary: 'One model.',
      params: z.object({ name: z.string().max(200) }),
      answers: { 200: 'The model.', 403: 'Not for this role.', 404: 'No such model.' },
    },
    async ({ c, params }) => {
      const model = parts.models.find((entry) => entry.name === params.name);
      if (model === undefined) throw notFound('model', params.name);
      if (!(await permittedModels(c, parts)).includes(model))
        throw new ReindeerError('forbidden', `Your role may not use the model "${params.name}".`);
      return c.json(model);
    },
  );
  route(
    api,
    { method: 'get', path: '/features', tag, summary: 'What this server offers.', answers: { 200: 'Features.' } },
    ({ c }) =>
      c.json({
        agents_api: { enabled: parts.agents?.api === true },
        browser_control: { enabled: false },
        mcp_tasks: { enabled: false },
        uploads: { enabled: true },
        sandbox: parts.sandboxes.report(),
      }),
  );
  route(
    api,
    { method: 'get', path: '/ok', tag, summary: 'Is the server up?', answers: { 200: '{ok: true}' } },
    ({ c }) => c.json({ ok: true }),
  );
  route(
    api,
    {
      method: 'get',
      path: '/info',
      tag,
      summary: 'Version and flags, as LangGraph clients ask for them.',
      answers: { 200: 'Information.' },
    },
    ({ c }) =>
      c.json({ name: 'reindeer', version: parts.version, flags: { assistants: true, crons: true, langsmith: false } }),
  );
}

/** The models that the user's role may use. */
async function permittedModels(c: RequestContext, parts: HttpParts): Promise<readonly ModelView[]> {
  const permits = c.get('permits');
  if (permits === undefined) return parts.models;
  const permitted = await Promise.all(parts.models.map(({ name }) => permits('models', name)));
  return parts.models.filter((_, at) => permitted[at]);
}

const assistantView = (assistant: Assistant & { readonly graphId?: string }) => ({
  assistant_id: assistant.assistantId,
  graph_id: assistant.graphId ?? assistant.assistantId,
  name: assistant.name,
  description: assistant.description,
  config: {},
  context: {},
  metadata: { created_by: assistant.graphId === undefined ? 'system' : 'user' },
  version: 1,
  created_at: '2026-01-01T00:00:00.000Z',
  updated_at: '2026-01-01T00:00:00.000Z',
});

/** Assistants are the lead agent and the user's custom agents, which run in its graph; they are made elsewhere (`/agents`). */
export function assistantRoutes(api: Api, parts: HttpParts): void {
  const filter = { graph_id: z.string().nullish(), name: z.string().nullish(), metadata: object.nullish() };
  const all = async (userId: string): Promise<(Assistant & { readonly graphId?: string })[]> => {
    const [lead] = parts.assistants;
    const custom = lead === undefined ? [] : ((await parts.agents?.list(userId)) ?? []);
    return [
      ...parts.assistants,
      ...custom.map(({ name, description }) => ({
        assistantId: name,
        name,
        description,
        graphId: lead?.assistantId ?? name,
      })),
    ];
  };
  const search = async (
    userId: string,
    body: {
      graph_id?: string | null | undefined;
      name?: string | null | undefined;
      metadata?: Record<string, unknown> | null | undefined;
    },
  ) =>
    (await all(userId))
      .map(assistantView)
      .filter((view) => body.graph_id == null || view.graph_id === body.graph_id)
      .filter((view) => body.name == null || view.name.toLowerCase().includes(body.name.toLowerCase()))
      .filter((view) =>
        Object.entries(body.metadata ?? {}).every(
          ([key, value]) => (view.metadata as Record<string, unknown>)[key] === value,
        ),
      );
  const params = z.object({ assistant_id: z.string().max(200) });
  const find = async (userId: string, id: string) => {
    const assistant = (await all(userId)).find((entry) => entry.assistantId === id);
    if (assistant === undefined) throw notFound('assistant', id);
    return assistant;
  };
  const assistants = 'Assistants';

  route(
    api,
    {
      method: 'post',
      path: '/assistants/search',
      tag: assistants,
      summary: 'List assistants.',
      body: z.strictObject({
        ...filter,
        limit: z.number().int().min(1).max(1000).nullish(),
        offset: z.number().int().min(0).nullish(),
        sort_by: z.string().nullish(),
        sort_order: z.string().nullish(),
        select: z.array(z.string()).nullish(),
      }),
      answers: { 200: 'A list.' },
    },
    async ({ c, body }) =>
      c.json((await search(c.get('userId'), body)).slice(body.offset ?? 0, (body.offset ?? 0) + (body.limit ?? 10))),
  );
  route(
    api,
    {
      method: 'post',
      path: '/assistants/count',
      tag: assistants,
      summary: 'Count assistants.',
      body: z.strictObject(filter),
      answers: { 200: 'A number.' },
    },
    async ({ c, body }) => c.json((await search(c.get('userId'), body)).length),
  );
  route(
    api,
    {
      method: 'get',
      path: '/assistants/:assistant_id',
      tag: assistants,
      summary: 'An assistant.',
      params,
      answers: { 200: 'The assistant.', 404: 'No such assistant.' },
    },
    async ({ c, params }) => c.json(assistantView(await find(c.get('userId'), params.assistant_id))),
  );
  route(
    api,
    {
      method: 'get',
      path: '/assistants/:assistant_id/graph',
      tag: assistants,
      summary: 'The nodes of an assistant.',
      params,
      query: z.object({ xray: z.string().optional() }),
      answers: { 200: '{nodes, edges}', 404: 'No such assistant.' },
    },
    async ({ c, params }) => {
      await find(c.get('userId'), params.assistant_id);
      const node = (id: string) => ({ id, name: id, type: 'runnable', data: { name: id } });
      return c.json({
        nodes: ['__start__', 'prepare', 'model', 'tools', '__end__'].map(node),
        edges: [
          { source: '__start__', target: 'prepare' },
          { source: 'prepare', target: 'model' },
          { source: 'model', target: 'tools', conditional: true },
          { source: 'tools', target: 'model' },
          { source: 'model', target: '__end__', conditional: true },
        ],
      });
    },
  );
  route(
    api,
    {
      method: 'get',
      path: '/assistants/:assistant_id/schemas',
      tag: assistants,
      summary: 'Schemas of an assistant.',
      params,
      answers: { 200: 'Schemas.', 404: 'No such assistant.' },
    },
    async ({ c, params }) => {
      const assistant = await find(c.get('userId'), params.assistant_id);
      const messages = { type: 'array', items: { type: 'object' } };
      const state = {
        type: 'object',
        properties: {
          messages,
          title: { type: ['string', 'null'] },
          artifacts: { type: 'array', items: { type: 'string' } },
          todos: { type: ['array', 'null'], items: { type: 'object' } },
        },
      };
      return c.json({
        graph_id: assistant.graphId ?? assistant.assistantId,
        input_schema: { type: 'object', properties: { messages }, required: ['messages'] },
        output_schema: state,
        state_schema: state,
        config_schema: { type: 'object', properties: {} },
        context_schema: {
          type: 'object',
          properties: {
            model_name: { type: 'string', enum: parts.models.map((model) => model.name) },
            thinking_enabled: { type: 'boolean' },
          },
        },
      });
    },
  );
}
