import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import {
  type AskModel,
  type Documents,
  McpServers,
  mergedSecrets,
  type SecretValues,
  SkillLibrary,
  SkillPackages,
  SkillSecretStore,
  secretValues,
} from '@reindeer/agent';
import { type JsonObject, ReindeerError, type SandboxProvider, type Surroundings } from '@reindeer/protocol';
import { safeUserId, skillFolders } from '@reindeer/sandbox';
import { ExtensionsFile } from './config/extensions.ts';
import type { Settings } from './config/settings.ts';
import { substitute, type Variables } from './config/substitute.ts';
import { mcpRoutes } from './http/mcp.ts';
import type { Api } from './http/route.ts';
import { skillRoutes } from './http/skills.ts';
import type { Resources } from './resources.ts';

/** What people add to the agents while the server runs: skills and MCP servers. */
export interface Extensions {
  readonly skills: SkillLibrary;
  /** Values for what skills declare. */
  readonly secrets: SkillSecretStore;
  readonly mcp: McpServers;
  readonly modules: readonly ((api: Api) => void)[];
}

/** @throws ReindeerError `configuration` when `extensions_config.json` cannot be read */
export async function createExtensions(parts: {
  /** As they are now. */
  readonly now: () => { readonly settings: Settings; readonly variables: Variables };
  readonly surroundings: Surroundings;
  readonly resources: Resources;
  readonly documents: Documents;
  readonly sandboxes: SandboxProvider;
  /** The model that judges skills now; null = there is only the demo model, which cannot. */
  readonly judge: () => AskModel | null;
}): Promise<Extensions> {
  const { now, surroundings, resources } = parts;
  // What of them is used here does not change while the process runs.
  const { settings, variables } = now();
  const { clock, logger } = surroundings;
  const extensions = new ExtensionsFile({
    root: settings.root,
    variables: () => now().variables,
    overrides: () => now().settings.extensions,
  });
  await extensions.check();
  const skills = new SkillLibrary({
    publicFolders: [join(settings.skills.folder, 'public'), resources.skillsFolder],
    legacyFolder: join(settings.home, 'skills/custom'),
    folders: (userId) => skillFolders(settings.home, userId),
    switches: {
      read: async () => switchesOf((await extensions.resolved()).skills),
      set: async (name, enabled) => {
        await extensions.update('skills', (before) => changedSkill(before, name, () => ({ enabled })));
      },
    },
    clock,
    logger,
  });
  const secrets = new SkillSecretStore({
    file: (userId) => skillFolders(settings.home, userId).secrets,
    shared: {
      read: async () => sharedSecrets((await extensions.resolved()).skills),
      set: async (name, values) => {
        checkPlain(values);
        await extensions.update('skills', (before) =>
          changedSkill(before, name, (skill) => ({
            secrets: mergedSecrets(secretValues({ '': skill.secrets })[''] ?? {}, values),
          })),
        );
      },
    },
    clock,
  });
  const packages = new SkillPackages({
    library: skills,
    secrets,
    folders: (userId) => skillFolders(settings.home, userId),
    documents: parts.documents,
    get scan() {
      return now().settings.skills.scan;
    },
    get ask() {
      return parts.judge();
    },
    get failClosed() {
      return now().settings.skills.failClosed;
    },
    clock,
    logger,
    random: surroundings.random,
  });
  const mcp = new McpServers({
    read: async () => (await extensions.resolved()).mcpServers,
    folder: (thread) => workingFolder(settings.home, thread),
    environment: variables,
    ...surroundings,
  });
  return {
    skills,
    secrets,
    mcp,
    modules: [
      (api) => mcpRoutes(api, { extensions, servers: mcp, variables }),
      (api) =>
        skillRoutes(api, { library: skills, packages, secrets, files: (thread) => parts.sandboxes.files(thread) }),
    ],
  };
}

type Switches = Record<string, { readonly enabled?: boolean }>;

const switchesOf = (section: unknown): Switches =>
  typeof section === 'object' && section !== null && !Array.isArray(section) ? (section as Switches) : {};

/** The section with other keys for one skill; what else is said of it stays. */
function changedSkill(section: unknown, name: string, change: (skill: JsonObject) => JsonObject): JsonObject {
  const skills = (section ?? {}) as JsonObject;
  const before = Object.hasOwn(skills, name) ? skills[name] : undefined;
  const skill = (typeof before === 'object' && before !== null && !Array.isArray(before) ? before : {}) as JsonObject;
  return { ...skills, [name]: { ...skill, ...change(skill) } };
}

/** `skills.{name}.secrets` of `extensions_config.json`. */
const sharedSecrets = (section: unknown): SecretValues =>
  secretValues(
    Object.fromEntries(
      Object.entries(switchesOf(section)).map(([name, skill]) => [
        name,
        (skill as { secrets?: unknown } | null)?.secrets,
      ]),
    ),
  );

/** A client that writes the name of a variable would get the server's own environment into a sandbox. */
function checkPlain(values: Readonly<Record<string, string | null>>): void {
  for (const [name, value] of Object.entries(values))
    if (value !== null && substitute(value, {}, () => '') !== value)
      throw new ReindeerError(
        'validation_failed',
        `${name}: a value that names a variable of the server can only be written into extensions_config.json by hand.`,
        { detail: { field: name } },
      );
}

/** A server works in the folder of its conversation (MCP-3); while it is only asked for its tools, in one of its own. */
async function workingFolder(
  home: string,
  thread: { readonly userId: string; readonly threadId: string } | null,
): Promise<string> {
  const folder =
    thread === null
      ? join(home, 'mcp')
      : join(home, 'users', safeUserId(thread.userId), 'threads', thread.threadId, 'user-data/workspace');
  await mkdir(folder, { recursive: true, mode: 0o700 });
  return folder;
}
