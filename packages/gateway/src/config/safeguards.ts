import {
  type AuthorizationSettings,
  allowlistProvider,
  type CompactionTrigger,
  DEFAULT_CIRCUIT_BREAKER,
  DEFAULT_LLM_CALL,
  DEFAULT_SAFEGUARDS,
  type LlmCallSettings,
  type RoleGrants,
  rbacProvider,
  type SafeguardSettings,
} from '@reindeer/agent';
import { safeUserId } from '@reindeer/sandbox';
import { didYouMean } from '../nearest.ts';
import { isOwnModule } from './class-path.ts';
import { isOurs, milliseconds, type OwnModule, ownModuleOf, wrongValue } from './readers.ts';
import type { ConfigFile } from './schema.ts';

/** What the file says of the agent's safe-guards, with defaults; models are named and not made yet. */
export interface AgentSettings {
  readonly llmCall: LlmCallSettings;
  readonly safeguards: SafeguardSettings;
  /** Writes summaries; null = the model of the run. */
  readonly summaryModel: string | null;
  readonly approvalExpiryMs: number | null;
  /** A provider of the operator's own that says who may do what; null = none. */
  readonly authorizationModule: OwnModule | null;
  /** A guardrail of the operator's own; null = none. */
  readonly guardrailModule: OwnModule | null;
  /** Safety detectors of the operator's own. */
  readonly detectorModules: readonly string[];
  readonly suggestions: { readonly enabled: boolean; readonly most: number; readonly model: string | null };
}

const ALLOWLIST = {
  what: 'guardrail provider',
  names: ['allowlist', 'AllowlistProvider'],
  set: 'provider.use to allowlist',
} as const;

/** @throws ReindeerError `configuration` for an unknown guardrail provider */
export function agentSettingsOf(config: ConfigFile): AgentSettings {
  const { toolOutput, summarization, durableContext, loopDetection, tokenBudget, safetyFinish } = DEFAULT_SAFEGUARDS;
  const output = config.tool_output ?? {};
  const summary = config.summarization ?? {};
  const loop = config.loop_detection ?? {};
  const budget = config.token_budget ?? {};
  const safety = config.safety_finish_reason ?? {};
  const circuit = config.circuit_breaker ?? {};
  const call = config.llm_call ?? {};
  return {
    llmCall: {
      ...DEFAULT_LLM_CALL,
      retryMaxAttempts: call.retry_max_attempts ?? DEFAULT_LLM_CALL.retryMaxAttempts,
      retryBaseDelayMs: call.retry_base_delay_ms ?? DEFAULT_LLM_CALL.retryBaseDelayMs,
      retryCapDelayMs: call.retry_cap_delay_ms ?? DEFAULT_LLM_CALL.retryCapDelayMs,
      burstRetryBaseDelayMs: call.burst_retry_base_delay_ms ?? DEFAULT_LLM_CALL.burstRetryBaseDelayMs,
      circuitBreaker: {
        failureThreshold: circuit.failure_threshold ?? DEFAULT_CIRCUIT_BREAKER.failureThreshold,
        recoveryTimeoutMs: milliseconds(circuit.recovery_timeout_sec, DEFAULT_CIRCUIT_BREAKER.recoveryTimeoutMs),
      },
    },
    safeguards: {
      ...DEFAULT_SAFEGUARDS,
      toolOutput: {
        enabled: output.enabled ?? toolOutput.enabled,
        externalizeMinCharacters: output.externalize_min_chars ?? toolOutput.externalizeMinCharacters,
        previewHeadCharacters: output.preview_head_chars ?? toolOutput.previewHeadCharacters,
        previewTailCharacters: output.preview_tail_chars ?? toolOutput.previewTailCharacters,
        fallbackMaxCharacters: output.fallback_max_chars ?? toolOutput.fallbackMaxCharacters,
        fallbackHeadCharacters: output.fallback_head_chars ?? toolOutput.fallbackHeadCharacters,
        fallbackTailCharacters: output.fallback_tail_chars ?? toolOutput.fallbackTailCharacters,
        storageSubfolder: output.storage_subdir ?? toolOutput.storageSubfolder,
        exemptTools: output.exempt_tools ?? toolOutput.exemptTools,
        toolOverrides: output.tool_overrides ?? toolOutput.toolOverrides,
      },
      summarization: {
        ...summarization,
        enabled: summary.enabled ?? summarization.enabled,
        triggers: summary.trigger == null ? summarization.triggers : listOf<CompactionTrigger>(summary.trigger),
        keep: summary.keep ?? summarization.keep,
        trimTokens: summary.trim_tokens_to_summarize ?? summarization.trimTokens,
        prompt: summary.summary_prompt ?? null,
      },
      durableContext: {
        ...durableContext,
        skillFileReadTools: summary.skill_file_read_tool_names ?? durableContext.skillFileReadTools,
      },
      loopDetection: {
        enabled: loop.enabled ?? loopDetection.enabled,
        warnThreshold: loop.warn_threshold ?? loopDetection.warnThreshold,
        hardLimit: loop.hard_limit ?? loopDetection.hardLimit,
        windowSize: loop.window_size ?? loopDetection.windowSize,
        toolFreqWarn: loop.tool_freq_warn ?? loopDetection.toolFreqWarn,
        toolFreqHardLimit: loop.tool_freq_hard_limit ?? loopDetection.toolFreqHardLimit,
        toolFreqOverrides: Object.fromEntries(
          Object.entries(loop.tool_freq_overrides ?? {}).map(([tool, limits]) => [
            tool,
            { warn: limits.warn, hardLimit: limits.hard_limit },
          ]),
        ),
      },
      tokenBudget: {
        enabled: budget.enabled ?? tokenBudget.enabled,
        maxTokens: budget.max_tokens ?? tokenBudget.maxTokens,
        maxInputTokens: budget.max_input_tokens ?? null,
        maxOutputTokens: budget.max_output_tokens ?? null,
        warnThreshold: budget.warn_threshold ?? tokenBudget.warnThreshold,
        hardStopThreshold: budget.hard_stop_threshold ?? tokenBudget.hardStopThreshold,
      },
      safetyFinish: {
        enabled: safety.enabled ?? safetyFinish.enabled,
        detectors: safety.detectors?.filter((name) => !isOwnModule(name)) ?? null,
      },
      readBeforeWrite: config.read_before_write?.enabled ?? true,
      guardrails: guardrailsOf(config.guardrails),
      authorization: authorizationOf(config.authorization),
    },
    guardrailModule: ownModuleOf(config.guardrails),
    authorizationModule: ownModuleOf(config.authorization),
    detectorModules: (safety.detectors ?? []).filter(isOwnModule),
    summaryModel: summary.model_name ?? null,
    approvalExpiryMs: milliseconds(config.approvals?.expire_after_seconds, null),
    suggestions: {
      enabled: config.suggestions?.enabled ?? true,
      most: config.suggestions?.max_suggestions ?? 3,
      model: config.suggestions?.model_name ?? null,
    },
  };
}

const listOf = <T>(value: T | readonly T[]): readonly T[] =>
  Array.isArray(value) ? (value as readonly T[]) : [value as T];

function guardrailsOf(section: ConfigFile['guardrails']): SafeguardSettings['guardrails'] {
  const failClosed = section?.fail_closed ?? true;
  const passport = section?.passport ?? null;
  if (!isOurs('guardrails', section, ALLOWLIST)) return { provider: null, failClosed, passport };
  const { allowed_tools: allowed, denied_tools: denied } = section?.provider?.config ?? {};
  return { provider: allowlistProvider({ allowed: allowed ?? null, denied: denied ?? [] }), failClosed, passport };
}

const RBAC = {
  what: 'authorization provider',
  names: ['rbac', 'RBACProvider', 'RbacProvider', 'RBACAuthorizationProvider'],
  set: 'provider.use to rbac with provider.config.roles',
} as const;

/** @throws ReindeerError `configuration` for an unknown provider, or for a role that nobody has defined */
function authorizationOf(section: ConfigFile['authorization']): AuthorizationSettings {
  const failClosed = section?.fail_closed ?? true;
  const defaultRole = section?.default_role ?? 'user';
  const users = Object.fromEntries(
    Object.entries(section?.users ?? {}).map(([user, role]) => [safeUserId(user), role]),
  );
  // A module of the operator's own knows its roles itself.
  if (!isOurs('authorization', section, RBAC)) return { provider: null, failClosed, defaultRole, users };
  const roles = section?.provider?.config?.roles ?? {};
  const known = Object.keys(roles);
  const named: readonly (readonly [readonly string[], string])[] = [
    [['default_role'], defaultRole],
    ...Object.entries(section?.users ?? {}).map(([user, role]) => [['users', user], role] as const),
  ];
  for (const [key, role] of named)
    if (!known.includes(role))
      throw wrongValue(
        ['authorization', ...key],
        `authorization.${key.join('.')}: there is no role "${role}" in authorization.provider.config.roles.${didYouMean(role, known)} Roles: ${known.join(', ') || 'none'}.`,
      );
  return { provider: rbacProvider(mapped(roles)), failClosed, defaultRole, users };
}

type Roles = NonNullable<
  NonNullable<NonNullable<NonNullable<ConfigFile['authorization']>['provider']>['config']>['roles']
>;

/** What a role says nothing of is not restricted; lists that are left out restrict nothing either. */
const mapped = (roles: Roles): Record<string, RoleGrants> =>
  Object.fromEntries(
    Object.entries(roles).map(([role, grants]) => [
      role,
      Object.fromEntries(
        (['tools', 'routes', 'models'] as const).flatMap((resource) => {
          const grant = grants[resource];
          return grant === undefined ? [] : [[resource, { allow: grant.allow ?? '*', deny: grant.deny ?? [] }]];
        }),
      ),
    ]),
  );
