import { join } from 'node:path';
import { AgentProfiles, type Memory } from '@reindeer/agent';
import { DEFAULT_USER, type Surroundings } from '@reindeer/protocol';
import { safeUserId } from '@reindeer/sandbox';
import type { Settings } from './config/settings.ts';
import { agentRoutes } from './http/agents.ts';
import type { HttpParts } from './http/parts.ts';
import type { Api } from './http/route.ts';

export interface CustomAgents {
  readonly profiles: AgentProfiles;
  readonly http: NonNullable<HttpParts['agents']>;
  readonly modules: readonly ((api: Api) => void)[];
}

/** The users' own agents, in the data folder (CA-1). Runs may use them whether or not they can be managed over HTTP. */
export function createCustomAgents(parts: {
  /** As they are now. */
  readonly settings: () => Settings;
  readonly surroundings: Surroundings;
  /** Names of the models that are configured now. */
  readonly models: () => readonly string[];
  readonly memory: Memory | null;
}): CustomAgents {
  const { settings, surroundings, models, memory } = parts;
  const { home } = settings();
  const folderOf = (userId: string): string => join(home, 'users', safeUserId(userId));
  const profiles = new AgentProfiles({
    folder: (userId) => join(folderOf(userId), 'agents'),
    legacyFolder: join(home, 'agents'),
    defaultSoul: join(home, 'SOUL.md'),
    // One person's profile is nobody else's: only the user of a server without accounts has the one in the data folder itself.
    userProfile: (userId) => join(userId === DEFAULT_USER ? home : folderOf(userId), 'USER.md'),
    ...surroundings,
  });
  return {
    profiles,
    http: {
      get api() {
        return settings().agentsApi;
      },
      list: (userId) => profiles.list(userId),
      exists: async (userId, name) => (await profiles.get(userId, name)) !== null,
    },
    modules: [
      (api) =>
        agentRoutes(api, {
          profiles,
          get enabled() {
            return settings().agentsApi;
          },
          get models() {
            return models();
          },
          onDeleted: async (userId, agentName) => await memory?.clear({ userId, agentName }),
        }),
    ],
  };
}
