import type { StructuredToolInterface } from '@langchain/core/tools';
import { type AuthorizationProvider, type GuardrailProvider, ownTool, type SafetyDetector } from '@reindeer/agent';
import {
  type Logger,
  type OwnershipStore,
  ReindeerError,
  type SandboxProvider,
  type Surroundings,
} from '@reindeer/protocol';
import { isOwnModule, ownExport, ownPart } from './config/class-path.ts';
import type { Settings } from './config/settings.ts';
import type { OwnMemory } from './memory.ts';

const DEFAULT_TOOL_TIMEOUT_MS = 120_000;

/**
 * Tools from modules of the operator's own (TOOL-18): an object, a tool of LangChain, or a function that gets the entry's other keys and answers
 * one of them.
 *
 * @throws ReindeerError `configuration` for one that cannot be loaded or is no tool
 */
export async function ownTools(
  { tools, root }: Settings,
  { secrets, logger }: { readonly secrets: readonly string[]; readonly logger: Logger },
): Promise<StructuredToolInterface[]> {
  const made: StructuredToolInterface[] = [];
  for (const { name, use, options } of tools.own) {
    const key = `tools: ${name}`;
    const { value, url, name: exported } = await ownExport(use, root, key);
    const given: unknown = typeof value === 'function' ? await called(value as Maker, options, key) : value;
    const seconds = options.timeout_seconds;
    const tool = ownTool(given, {
      name,
      source: { url, name: exported, options },
      secrets,
      timeoutMs:
        typeof seconds === 'number' && seconds > 0 ? Math.min(seconds, 86_400) * 1_000 : DEFAULT_TOOL_TIMEOUT_MS,
    });
    if (tool.name !== name)
      logger.warn('A tool has another name than its entry; models call it by its own', {
        entry: name,
        tool: tool.name,
      });
    made.push(tool);
  }
  return made;
}

type Maker = (options: Readonly<Record<string, unknown>>) => unknown;

async function called(make: Maker, options: Readonly<Record<string, unknown>>, key: string): Promise<unknown> {
  try {
    return await make(options);
  } catch (cause) {
    throw new ReindeerError('configuration', `${key}: its function failed: ${String((cause as Error).message)}`, {
      cause,
    });
  }
}

/** The guardrail, the authorization and the safety detectors that the settings name (EXT-4). @throws ReindeerError `configuration` */
export async function ownPolicies({ agent, root }: Settings): Promise<{
  readonly guardrail: GuardrailProvider | null;
  readonly authorization: AuthorizationProvider | null;
  readonly detectors: readonly SafetyDetector[];
}> {
  const { guardrailModule, authorizationModule, detectorModules } = agent;
  const permitting =
    authorizationModule === null
      ? null
      : await ownPart<Pick<AuthorizationProvider, 'permits'> & { readonly name?: string }>(
          authorizationModule.use,
          root,
          'authorization.provider.use',
          ['permits'],
          authorizationModule.config,
        );
  const guardrail =
    guardrailModule === null
      ? null
      : await ownPart<Pick<GuardrailProvider, 'decide'> & { readonly name?: string }>(
          guardrailModule.use,
          root,
          'guardrails.provider.use',
          ['decide'],
          guardrailModule.config,
        );
  const detectors: SafetyDetector[] = [];
  for (const use of detectorModules) {
    const detector = await ownPart<SafetyDetector>(use, root, 'safety_finish_reason.detectors', ['detect'], {});
    detectors.push({ name: detector.name ?? use, detect: (message) => detector.detect(message) });
  }
  return {
    guardrail:
      guardrail === null
        ? null
        : {
            name: guardrail.name ?? guardrailModule?.use ?? 'own',
            // A policy may answer at once.
            decide: async (request, signal) => await guardrail.decide(request, signal),
          },
    authorization:
      permitting === null
        ? null
        : {
            name: permitting.name ?? authorizationModule?.use ?? 'own',
            // Only a plain yes is one.
            permits: async (...question) => (await permitting.permits(...question)) === true,
          },
    detectors,
  };
}

/** A memory of the operator's own: what is told to models, and what is noted of conversations (EXT-4). null = ours. */
export async function ownMemory({ memory, root }: Settings, surroundings: Surroundings): Promise<OwnMemory | null> {
  if (memory.module === null) return null;
  const { clock, logger } = surroundings;
  return await ownPart(memory.module.use, root, 'memory.manager_class', ['context', 'capture'], {
    config: memory.module.config,
    clock,
    logger,
  });
}

const PROVIDER = ['report', 'acquire', 'get', 'release', 'files', 'removeThread', 'shutdown'];
const STORE = ['take', 'claim', 'renew', 'release', 'owner', 'close'];

/** A sandbox provider of the operator's own; it gets the section `sandbox`, the data folder, clock and log (EXT-4). */
export async function ownSandboxes(settings: Settings, surroundings: Surroundings): Promise<SandboxProvider> {
  const { use = '', ...config } = settings.sandbox;
  const { clock, logger } = surroundings;
  return await ownPart(use, settings.root, 'sandbox.use', PROVIDER, { config, home: settings.home, clock, logger });
}

/** An ownership store of the operator's own; null = one of ours. */
export async function ownOwnership(
  { sandbox, sandboxOwnership, root }: Settings,
  surroundings: Surroundings,
): Promise<OwnershipStore | null> {
  const type = sandbox.ownership?.type;
  if (type === undefined || !isOwnModule(type)) return null;
  const { clock, logger } = surroundings;
  const store = await ownPart<OwnershipStore>(type, root, 'sandbox.ownership.type', STORE, {
    config: sandbox.ownership,
    ttlMs: sandboxOwnership.renewalIntervalMs * sandboxOwnership.ttlMultiplier,
    clock,
    logger,
  });
  if (typeof store.ownerId === 'string' && store.ownerId !== '') return store;
  throw new ReindeerError(
    'configuration',
    `sandbox.ownership.type: what ${type} made has no ownerId, the name of this instance.`,
  );
}
