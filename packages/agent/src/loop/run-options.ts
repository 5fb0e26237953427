import { underChannel } from '../safety/channels.ts';
import type { HookRuntime } from './middleware.ts';
import { scopeOf } from './scope.ts';

/**
 * The options of a run: `configurable`, overlaid by `context`, as asked and as the runtime passes them (AG-1: context wins).
 * Keys that start with two underscores are the machinery's and are left out.
 */
export function runOptions(runtime: Pick<HookRuntime, 'configurable' | 'context'>): Readonly<Record<string, unknown>> {
  const { request } = scopeOf(runtime).attempt.run;
  const merged = {
    ...record(request.config.configurable),
    ...record(runtime.configurable),
    ...request.context,
    ...record(runtime.context),
  };
  return underChannel(Object.fromEntries(Object.entries(merged).filter(([key]) => !key.startsWith('__'))));
}

const record = (value: unknown): Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : {};
