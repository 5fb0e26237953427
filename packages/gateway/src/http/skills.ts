import { z } from '@hono/zod-openapi';
import type { Skill, SkillLibrary } from '@reindeer/agent';
import type { JsonObject } from '@reindeer/protocol';
import { notFound } from './errors.ts';
import { type Api, route } from './route.ts';

const tag = 'Skills';
const named = z.object({ name: z.string().min(1).max(64) });

export interface SkillParts {
  readonly library: SkillLibrary;
}

/** The skills of the user: what there is, and what is switched on (SK-3). */
export function skillRoutes(api: Api, { library }: SkillParts): void {
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
