export { type AskForItem, askForItems } from './batches/acceptance.ts';
export { createItemExecutor, type ItemExecutorParts } from './batches/executor.ts';
export { decodeTable, formatOf, itemsOfRows, type Row, readRows, type TemplateItem } from './batches/items.ts';
export { ITEM_AGENT } from './batches/names.ts';
export { checkSchema } from './batches/result-schema.ts';
export { COMPACTION, type CompactionMark, type CompactionTrigger } from './context/compaction.ts';
export {
  type CompactionReport,
  type CompactionRequest,
  compactHistory,
} from './context/manual-compaction.ts';
export type { MemoryCapture, MemorySource } from './context/memory-port.ts';
export { DEFAULT_SUMMARIZATION, type SummarizationSettings } from './context/summarization.ts';
export { Documents, type DocumentsOptions } from './documents/documents.ts';
export { CONVERTIBLE, type Converted } from './documents/jobs.ts';
export { type Goal, type GoalWrite, goalOf, MAX_CONTINUATIONS, MAX_OBJECTIVE, newGoal } from './goals/goal.ts';
export { canonicalise, type HistoryLimits } from './history/canonicalise.ts';
export {
  createLeadAgent,
  DEFAULT_LEAD_AGENT_SETTINGS,
  LEAD_AGENT,
  type LeadAgent,
  type LeadAgentOptions,
  type LeadAgentSettings,
} from './lead/lead-agent.ts';
export { DEFAULT_SAFEGUARDS, type SafeguardSettings } from './lead/safeguards.ts';
export { suggestQuestions } from './lead/suggestions.ts';
export { agentGraph } from './loop/attempt-graph.ts';
export { type CompiledGraph, compileGraph, createLoop, type Loop, type LoopOptions } from './loop/loop.ts';
export { defineMiddleware, type Middleware, type OwnMiddleware } from './loop/middleware.ts';
export { AttemptScope, scopeOf } from './loop/scope.ts';
export { threadChannels } from './loop/thread-channels.ts';
export { type McpCatalog, McpServers, type McpServersOptions, type ServerStatus } from './mcp/servers.ts';
export { type McpOrigin, originOf } from './mcp/tool.ts';
export { type FlushReport, Learner, type LearnerStatus } from './memory/learner.ts';
export { type FactInput, Memory, type MemoryImport, type MemoryOwner } from './memory/service.ts';
export { DEFAULT_MEMORY, MAX_FACT, type MemorySettings } from './memory/settings.ts';
export { DEFAULT_CIRCUIT_BREAKER } from './middleware/circuit-breaker.ts';
export type { FormField, HumanInputRequest } from './middleware/clarification-form.ts';
export { SAFETY_DETECTORS, type SafetyDetector } from './middleware/finish-reason.ts';
export { DEFAULT_LLM_CALL, ERROR_FALLBACK, type LlmCallSettings } from './middleware/llm-errors.ts';
export { DEFAULT_LOOP_DETECTION, type LoopDetectionSettings } from './middleware/loop-detection.ts';
export { checkOrder, ORDER_RULES, type OrderRule } from './middleware/order.ts';
export { DEFAULT_TITLE_SETTINGS, type TitleSettings } from './middleware/title.ts';
export { DEFAULT_TOKEN_BUDGET, type TokenBudgetSettings } from './middleware/token-budget.ts';
export { DEFAULT_TOOL_OUTPUT, type ToolOutputSettings } from './middleware/tool-output.ts';
export { type AskOnce, type AskUsage, askOnce } from './models/ask-once.ts';
export type { ModelEntry, ModelFactory, ModelInfo, ModelOptions } from './models/entry.ts';
export {
  type ChosenModel,
  createModelRegistry,
  isModelProvider,
  MODEL_PROVIDERS,
  type ModelChoice,
  type ModelRegistry,
  type RegistryOptions,
} from './models/registry.ts';
export { DEFAULT_TOOL_GROUPS } from './profiles/active.ts';
export {
  type AgentProfile,
  agentNameOf,
  isAgentName,
  MAX_SOUL,
  type ProfileChange,
  profileFields,
} from './profiles/profile.ts';
export { AgentProfiles, type AgentProfilesOptions } from './profiles/store.ts';
export {
  Authorization,
  type AuthorizationProvider,
  type AuthorizationSettings,
  type Grant,
  NO_AUTHORIZATION,
  type Principal,
  type Resource,
  ROLE_KEY,
  type RoleGrants,
  rbacProvider,
} from './safety/authorization.ts';
export { CHANNEL_KEY, withoutStrangers } from './safety/channels.ts';
export {
  allowlistProvider,
  type GuardrailDecision,
  type GuardrailProvider,
  type GuardrailRequest,
} from './safety/guardrails.ts';
export { neutralTags } from './safety/tags.ts';
export { type ExtraMiddleware, type Placed, withExtras } from './sdk/anchors.ts';
export {
  type AgentCall,
  type AgentFeatures,
  type AgentOptions,
  type AgentResult,
  createReindeerAgent,
  type ReindeerAgent,
} from './sdk/create-agent.ts';
export { readMember } from './skills/archive.ts';
export { isSkillName } from './skills/format.ts';
export type { AskModel } from './skills/judge.ts';
export { type Skill, type SkillCategory, SkillLibrary, type SkillSwitches } from './skills/library.ts';
export { type HistoryEntry, SkillPackages } from './skills/packages.ts';
export { skillsSection } from './skills/prompt.ts';
export {
  MAX_SECRET,
  merged as mergedSecrets,
  SECRET_MASK,
  type SecretScope,
  type SecretValues,
  type SecretView,
  SkillSecretStore,
  secretValues,
} from './skills/secret-store.ts';
export { CALLS_DROPPED, LIMIT_REASON } from './subagents/limits.ts';
export {
  readSubagentMetadata,
  type SubagentMetadata,
  type SubagentStatus,
  type SubagentStopReason,
} from './subagents/metadata.ts';
export {
  type CapacityLimits,
  type CustomSubagent,
  DEFAULT_SUBAGENTS,
  type SubagentOverride,
  type SubagentSettings,
  TASK_TOOL,
  type TokenBudget,
} from './subagents/settings.ts';
export { type SubagentOptions, Subagents } from './subagents/subagents.ts';
export { type CoreToolSettings, coreTools, DEFAULT_CORE_TOOLS } from './tools/core-tools.ts';
export { defineTool, failed, type ToolContext, type ToolDefinition } from './tools/define.ts';
export { type OwnTool, type OwnToolContext, ownTool } from './tools/own-tool.ts';
export { hiddenForms, masked } from './tools/text.ts';
export { TOOL_META, type ToolMeta } from './tools/tool-meta.ts';
export {
  DEFAULT_WEB_TOOLS,
  WEB_PROVIDERS,
  WEB_TOOLS,
  type WebToolName,
  type WebToolSettings,
  webTools,
} from './web/web-tools.ts';
