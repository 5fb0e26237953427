import { createHash } from 'node:crypto';
import type { JsonObject } from '@reindeer/protocol';
import { asArray, asObject, asText, Refusal } from '../checking.ts';
import { nameToolResults, type ScriptMessage, type ScriptTool } from '../script.ts';

export interface AnthropicRequest {
  readonly model: string;
  readonly stream: boolean;
  readonly thinking: boolean;
  readonly messages: readonly ScriptMessage[];
  readonly tools: readonly ScriptTool[];
}

const TOOL_NAME = /^[A-Za-z0-9_-]{1,128}$/;
const TOOL_ID = /^[A-Za-z0-9_-]+$/;

/** The signature that this provider puts on a thinking block; a block that comes back must carry the right one. */
export function signThinking(text: string): string {
  return createHash('sha256').update(`scripted thinking\n${text}`).digest('base64url').slice(0, 32);
}

/**
 * Reads a messages request as strictly as the real service does. Neighbours with one role count as one turn.
 * @throws Refusal that says what is wrong, for the 400.
 */
export function readAnthropicRequest(body: JsonObject): AnthropicRequest {
  const model = asText(body.model, 'model');
  const maxTokens = body.max_tokens;
  if (typeof maxTokens !== 'number' || !Number.isInteger(maxTokens) || maxTokens < 1) {
    throw new Refusal('max_tokens: Field required, a whole number of at least 1.', 'max_tokens');
  }
  const thinking = readThinking(body, maxTokens);
  const list = asArray(body.messages, 'messages');
  if (list.length === 0) throw new Refusal('messages: at least one message is required', 'messages');
  const groups = joinNeighbours(list);
  if (groups[0]?.role !== 'user') throw new Refusal('messages: first message must use the "user" role', 'messages');
  const tools = readTools(body);
  const messages = readGroups(groups, thinking, tools.length > 0);
  const system = readSystem(body.system);
  return {
    model,
    stream: body.stream === true,
    thinking,
    messages: nameToolResults(system === '' ? messages : [{ ...PLAIN, role: 'system', text: system }, ...messages]),
    tools,
  };
}

const PLAIN = { toolCalls: [], toolCallId: null, toolName: null, failed: false, reasoning: null } as const;

interface Group {
  readonly role: 'user' | 'assistant';
  readonly blocks: JsonObject[];
  readonly where: string;
}

function joinNeighbours(list: readonly unknown[]): Group[] {
  const groups: Group[] = [];
  list.forEach((entry, index) => {
    const where = `messages.${index}`;
    const message = asObject(entry, where);
    const role = message.role;
    if (role !== 'user' && role !== 'assistant') {
      throw new Refusal(`${where}.role: Input should be 'user' or 'assistant'`, `${where}.role`);
    }
    const blocks = readBlocks(message.content, where, role === 'assistant' && index === list.length - 1);
    const last = groups.at(-1);
    if (last?.role === role) last.blocks.push(...blocks);
    else groups.push({ role, blocks: [...blocks], where });
  });
  return groups;
}

function readBlocks(content: unknown, where: string, mayBeEmpty: boolean): JsonObject[] {
  if (typeof content === 'string') {
    if (content === '' && !mayBeEmpty) {
      throw new Refusal(
        `${where}: all messages must have non-empty content except for the optional final assistant message`,
        where,
      );
    }
    if (content !== '' && content.trim() === '') {
      throw new Refusal(`${where}: text content blocks must contain non-whitespace text`, where);
    }
    return content === '' ? [] : [{ type: 'text', text: content }];
  }
  const list = asArray(content, `${where}.content`);
  if (list.length === 0 && !mayBeEmpty) {
    throw new Refusal(
      `${where}: all messages must have non-empty content except for the optional final assistant message`,
      where,
    );
  }
  return list.map((entry, index) => {
    const path = `${where}.content.${index}`;
    const block = asObject(entry, path);
    if (block.type === 'text') {
      if (typeof block.text !== 'string') throw new Refusal(`${path}.text: Field required`, path);
      if (block.text === '') throw new Refusal(`${where}: text content blocks must be non-empty`, path);
      if (block.text.trim() === '')
        throw new Refusal(`${where}: text content blocks must contain non-whitespace text`, path);
    }
    return block;
  });
}

/** Turns groups into messages; each `tool_use` must be answered in the very next user turn, results standing first. */
function readGroups(groups: readonly Group[], thinking: boolean, hasTools: boolean): ScriptMessage[] {
  const messages: ScriptMessage[] = [];
  const allIds = new Set<string>();
  let open = new Set<string>();
  for (const [index, group] of groups.entries()) {
    if (group.role === 'assistant') {
      const isFinal = index >= groups.length - 2;
      const message = readAssistant(group, allIds, thinking && isFinal);
      if (message.toolCalls.length > 0 && !hasTools) {
        throw new Refusal(
          'tools: Requests which include `tool_use` or `tool_result` blocks must define tools',
          'tools',
        );
      }
      open = new Set(message.toolCalls.map((call) => call.id));
      messages.push(message);
      if (index === groups.length - 1) checkPrefill(message, group);
      continue;
    }
    messages.push(...readUser(group, open));
    if (open.size > 0) {
      throw new Refusal(
        `${group.where}: \`tool_use\` ids were found without \`tool_result\` blocks immediately after: ${[...open].join(', ')}. Each \`tool_use\` block must have a corresponding \`tool_result\` block in the next message.`,
        group.where,
      );
    }
  }
  if (open.size > 0) {
    throw new Refusal(
      `messages: \`tool_use\` ids were found without \`tool_result\` blocks immediately after: ${[...open].join(', ')}.`,
      'messages',
    );
  }
  return messages;
}

function checkPrefill(message: ScriptMessage, group: Group): void {
  if (message.text !== message.text.trimEnd()) {
    throw new Refusal(`${group.where}: final assistant content cannot end with trailing whitespace`, group.where);
  }
}

function readAssistant(group: Group, allIds: Set<string>, mustThink: boolean): ScriptMessage {
  let text = '';
  let reasoning: string | null = null;
  const toolCalls: { id: string; name: string; args: JsonObject | null }[] = [];
  group.blocks.forEach((block, index) => {
    const path = `${group.where}.content.${index}`;
    switch (block.type) {
      case 'text':
        text += String(block.text);
        break;
      case 'tool_use': {
        const id = asText(block.id, `${path}.tool_use.id`);
        if (!TOOL_ID.test(id))
          throw new Refusal(`${path}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'`, path);
        if (allIds.has(id)) throw new Refusal(`${path}: \`tool_use\` ids must be unique`, path);
        allIds.add(id);
        const name = asText(block.name, `${path}.tool_use.name`);
        if (!TOOL_NAME.test(name)) throw new Refusal(`${path}.tool_use.name: "${name}" is no tool name`, path);
        toolCalls.push({ id, name, args: asObject(block.input, `${path}.tool_use.input`) });
        break;
      }
      case 'thinking': {
        if (typeof block.thinking !== 'string') throw new Refusal(`${path}.thinking.thinking: Field required`, path);
        if (typeof block.signature !== 'string') throw new Refusal(`${path}.thinking.signature: Field required`, path);
        if (block.signature !== signThinking(block.thinking)) {
          throw new Refusal(`${path}: Invalid \`signature\` in \`thinking\` block`, path);
        }
        reasoning = (reasoning ?? '') + block.thinking;
        break;
      }
      case 'redacted_thinking':
        reasoning ??= '';
        break;
      case 'tool_result':
        throw new Refusal(`${path}: \`tool_result\` blocks can only be in \`user\` messages`, path);
      default:
        throw new Refusal(`${path}.type: ${JSON.stringify(block.type ?? null)} is not allowed here`, path);
    }
  });
  const first = group.blocks[0]?.type;
  if (mustThink && toolCalls.length > 0 && first !== 'thinking' && first !== 'redacted_thinking') {
    throw new Refusal(
      `${group.where}.content.0.type: Expected \`thinking\` or \`redacted_thinking\`, but found \`${String(first)}\`. When \`thinking\` is enabled, a final \`assistant\` message must start with a thinking block.`,
      group.where,
    );
  }
  return { ...PLAIN, role: 'assistant', text, toolCalls, reasoning };
}

function readUser(group: Group, open: Set<string>): ScriptMessage[] {
  const results: ScriptMessage[] = [];
  let text = '';
  let other = false;
  group.blocks.forEach((block, index) => {
    const path = `${group.where}.content.${index}`;
    switch (block.type) {
      case 'tool_result': {
        const id = asText(block.tool_use_id, `${path}.tool_result.tool_use_id`);
        if (!open.delete(id)) {
          throw new Refusal(
            `${path}: unexpected \`tool_use_id\` found in \`tool_result\` blocks: ${id}. Each \`tool_result\` block must have a corresponding \`tool_use\` block in the previous message.`,
            path,
          );
        }
        if (other) throw new Refusal(`${path}: \`tool_result\` blocks must come before other content`, path);
        results.push({
          ...PLAIN,
          role: 'tool',
          text: readResult(block.content, path),
          toolCallId: id,
          failed: block.is_error === true,
        });
        break;
      }
      case 'text':
        text += String(block.text);
        other = true;
        break;
      case 'image':
      case 'document':
        other = true;
        break;
      default:
        throw new Refusal(`${path}.type: ${JSON.stringify(block.type ?? null)} is not allowed here`, path);
    }
  });
  return other ? [...results, { ...PLAIN, role: 'user', text }] : results;
}

function readResult(content: unknown, path: string): string {
  if (content === undefined) return '';
  if (typeof content === 'string') return content;
  let text = '';
  for (const entry of asArray(content, `${path}.tool_result.content`)) {
    const block = asObject(entry, `${path}.tool_result.content`);
    if (block.type === 'text') {
      if (typeof block.text !== 'string' || block.text === '')
        throw new Refusal(`${path}: text content blocks must be non-empty`, path);
      text += block.text;
    } else if (block.type !== 'image' && block.type !== 'document' && block.type !== 'search_result') {
      throw new Refusal(`${path}.tool_result.content: ${JSON.stringify(block.type ?? null)} is not allowed here`, path);
    }
  }
  return text;
}

function readSystem(system: unknown): string {
  if (system === undefined || system === null) return '';
  if (typeof system === 'string') return system;
  return asArray(system, 'system')
    .map((entry, index) => {
      const block = asObject(entry, `system.${index}`);
      if (block.type !== 'text' || typeof block.text !== 'string')
        throw new Refusal(`system.${index}: only text blocks are allowed`, 'system');
      if (block.text === '') throw new Refusal('system: text content blocks must be non-empty', 'system');
      return block.text;
    })
    .join('\n');
}

function readThinking(body: JsonObject, maxTokens: number): boolean {
  if (body.thinking === undefined || body.thinking === null) return false;
  const thinking = asObject(body.thinking, 'thinking');
  if (thinking.type === 'disabled') return false;
  if (thinking.type === 'adaptive') return true;
  if (thinking.type !== 'enabled')
    throw new Refusal("thinking.type: Input should be 'enabled', 'adaptive' or 'disabled'", 'thinking');
  const budget = thinking.budget_tokens;
  if (typeof budget !== 'number' || budget < 1024) {
    throw new Refusal('thinking.enabled.budget_tokens: Input should be greater than or equal to 1024', 'thinking');
  }
  if (budget >= maxTokens)
    throw new Refusal('`max_tokens` must be greater than `thinking.budget_tokens`', 'max_tokens');
  if (body.temperature !== undefined && body.temperature !== null && body.temperature !== 1) {
    throw new Refusal('`temperature` may only be set to 1 when thinking is enabled', 'temperature');
  }
  return true;
}

function readTools(body: JsonObject): ScriptTool[] {
  if (body.tools === undefined || body.tools === null) return [];
  const names = new Set<string>();
  return asArray(body.tools, 'tools').map((entry, index) => {
    const tool = asObject(entry, `tools.${index}`);
    const name = asText(tool.name, `tools.${index}.name`);
    if (!TOOL_NAME.test(name)) throw new Refusal(`tools.${index}.name: "${name}" is no tool name`, 'tools');
    if (names.has(name)) throw new Refusal('tools: Tool names must be unique.', 'tools');
    names.add(name);
    const parameters = asObject(tool.input_schema, `tools.${index}.input_schema`);
    if (parameters.type !== 'object')
      throw new Refusal(`tools.${index}.input_schema.type: Input should be 'object'`, 'tools');
    return { name, description: typeof tool.description === 'string' ? tool.description : '', parameters };
  });
}
