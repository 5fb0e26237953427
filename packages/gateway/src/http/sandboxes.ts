import { z } from '@hono/zod-openapi';
import { type DestroyOutcome, ReindeerError, type SandboxSummary } from '@reindeer/protocol';
import type { HttpParts } from './parts.ts';
import { type Api, route } from './route.ts';

const tag = 'Sandboxes';
/** Sandboxes that one prune stops at the same time. */
const STOPS_AT_ONCE = 4;

/** The operator's view of sandboxes that live between turns: what there is, and how to stop it. */
export function sandboxRoutes(api: Api, parts: HttpParts): void {
  const { sandboxes, sandboxPool: pool, surroundings } = parts;
  const view = (summary: SandboxSummary, memory: ReadonlyMap<string, number>) => {
    const { id, phase, stopping, identity, name, createdAt, idleMs, commands } = summary;
    const now = surroundings.clock.now();
    return {
      id,
      state: stopping ? 'stopping' : phase,
      name,
      owner: pool?.ownerId ?? null,
      user_id: identity?.userId ?? null,
      thread_id: identity?.threadId ?? null,
      created_at: createdAt === 0 ? null : new Date(createdAt).toISOString(),
      age_seconds: createdAt === 0 ? null : Math.max(0, Math.round((now - createdAt) / 1000)),
      last_used_at: new Date(now - idleMs).toISOString(),
      idle_seconds: Math.round(idleMs / 1000),
      commands,
      memory_bytes: memory.get(id) ?? null,
    };
  };
  const lifecycle = () => {
    if (pool !== null) return pool.lifecycle;
    throw new ReindeerError(
      'not_implemented',
      `Sandboxes of ${sandboxes.report().provider} last as long as a command: there is nothing to stop. Only containers live longer.`,
    );
  };

  route(
    api,
    {
      method: 'get',
      path: '/sandboxes',
      tag,
      summary: 'The sandboxes that this instance keeps.',
      answers: { 200: '{provider, owner, sandboxes}' },
    },
    async ({ c }) => {
      const list = pool?.lifecycle.list() ?? [];
      const memory = (await pool?.lifecycle.memory()) ?? new Map<string, number>();
      return c.json({
        provider: sandboxes.report().provider,
        owner: pool?.ownerId ?? null,
        sandboxes: list.map((summary) => view(summary, memory)),
      });
    },
  );
  route(
    api,
    {
      method: 'delete',
      path: '/sandboxes/:sandbox_id',
      tag,
      summary:
        'Stop one sandbox of this instance. One that is in use only with force=true; its commands are then cut short.',
      params: z.object({ sandbox_id: z.string().max(100) }),
      query: z.strictObject({ force: z.enum(['true', 'false']).optional() }),
      answers: {
        200: '{id, outcome}',
        404: 'Not kept by this instance.',
        409: 'In use, or owned by another instance.',
      },
    },
    async ({ c, params, query }) => {
      const { sandbox_id: id } = params;
      const outcome = await lifecycle().destroy(id, { unused: query.force !== 'true' });
      if (outcome === 'destroyed') return c.json({ id, outcome });
      throw refusal(outcome, query.force === 'true');
    },
  );
  route(
    api,
    {
      method: 'post',
      path: '/sandboxes/prune',
      tag,
      summary: 'Stop every sandbox of this instance that nobody uses.',
      body: z.strictObject({ idle_seconds: z.number().min(0).max(31_536_000).optional() }),
      answers: { 200: '{stopped, kept}: ids.' },
    },
    async ({ c, body }) => {
      const target = lifecycle();
      const idleMs = (body.idle_seconds ?? 0) * 1000;
      const unused = target.list().filter((summary) => summary.phase === 'warm' && summary.idleMs >= idleMs);
      const stopped: string[] = [];
      const kept: string[] = [];
      const left = unused.values();
      const lane = async (): Promise<void> => {
        for (const { id } of left) {
          // What fails is kept and said; it is tried again by the next sweep.
          const outcome = await target.destroy(id, { unused: true }).catch(() => 'refused' as const);
          (outcome === 'destroyed' ? stopped : kept).push(id);
        }
      };
      await Promise.all(Array.from({ length: STOPS_AT_ONCE }, lane));
      return c.json({ stopped, kept });
    },
  );
}

function refusal(outcome: Exclude<DestroyOutcome, 'destroyed'>, forced: boolean): ReindeerError {
  if (outcome === 'unknown_id')
    return new ReindeerError('not_found', 'This instance keeps no sandbox of that id. See GET /api/sandboxes.');
  return new ReindeerError(
    'conflict',
    forced
      ? 'The sandbox was not stopped: another instance owns it, or it is being stopped already.'
      : 'The sandbox was not stopped: it is in use, or another instance owns it. To stop it under whoever uses it, add force=true.',
  );
}
