export { type AskForItem, askForItems } from './batches/acceptance.ts';
export { createItemExecutor } from './batches/executor.ts';
export { decodeTable, formatOf, itemsOfRows, readRows } from './batches/items.ts';
export { checkSchema } from './batches/result-schema.ts';
export type { CompactionTrigger } from './context/compaction.ts';
export { type CompactionReport, compactHistory } from './context/manual-compaction.ts';
export type { MemoryCapture, MemorySource } from './context/memory-port.ts';
export type { SummarizationSettings } from './context/summarization.ts';
export { Documents } from './documents/documents.ts';
export { CONVERTIBLE, type Converted } from './documents/jobs.ts';
export { goalOf, MAX_CONTINUATIONS, MAX_OBJECTIVE, newGoal } from './goals/goal.ts';
export {
  createLeadAgent,
  DEFAULT_LEAD_AGENT_SETTINGS,
  type LeadAgent,
  type LeadAgentOptions,
} from './lead/lead-agent.ts';
export { DEFAULT_SAFEGUARDS, type SafeguardSettings } from './lead/safeguards.ts';
export { suggestQuestions } from './lead/suggestions.ts';
export { defineMiddleware, type Middleware, type OwnMiddleware } from './loop/middleware.ts';
export { McpServers } from './mcp/servers.ts';
export { Learner, type LearnerStatus } from './memory/learner.ts';
export { type FactInput, Memory, type MemoryImport, type MemoryOwner } from './memory/service.ts';
export { DEFAULT_MEMORY, type MemorySettings } from './memory/settings.ts';
export { DEFAULT_CIRCUIT_BREAKER } from './middleware/circuit-breaker.ts';
export type { SafetyDetector } from './middleware/finish-reason.ts';
export { DEFAULT_LLM_CALL, type LlmCallSettings } from './middleware/llm-errors.ts';
export { DEFAULT_TITLE_SETTINGS, type TitleSettings } from './middleware/title.ts';
export { askOnce } from './models/ask-once.ts';
export type { ModelEntry, ModelFactory, ModelInfo, ModelOptions } from './models/entry.ts';
export { createModelRegistry, isModelProvider, MODEL_PROVIDERS, type ModelRegistry } from './models/registry.ts';
export { type AgentProfile, isAgentName, MAX_SOUL, type ProfileChange, profileFields } from './profiles/profile.ts';
export { AgentProfiles } from './profiles/store.ts';
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
export { withoutStrangers } from './safety/channels.ts';
export {
  allowlistProvider,
  type GuardrailDecision,
  type GuardrailProvider,
  type GuardrailRequest,
} from './safety/guardrails.ts';
export type { ExtraMiddleware, Placed } from './sdk/anchors.ts';
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
export { type Skill, SkillLibrary } from './skills/library.ts';
export { type HistoryEntry, SkillPackages } from './skills/packages.ts';
export { skillsSection } from './skills/prompt.ts';
export {
  MAX_SECRET,
  merged as mergedSecrets,
  SECRET_MASK,
  type SecretValues,
  SkillSecretStore,
  secretValues,
} from './skills/secret-store.ts';
export {
  type CustomSubagent,
  DEFAULT_SUBAGENTS,
  type SubagentOverride,
  type SubagentSettings,
  type TokenBudget,
} from './subagents/settings.ts';
export { Subagents } from './subagents/subagents.ts';
export { type CoreToolSettings, DEFAULT_CORE_TOOLS } from './tools/core-tools.ts';
export { defineTool } from './tools/define.ts';
export { type OwnTool, type OwnToolContext, ownTool } from './tools/own-tool.ts';
export { hiddenForms, masked } from './tools/text.ts';
export {
  DEFAULT_WEB_TOOLS,
  WEB_PROVIDERS,
  WEB_TOOLS,
  type WebToolName,
  type WebToolSettings,
  webTools,
} from './web/web-tools.ts';
