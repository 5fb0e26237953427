import { z } from '@hono/zod-openapi';
import { type AgentProfile, type AgentProfiles, MAX_SOUL, type ProfileChange, profileFields } from '@reindeer/agent';
import { type JsonObject, ReindeerError } from '@reindeer/protocol';
import { didYouMean } from '../nearest.ts';
import { invalid, notFound } from './errors.ts';
import { type Api, route } from './route.ts';

const tag = 'Agents';
const named = z.object({ name: z.string().min(1).max(200) });
const fields = { ...profileFields.shape, soul: z.string().max(MAX_SOUL).nullish() };
const MAX_USER_PROFILE = 65_536;

export interface AgentRouteParts {
  readonly profiles: AgentProfiles;
  /** `agents_api.enabled`: with false every route answers 403. */
  readonly enabled: boolean;
  /** Names of the configured models. */
  readonly models: readonly string[];
  /** What else goes with an agent: what it remembers. */
  readonly onDeleted: (userId: string, name: string) => Promise<void>;
}

/** The custom agents of the user and what the user says of themselves (CA-2). */
export function agentRoutes(api: Api, parts: AgentRouteParts): void {
  const profiles = (): AgentProfiles => {
    if (parts.enabled) return parts.profiles;
    throw new ReindeerError(
      'forbidden',
      'Custom agents cannot be managed here: agents_api.enabled is off. Its operator can switch it on in config.yaml.',
    );
  };
  const checkModel = (model: string | null | undefined): void => {
    if (model == null || parts.models.includes(model)) return;
    throw invalid([
      {
        loc: ['body', 'model'],
        msg: `There is no model "${model.slice(0, 80)}".${didYouMean(model, parts.models)} Configured: ${parts.models.join(', ') || 'none'}.`,
        type: 'unknown_model',
      },
    ]);
  };
  const off = { 403: 'agents_api.enabled is off.' };

  route(
    api,
    {
      method: 'get',
      path: '/agents',
      tag,
      summary: 'The user’s agents, by name.',
      answers: { 200: '{agents}', ...off },
    },
    async ({ c }) => c.json({ agents: (await profiles().list(c.get('userId'))).map(viewOf) }),
  );
  route(
    api,
    {
      method: 'get',
      path: '/agents/check',
      tag,
      summary: 'Can an agent be made under this name?',
      query: named,
      answers: { 200: '{available, name}', 422: 'No name of an agent.', ...off },
    },
    async ({ c, query }) => c.json(await profiles().available(c.get('userId'), query.name)),
  );
  route(
    api,
    {
      method: 'post',
      path: '/agents',
      tag,
      summary: 'Makes an agent.',
      body: z.strictObject({ name: z.string().min(1).max(200), ...fields }),
      answers: { 201: 'The agent.', 409: 'The name is taken.', 422: 'A field is wrong.', ...off },
    },
    async ({ c, body: { name, ...change } }) => {
      const store = profiles();
      checkModel(change.model);
      return c.json(viewOf(await store.create(c.get('userId'), name, changeOf(change))), 201);
    },
  );
  route(
    api,
    {
      method: 'get',
      path: '/agents/:name',
      tag,
      summary: 'One agent.',
      params: named,
      answers: { 200: 'The agent.', 404: 'No such agent.', ...off },
    },
    async ({ c, params }) => {
      const agent = await profiles().get(c.get('userId'), params.name);
      if (agent === null) throw notFound('agent', params.name);
      return c.json(viewOf(agent));
    },
  );
  route(
    api,
    {
      method: 'put',
      path: '/agents/:name',
      tag,
      summary: 'Changes what is named and nothing else; null takes a setting away.',
      params: named,
      body: z.strictObject(fields),
      answers: {
        200: 'The agent.',
        404: 'No such agent.',
        409: 'An agent of an earlier version.',
        422: 'A field is wrong.',
        ...off,
      },
    },
    async ({ c, params, body }) => {
      const store = profiles();
      checkModel(body.model);
      return c.json(viewOf(await store.update(c.get('userId'), params.name, changeOf(body))));
    },
  );
  route(
    api,
    {
      method: 'delete',
      path: '/agents/:name',
      tag,
      summary: 'Removes an agent with what it remembers.',
      params: named,
      answers: { 204: 'Removed.', 404: 'No such agent.', ...off },
    },
    async ({ c, params }) => {
      const userId = c.get('userId');
      await profiles().delete(userId, params.name);
      await parts.onDeleted(userId, params.name.toLowerCase());
      return c.body(null, 204);
    },
  );
  route(
    api,
    {
      method: 'get',
      path: '/user-profile',
      tag,
      summary: 'USER.md.',
      answers: { 200: '{content}; null = empty', ...off },
    },
    async ({ c }) => c.json({ content: await profiles().userProfile(c.get('userId')) }),
  );
  route(
    api,
    {
      method: 'put',
      path: '/user-profile',
      tag,
      summary: 'Replaces USER.md.',
      body: z.strictObject({ content: z.string().max(MAX_USER_PROFILE).nullable() }),
      answers: { 200: '{content}', ...off },
    },
    async ({ c, body }) => {
      const store = profiles();
      const userId = c.get('userId');
      await store.setUserProfile(userId, body.content ?? '');
      return c.json({ content: await store.userProfile(userId) });
    },
  );
}

const viewOf = (agent: AgentProfile): JsonObject => ({ ...agent });

const changeOf = ({
  soul,
  ...rest
}: Omit<ProfileChange, 'soul'> & { soul?: string | null | undefined }): ProfileChange => ({
  ...rest,
  ...(soul === undefined ? {} : { soul: soul ?? '' }),
});
