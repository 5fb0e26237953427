export { createAgents, warmUp } from './agents.ts';
export { type Agents, compose } from './compose.ts';
export { loadConfig } from './config/load.ts';
export { resolveSettings } from './config/settings.ts';
export { type EmbeddedServer, type EmbedOptions, embed } from './embed.ts';
export { Lifecycle } from './life/lifecycle.ts';
export { createLogger } from './log.ts';
export { resourcesOf } from './resources.ts';
