import type { Surroundings } from '@reindeer/protocol';
import {
  DEFAULT_DURABLE_CONTEXT,
  type DurableContextSettings,
  durableContextMiddleware,
} from '../context/durable-context.ts';
import { dynamicContextMiddleware } from '../context/dynamic-context.ts';
import type { MemorySource } from '../context/memory-port.ts';
import {
  DEFAULT_SUMMARIZATION,
  type SummarizationSettings,
  summarizationMiddleware,
} from '../context/summarization.ts';
import type { Middleware } from '../loop/middleware.ts';
import { authorizationMiddleware } from '../middleware/authorization.ts';
import { bashAuditMiddleware } from '../middleware/bash-audit.ts';
import { coalescingMiddleware } from '../middleware/coalescing.ts';
import {
  DEFAULT_SAFETY_FINISH,
  modelLengthMiddleware,
  type SafetyFinishSettings,
  safetyFinishMiddleware,
} from '../middleware/finish-reason.ts';
import { DEFAULT_GUARDRAILS, type GuardrailSettings, guardrailMiddleware } from '../middleware/guardrail.ts';
import { inputSanitizingMiddleware } from '../middleware/input-sanitizing.ts';
import { type LlmCallSettings, llmErrorsMiddleware } from '../middleware/llm-errors.ts';
import {
  DEFAULT_LOOP_DETECTION,
  type LoopDetectionSettings,
  loopDetectionMiddleware,
} from '../middleware/loop-detection.ts';
import { readBeforeWriteMiddleware } from '../middleware/read-before-write.ts';
import { sandboxMiddleware } from '../middleware/sandbox.ts';
import { secretScrubMiddleware } from '../middleware/secret-scrub.ts';
import { skillGuardMiddleware } from '../middleware/skill-guard.ts';
import { terminalResponseMiddleware } from '../middleware/terminal-response.ts';
import { DEFAULT_TOKEN_BUDGET, type TokenBudgetSettings } from '../middleware/token-budget.ts';
import { toolErrorsMiddleware } from '../middleware/tool-errors.ts';
import { DEFAULT_TOOL_OUTPUT, type ToolOutputSettings, toolOutputMiddleware } from '../middleware/tool-output.ts';
import { REMOTE_TOOLS, toolResultSanitizingMiddleware } from '../middleware/tool-result-sanitizing.ts';
import { Authorization, type AuthorizationSettings, NO_AUTHORIZATION } from '../safety/authorization.ts';

/** What keeps long work alive and in bounds, for the lead agent and for its sub-agents alike (MW-36). */
export interface SafeguardSettings {
  readonly toolOutput: ToolOutputSettings;
  readonly summarization: SummarizationSettings;
  readonly durableContext: DurableContextSettings;
  readonly loopDetection: LoopDetectionSettings;
  /** Of a run, its sub-agents included. */
  readonly tokenBudget: TokenBudgetSettings;
  readonly safetyFinish: SafetyFinishSettings;
  readonly readBeforeWrite: boolean;
  readonly guardrails: GuardrailSettings;
  readonly authorization: AuthorizationSettings;
  /** Tools whose results come from strangers. */
  readonly remoteTools: readonly string[];
}

export const DEFAULT_SAFEGUARDS: SafeguardSettings = {
  toolOutput: DEFAULT_TOOL_OUTPUT,
  summarization: DEFAULT_SUMMARIZATION,
  durableContext: DEFAULT_DURABLE_CONTEXT,
  loopDetection: DEFAULT_LOOP_DETECTION,
  tokenBudget: DEFAULT_TOKEN_BUDGET,
  safetyFinish: DEFAULT_SAFETY_FINISH,
  readBeforeWrite: true,
  guardrails: DEFAULT_GUARDRAILS,
  authorization: NO_AUTHORIZATION,
  remoteTools: REMOTE_TOOLS,
};

export interface SafeguardParts {
  readonly settings: SafeguardSettings;
  readonly llmCall: LlmCallSettings;
  readonly agentName: string;
  readonly pathStyle: 'virtual' | 'relative';
  readonly surroundings: Surroundings;
  /** Absent: the agent gets the date only. */
  readonly memory?: MemorySource;
}

/** The parts of a chain that every agent has, in the order in which they stand (MW-38); what is one agent's own stands between them. */
export interface Safeguards {
  /** Outermost. */
  readonly first: readonly Middleware[];
  /** Behind the folders and files of the thread. */
  readonly context: readonly Middleware[];
  /** Around the model and around each tool. */
  readonly calls: readonly Middleware[];
  /** Judges of what the model said, the strictest first to speak; innermost around the model. */
  readonly answers: readonly Middleware[];
}

export function safeguards(parts: SafeguardParts): Safeguards {
  const { settings, llmCall, agentName, pathStyle, surroundings, memory } = parts;
  const { logger } = surroundings;
  return {
    first: [
      inputSanitizingMiddleware(),
      toolOutputMiddleware({ settings: settings.toolOutput, pathStyle, logger }),
      authorizationMiddleware(new Authorization(settings.authorization, logger)),
    ],
    context: [
      sandboxMiddleware(),
      dynamicContextMiddleware({ surroundings, agentName, ...(memory === undefined ? {} : { memory }) }),
      durableContextMiddleware(settings.durableContext),
    ],
    calls: [
      llmErrorsMiddleware(llmCall, surroundings),
      summarizationMiddleware(settings.summarization, surroundings),
      toolResultSanitizingMiddleware(settings.remoteTools),
      secretScrubMiddleware(),
      toolErrorsMiddleware(),
      skillGuardMiddleware(),
      guardrailMiddleware(settings.guardrails, surroundings),
      bashAuditMiddleware(logger),
      ...(settings.readBeforeWrite ? [readBeforeWriteMiddleware()] : []),
    ],
    answers: [
      terminalResponseMiddleware(),
      loopDetectionMiddleware(settings.loopDetection),
      modelLengthMiddleware(),
      safetyFinishMiddleware(settings.safetyFinish, logger),
      coalescingMiddleware(),
    ],
  };
}
