import type { JsonObject } from '@reindeer/protocol';
import type { ScriptMessage, ScriptRequest, ScriptToolCall } from '../script.ts';
import type { DemoWords } from './words.ts';

/** Characters of a tool's output that an answer repeats. */
const SHOWN = 6_000;

/** A request as the demo model looks at it. */
export interface Scene {
  readonly request: ScriptRequest;
  readonly words: DemoWords;
  readonly asked: string;
  /** The newest message of the user with all that the harness put around it. */
  readonly raw: string;
  readonly before: readonly ScriptMessage[];
  /** Tool results since the user spoke. */
  readonly results: readonly ScriptMessage[];
}

export function offers(scene: Scene, tool: string): boolean {
  return scene.request.tools.some((offered) => offered.name === tool);
}

/** Tools of MCP servers have the name of their server before their own: the end will do where it is one tool's. */
export function nameOf(scene: Scene, asked: string): string {
  if (offers(scene, asked)) return asked;
  const ending = scene.request.tools.filter(({ name }) => name.endsWith(`_${asked}`));
  return ending.length === 1 && ending[0] !== undefined ? ending[0].name : asked;
}

/** Fills in `description`, which most tools want, only where the tool knows it. */
export function callOf(scene: Scene, name: string, args: JsonObject): ScriptToolCall {
  const tool = scene.request.tools.find((offered) => offered.name === name);
  const known = tool?.parameters.properties;
  const wantsDescription = typeof known === 'object' && known !== null && 'description' in known;
  return { name, args: wantsDescription ? { description: `Demo: ${name}`, ...args } : args };
}

/** Where the tools are told to speak of `/mnt/user-data`, paths are absolute; else relative to the workspace, beside which the other folders lie. */
export function root(scene: Scene): string {
  return isVirtual(scene) ? '/mnt/user-data' : '..';
}

export function place(scene: Scene, path: string): string {
  if (path.startsWith('/') || path.startsWith('.')) return path;
  const inFolder = path.includes('/') ? path : `outputs/${path}`;
  return isVirtual(scene) ? `/mnt/user-data/${inFolder}` : `../${inFolder}`;
}

function isVirtual(scene: Scene): boolean {
  const said = [
    ...scene.request.messages.filter((message) => message.role === 'system').map((message) => message.text),
    ...scene.request.tools.map((tool) => `${tool.description} ${JSON.stringify(tool.parameters)}`),
  ].join('\n');
  return said.includes('/mnt/user-data') || !/\brelative\b/i.test(said);
}

export function hasFailed(result: ScriptMessage): boolean {
  return result.failed || /^error\b/i.test(result.text.trim());
}

export function shorten(text: string, length = 200): string {
  const line = text.replace(/\s+/g, ' ').trim();
  const characters = [...line];
  return characters.length <= length ? line : `${characters.slice(0, length - 1).join('')}…`;
}

/** Tool output as the answer repeats it. */
export function shown(text: string): string {
  const trimmed = text.trimEnd();
  return trimmed.length <= SHOWN ? trimmed : `${trimmed.slice(0, SHOWN)}\n…`;
}
