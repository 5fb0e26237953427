import { z } from '@hono/zod-openapi';
import type { HistoryEntry, Skill, SkillLibrary, SkillPackages, SkillSecretStore } from '@reindeer/agent';
import { isSkillName, MAX_SECRET, SECRET_MASK } from '@reindeer/agent';
import { type JsonObject, ReindeerError, type SandboxProvider } from '@reindeer/protocol';
import { notFound } from './errors.ts';
import { type Api, route } from './route.ts';

const tag = 'Skills';
/** Bytes of an archive. */
const MAX_ARCHIVE = 64 * 1024 * 1024;
const named = z.object({ name: z.string().min(1).max(64) });

export interface SkillParts {
  readonly library: SkillLibrary;
  readonly packages: SkillPackages;
  readonly secrets: SkillSecretStore;
  /** Files of a thread, for archives that lie there. */
  readonly files: SandboxProvider['files'];
}

/** The skills of the user: what there is, and what is switched on (SK-3). */
export function skillRoutes(api: Api, parts: SkillParts): void {
  const { library } = parts;
  // Before the routes with a name in their place.
  installRoute(api, parts);
  customRoutes(api, parts);
  secretRoutes(api, parts);

  route(
    api,
    { method: 'get', path: '/skills', tag, summary: 'All skills of the user.', answers: { 200: '{skills}' } },
    async ({ c }) => c.json({ skills: (await library.list(c.get('userId'))).map(viewOf) }),
  );
  route(
    api,
    {
      method: 'post',
      path: '/skills/reload',
      tag,
      summary: 'Looks at the folders of skills again, after an edit by hand.',
      answers: { 200: '{success, scope, message}' },
    },
    async ({ c }) => {
      library.invalidate();
      const skills = await library.prepare(c.get('userId'));
      return c.json({ success: true, scope: 'process', message: `${skills.length} skills were found.` });
    },
  );
  route(
    api,
    {
      method: 'get',
      path: '/skills/:name',
      tag,
      summary: 'One skill.',
      params: named,
      answers: { 200: 'The skill.', 404: 'No such skill.' },
    },
    async ({ c, params }) => {
      const skill = await library.get(c.get('userId'), params.name);
      if (skill === null) throw notFound('skill', params.name);
      return c.json(viewOf(skill));
    },
  );
  route(
    api,
    {
      method: 'put',
      path: '/skills/:name',
      tag,
      summary: 'Switches a skill on or off. Sandboxes show it when the answer comes.',
      params: named,
      body: z.strictObject({ enabled: z.boolean() }),
      answers: { 200: 'The skill.', 404: 'No such skill.', 409: 'config.yaml decides.' },
    },
    async ({ c, params, body }) => c.json(viewOf(await library.setEnabled(c.get('userId'), params.name, body.enabled))),
  );
}

function installRoute(api: Api, { packages, files }: SkillParts): void {
  route(
    api,
    {
      method: 'post',
      path: '/skills/install',
      tag,
      summary: 'Installs a .skill archive that lies in a thread, for the user.',
      body: z.strictObject({
        thread_id: z.string().regex(/^[A-Za-z0-9_-]{1,64}$/),
        path: z.string().min(1).max(4_096),
      }),
      answers: {
        200: '{success, skill_name, message}',
        400: 'Refused, with the findings.',
        409: 'The user has such a skill.',
        422: 'The archive is not fit.',
      },
    },
    async ({ c, body }) => {
      const userId = c.get('userId');
      if (!/\.skill$/i.test(body.path))
        throw new ReindeerError('validation_failed', 'A skill comes as a file whose name ends in .skill.');
      const archive = await files({ userId, threadId: body.thread_id }).read(body.path, { maxBytes: MAX_ARCHIVE });
      const skill = await packages.install(userId, archive);
      return c.json({
        success: true,
        skill_name: skill.name,
        message: `The skill "${skill.name}" is installed and switched on.`,
      });
    },
  );
}

/** Values for what a skill declares (SK-8): written here, shown nowhere. */
function secretRoutes(api: Api, { library, secrets }: SkillParts): void {
  const found = async (userId: string, name: string): Promise<Skill> => {
    const skill = await library.get(userId, name);
    if (skill === null) throw notFound('skill', name);
    return skill;
  };
  const shown = async (userId: string, skill: Skill): Promise<JsonObject> => ({
    skill: skill.name,
    secrets: (await secrets.describe(userId, skill)).map(({ name, optional, source }) => ({
      name,
      optional,
      source,
      value: source === null ? null : SECRET_MASK,
    })),
  });
  route(
    api,
    {
      method: 'get',
      path: '/skills/:name/secrets',
      tag,
      summary: 'The secrets that a skill declares, and which of them have a value. Never a value.',
      params: named,
      answers: { 200: '{skill, secrets: [{name, optional, source, value}]}', 404: 'No such skill.' },
    },
    async ({ c, params }) => c.json(await shown(c.get('userId'), await found(c.get('userId'), params.name))),
  );
  route(
    api,
    {
      method: 'put',
      path: '/skills/:name/secrets',
      tag,
      summary:
        'Stores values for them. A masked value keeps what is stored, null removes it; names that are left out stay.',
      params: named,
      body: z.strictObject({
        secrets: z.record(z.string().min(1).max(128), z.string().max(MAX_SECRET).nullable()),
        scope: z.enum(['user', 'shared']).default('user'),
      }),
      answers: {
        200: '{skill, secrets}',
        404: 'No such skill.',
        409: 'config.yaml decides.',
        422: 'A name that the skill does not declare, or a value that cannot be one.',
      },
    },
    async ({ c, params, body }) => {
      const userId = c.get('userId');
      const skill = await found(userId, params.name);
      await secrets.set(userId, skill, body.secrets, body.scope);
      return c.json(await shown(userId, skill));
    },
  );
}

function customRoutes(api: Api, { library, packages }: SkillParts): void {
  const written = {
    200: 'The skill.',
    400: 'Refused, with the findings.',
    404: 'No such skill of the user.',
    422: 'SKILL.md is not right.',
  };
  route(
    api,
    { method: 'get', path: '/skills/custom', tag, summary: 'The user’s own skills.', answers: { 200: '{skills}' } },
    async ({ c }) => {
      const skills = await library.list(c.get('userId'));
      return c.json({ skills: skills.filter((skill) => skill.editable).map(viewOf) });
    },
  );
  route(
    api,
    {
      method: 'get',
      path: '/skills/custom/:name',
      tag,
      summary: 'One of them, with its SKILL.md.',
      params: named,
      answers: { 200: 'The skill, with content.', 404: 'No such skill of the user.' },
    },
    async ({ c, params }) => {
      const { skill, content } = await packages.read(c.get('userId'), params.name);
      return c.json({ ...viewOf(skill), content });
    },
  );
  route(
    api,
    {
      method: 'put',
      path: '/skills/custom/:name',
      tag,
      summary: 'Replaces its SKILL.md.',
      params: named,
      body: z.strictObject({ content: z.string().min(1).max(524_288) }),
      answers: written,
    },
    async ({ c, params, body }) => c.json(viewOf(await packages.edit(c.get('userId'), params.name, body.content))),
  );
  route(
    api,
    {
      method: 'delete',
      path: '/skills/custom/:name',
      tag,
      summary: 'Removes it.',
      params: named,
      answers: { 200: '{success, message}', 404: 'No such skill of the user.' },
    },
    async ({ c, params }) => {
      await packages.delete(c.get('userId'), params.name);
      return c.json({ success: true, message: `The skill "${params.name}" is removed.` });
    },
  );
  route(
    api,
    {
      method: 'get',
      path: '/skills/custom/:name/history',
      tag,
      summary: 'What became of it, oldest first.',
      params: named,
      answers: { 200: '{history}' },
    },
    async ({ c, params }) => {
      if (!isSkillName(params.name)) throw notFound('skill', params.name);
      const history: readonly HistoryEntry[] = await packages.history(c.get('userId'), params.name);
      return c.json({ history: [...history] });
    },
  );
  route(
    api,
    {
      method: 'post',
      path: '/skills/custom/:name/rollback',
      tag,
      summary:
        'Brings back what SKILL.md was before an entry of the history: its place there, or −1 for the last that changed it.',
      params: named,
      body: z.strictObject({ history_index: z.number().int().min(-1_000).max(1_000).default(-1) }),
      answers: written,
    },
    async ({ c, params, body }) =>
      c.json(viewOf(await packages.rollback(c.get('userId'), params.name, body.history_index))),
  );
}

/** What clients see of a skill: no folder of the machine. */
export const viewOf = (skill: Skill): JsonObject => ({
  name: skill.name,
  description: skill.description,
  license: skill.license,
  version: skill.version,
  author: skill.author,
  category: skill.category,
  enabled: skill.enabled,
  editable: skill.editable,
  location: skill.location,
  allowed_tools: skill.allowedTools,
  required_secrets: skill.requiredSecrets.map(({ name, optional }) => ({ name, optional })),
});
