import {
  AIMessage,
  AIMessageChunk,
  type BaseMessage,
  ChatMessage,
  ChatMessageChunk,
  FunctionMessage,
  FunctionMessageChunk,
  HumanMessage,
  HumanMessageChunk,
  RemoveMessage,
  SystemMessage,
  SystemMessageChunk,
  ToolMessage,
  ToolMessageChunk,
} from '@langchain/core/messages';
import type { Json, WireMessage } from '@reindeer/protocol';
import { encodeValue } from './encode.ts';

/**
 * The stored body of a message is the dictionary that clients get (`{"type":"ai","id":…,"content":…}`), so that a stream can
 * splice it as it is. Empty fields are left out. A class without such a form is stored as LangChain serializes it
 * (`{"lc":1,…}`).
 */

/** LangChain's constructors take many shapes of fields; ours are plain JSON. */
type MessageClass = (new (fields: never) => BaseMessage) & { lc_name?: () => string };

/** Wire type of each class that has one. */
const WIRE_CLASSES: readonly (readonly [MessageClass, string, string])[] = [
  [HumanMessage, 'HumanMessage', 'human'],
  [AIMessage, 'AIMessage', 'ai'],
  [SystemMessage, 'SystemMessage', 'system'],
  [ToolMessage, 'ToolMessage', 'tool'],
  [AIMessageChunk, 'AIMessageChunk', 'AIMessageChunk'],
];
const BY_TYPE = new Map<string, MessageClass>(WIRE_CLASSES.map(([made, , type]) => [type, made]));

/** Classes stored in LangChain's serialized form that can be made without its asynchronous loader. */
const SERIALIZED_CLASSES: ReadonlyMap<string, MessageClass> = new Map<string, MessageClass>([
  ['HumanMessageChunk', HumanMessageChunk],
  ['SystemMessageChunk', SystemMessageChunk],
  ['ToolMessageChunk', ToolMessageChunk as MessageClass],
  ['ChatMessage', ChatMessage as MessageClass],
  ['ChatMessageChunk', ChatMessageChunk as MessageClass],
  ['FunctionMessage', FunctionMessage as MessageClass],
  ['FunctionMessageChunk', FunctionMessageChunk],
]);

/** Order of the keys in a body; it is part of the content address. */
const FIELDS = [
  'name',
  'tool_calls',
  'invalid_tool_calls',
  'tool_call_chunks',
  'tool_call_id',
  'status',
  'artifact',
  'metadata',
  'additional_kwargs',
  'response_metadata',
  'usage_metadata',
] as const;

/** The wire type of a message of exactly a known class, or null. Another copy of LangChain is known by its `lc_name`. */
function wireType(message: BaseMessage): string | null {
  const prototype = Object.getPrototypeOf(message) as { constructor?: MessageClass };
  for (const [known, , type] of WIRE_CLASSES) if (prototype === known.prototype) return type;
  if (message.getType() === 'remove') return 'remove';
  const made = prototype.constructor;
  if (made === undefined || !Object.hasOwn(made, 'lc_name') || typeof made.lc_name !== 'function') return null;
  const name = made.lc_name();
  return WIRE_CLASSES.find(([, own]) => own === name)?.[2] ?? null;
}

function isEmpty(value: unknown): boolean {
  if (value === undefined || value === null) return true;
  if (typeof value !== 'object') return false;
  if (Array.isArray(value)) return value.length === 0;
  if (Object.getPrototypeOf(value) !== Object.prototype) return false;
  for (const key in value) if ((value as Record<string, unknown>)[key] !== undefined) return false;
  return true;
}

/** A message inside a message (in an artifact, say) stands there whole. */
const BODY = { form: 'body', message: (inner: BaseMessage): Json => ({ $x: ['message', bodyOf(inner)] }) } as const;
const WIRE = { form: 'wire', message: (inner: BaseMessage): Json => wireMessage(inner) as Json } as const;

function dictionary(message: BaseMessage, type: string, form: typeof BODY | typeof WIRE): WireMessage {
  const fields = message as unknown as Record<string, unknown>;
  const { id, content } = message;
  const body: Record<string, Json> = id === undefined || id === null ? { type } : { type, id };
  if (type === 'remove') body.content = [];
  else {
    body.content = typeof content === 'string' ? content : encodeValue(content, form);
    for (const field of FIELDS) {
      const value = fields[field];
      if (!isEmpty(value)) body[field] = encodeValue(value, form);
    }
  }
  return body as unknown as WireMessage;
}

function bodyOf(message: BaseMessage): Json {
  const type = wireType(message);
  return type === null ? encodeValue(message.toJSON(), BODY) : (dictionary(message, type, BODY) as Json);
}

/** What a client sees of a message: LangChain's dictionary form. */
export function wireMessage(message: BaseMessage): WireMessage {
  return dictionary(message, wireType(message) ?? message.getType(), WIRE);
}

/** JSON text under which a message rests in the store. */
export function messageBody(message: BaseMessage): string {
  return JSON.stringify(bodyOf(message));
}

/** LangChain's serialized form, as it comes out of a body. */
interface Serialized {
  readonly lc: 1;
  readonly id: readonly string[];
  readonly kwargs: Record<string, unknown>;
}

/** Is this body in LangChain's own form rather than a dictionary? */
export function isSerialized(body: unknown): body is Serialized {
  return typeof body === 'object' && body !== null && (body as { lc?: unknown }).lc === 1;
}

/**
 * Makes the live message of a decoded body, or null when only LangChain's asynchronous loader knows its class.
 * Every message has a dictionary of its own: constructors of LangChain keep and change what they are given.
 */
export function reviveMessage(body: WireMessage | Serialized): BaseMessage | null {
  if (isSerialized(body)) {
    const made = SERIALIZED_CLASSES.get(body.id.at(-1) ?? '');
    return made === undefined || body.id[0] !== 'langchain_core' ? null : new made(body.kwargs as never);
  }
  const { type, ...fields } = body as WireMessage & Record<string, unknown>;
  if (fields.id === null) delete fields.id;
  if (type === 'remove') return new RemoveMessage({ id: String(fields.id) });
  const made = BY_TYPE.get(type);
  if (made === undefined) return null;
  const raw = fields.additional_kwargs as Record<string, unknown> | undefined;
  if (type !== 'ai' || raw?.tool_calls === undefined || fields.tool_calls !== undefined)
    return new made(fields as never);
  // LangChain prints a warning about raw tool calls that were not parsed: they were, and all of them were invalid.
  const { tool_calls: _raw, ...others } = raw;
  const message = new made({ ...fields, additional_kwargs: others } as never);
  message.additional_kwargs = raw;
  message.lc_kwargs.additional_kwargs = raw;
  return message;
}
