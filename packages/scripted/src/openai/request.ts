import type { JsonObject } from '@reindeer/protocol';
import { asArray, asObject, asText, parseObject, Refusal } from '../checking.ts';
import { nameToolResults, type ScriptMessage, type ScriptTool } from '../script.ts';

export interface OpenAiRequest {
  readonly model: string;
  readonly stream: boolean;
  readonly includeUsage: boolean;
  readonly messages: readonly ScriptMessage[];
  readonly tools: readonly ScriptTool[];
}

const TOOL_NAME = /^[A-Za-z0-9_-]{1,64}$/;

/**
 * Reads a chat completions request as strictly as the real service does, with one rule of its stricter relatives: the
 * arguments of earlier calls must be JSON objects. `demandReasoning`: since the newest user message, an assistant message with
 * calls must bring its `reasoning_content` back, as thinking providers of this format require.
 * @throws Refusal that says what is wrong, for the 400.
 */
export function readOpenAiRequest(body: JsonObject, demandReasoning: boolean): OpenAiRequest {
  const model = asText(body.model, 'model');
  const stream = body.stream === true;
  if (body.stream_options !== undefined && body.stream_options !== null && !stream) {
    throw new Refusal("The 'stream_options' parameter is only allowed when 'stream' is enabled.", 'stream_options');
  }
  const options =
    body.stream_options === undefined || body.stream_options === null
      ? {}
      : asObject(body.stream_options, 'stream_options');
  const list = asArray(body.messages, 'messages');
  if (list.length === 0) throw new Refusal("'messages' must hold at least one message.", 'messages');
  const messages = list.map((entry, index) => readMessage(asObject(entry, `messages[${index}]`), index));
  checkPairs(messages);
  if (demandReasoning) checkReasoning(messages);
  return {
    model,
    stream,
    includeUsage: options.include_usage === true,
    messages: nameToolResults(messages),
    tools: readTools(body),
  };
}

function readMessage(message: JsonObject, index: number): ScriptMessage {
  const where = `messages[${index}]`;
  const base = { toolCalls: [], toolCallId: null, toolName: null, failed: false, reasoning: null };
  switch (message.role) {
    case 'system':
    case 'developer':
      return { ...base, role: 'system', text: readContent(message.content, `${where}.content`) };
    case 'user':
      return { ...base, role: 'user', text: readContent(message.content, `${where}.content`) };
    case 'tool':
      return {
        ...base,
        role: 'tool',
        text: readContent(message.content, `${where}.content`),
        toolCallId: asText(message.tool_call_id, `${where}.tool_call_id`),
        failed: false,
      };
    case 'assistant': {
      const toolCalls = readCalls(message, where);
      const empty = message.content === null || message.content === undefined;
      if (empty && toolCalls.length === 0) {
        throw new Refusal(`${where}: an assistant message needs content or tool_calls.`, `${where}.content`);
      }
      const text =
        empty || (message.content === '' && toolCalls.length > 0)
          ? ''
          : readContent(message.content, `${where}.content`);
      return {
        ...base,
        role: 'assistant',
        text,
        toolCalls,
        reasoning: typeof message.reasoning_content === 'string' ? message.reasoning_content : null,
      };
    }
    default:
      throw new Refusal(`${where}.role: ${JSON.stringify(message.role ?? null)} is no role.`, `${where}.role`);
  }
}

function readCalls(message: JsonObject, where: string): ScriptMessage['toolCalls'] {
  if (message.tool_calls === undefined || message.tool_calls === null) return [];
  const list = asArray(message.tool_calls, `${where}.tool_calls`);
  if (list.length === 0)
    throw new Refusal(`${where}.tool_calls: an empty array is not allowed.`, `${where}.tool_calls`);
  const seen = new Set<string>();
  return list.map((entry, index) => {
    const path = `${where}.tool_calls[${index}]`;
    const call = asObject(entry, path);
    if (call.type !== 'function') throw new Refusal(`${path}.type must be 'function'.`, `${path}.type`);
    const id = asText(call.id, `${path}.id`);
    if (seen.has(id)) throw new Refusal(`${path}.id: the id "${id}" stands twice in one message.`, `${path}.id`);
    seen.add(id);
    const target = asObject(call.function, `${path}.function`);
    const name = asText(target.name, `${path}.function.name`);
    if (!TOOL_NAME.test(name))
      throw new Refusal(`${path}.function.name: "${name}" does not fit ${TOOL_NAME}.`, `${path}.function.name`);
    if (typeof target.arguments !== 'string') throw new Refusal(`${path}.function.arguments must be a string.`, path);
    const args = parseObject(target.arguments);
    if (args === null) throw new Refusal(`${path}.function.arguments must be the JSON text of an object.`, path);
    return { id, name, args };
  });
}

function readContent(content: unknown, where: string): string {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) throw new Refusal(`${where} must be text or an array of parts.`, where);
  if (content.length === 0) throw new Refusal(`${where}: an empty array is not allowed.`, where);
  let text = '';
  content.forEach((entry, index) => {
    const part = asObject(entry, `${where}[${index}]`);
    if (part.type === 'text') {
      if (typeof part.text !== 'string') throw new Refusal(`${where}[${index}].text must be text.`, where);
      text += part.text;
    } else if (part.type === 'image_url') {
      asText(asObject(part.image_url, `${where}[${index}].image_url`).url, `${where}[${index}].image_url.url`);
    } else if (part.type !== 'input_audio' && part.type !== 'file' && part.type !== 'refusal') {
      throw new Refusal(`${where}[${index}].type: ${JSON.stringify(part.type ?? null)} is no content type.`, where);
    }
  });
  return text;
}

function readTools(body: JsonObject): ScriptTool[] {
  if (body.tools === undefined || body.tools === null) {
    if (body.tool_choice !== undefined && body.tool_choice !== null && body.tool_choice !== 'none') {
      throw new Refusal("'tool_choice' is only allowed when 'tools' are given.", 'tool_choice');
    }
    return [];
  }
  const list = asArray(body.tools, 'tools');
  if (list.length === 0) throw new Refusal("'tools': an empty array is not allowed.", 'tools');
  const names = new Set<string>();
  return list.map((entry, index) => {
    const tool = asObject(entry, `tools[${index}]`);
    if (tool.type !== 'function') throw new Refusal(`tools[${index}].type must be 'function'.`, 'tools');
    const target = asObject(tool.function, `tools[${index}].function`);
    const name = asText(target.name, `tools[${index}].function.name`);
    if (!TOOL_NAME.test(name))
      throw new Refusal(`tools[${index}].function.name: "${name}" does not fit ${TOOL_NAME}.`, 'tools');
    if (names.has(name)) throw new Refusal(`tools[${index}].function.name: "${name}" stands twice.`, 'tools');
    names.add(name);
    return {
      name,
      description: typeof target.description === 'string' ? target.description : '',
      parameters:
        target.parameters === undefined ? {} : asObject(target.parameters, `tools[${index}].function.parameters`),
    };
  });
}

/** Each call is answered right after its message, by exactly one tool message; no other tool message may stand anywhere. */
function checkPairs(messages: readonly ScriptMessage[]): void {
  let open = new Set<string>();
  messages.forEach((message, index) => {
    if (message.role === 'tool') {
      if (!open.delete(message.toolCallId ?? '')) {
        throw new Refusal(
          `messages[${index}]: a message with role 'tool' must answer a call of the assistant message before it; "${message.toolCallId}" is none that is open.`,
          `messages[${index}].tool_call_id`,
        );
      }
      return;
    }
    refuseOpen(open, index);
    open = new Set(message.toolCalls.map((call) => call.id));
  });
  refuseOpen(open, messages.length);
}

function refuseOpen(open: ReadonlySet<string>, index: number): void {
  if (open.size === 0) return;
  throw new Refusal(
    `An assistant message with 'tool_calls' must be followed by tool messages for each 'tool_call_id'; before messages[${index}] these are missing: ${[...open].join(', ')}.`,
    'messages',
  );
}

function checkReasoning(messages: readonly ScriptMessage[]): void {
  const newest = messages.findLastIndex((message) => message.role === 'user');
  messages.forEach((message, index) => {
    if (index > newest && message.toolCalls.length > 0 && message.reasoning === null) {
      throw new Refusal(
        `messages[${index}]: the 'reasoning_content' of the thinking mode must be passed back.`,
        `messages[${index}].reasoning_content`,
      );
    }
  });
}
