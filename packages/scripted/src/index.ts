export { DEMO_MODEL, demoScript } from './demo/demo.ts';
export type { JournalEntry } from './journal.ts';
export {
  ScriptedChatModel,
  type ScriptedChatModelCallOptions,
  type ScriptedChatModelFields,
  ScriptedProviderError,
} from './model.ts';
export {
  type AttemptCounter,
  byCaller,
  conversationKey,
  type Fault,
  type Script,
  type ScriptMessage,
  ScriptMiss,
  type ScriptRequest,
  type ScriptTool,
  type ScriptToolCall,
  type Turn,
  turns,
} from './script.ts';
export {
  CALLER_HEADER,
  DEFAULT_CALLER,
  type ScriptedProvider,
  type ScriptedProviderOptions,
  startScriptedProvider,
} from './server.ts';
