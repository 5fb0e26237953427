type Block = Readonly<Record<string, unknown>>;
interface Marked {
  readonly role: string;
  readonly content: unknown;
}

const EPHEMERAL = { type: 'ephemeral' };
/** Blocks that may carry a mark. Thinking may not, and an empty text is refused with one. */
const MARKABLE: ReadonlySet<unknown> = new Set(['text', 'image', 'document', 'tool_use', 'tool_result']);

/**
 * Marks where the provider's cache of the prompt may begin to differ (MOD-5b), at most the four that it takes: behind the tools and behind the system
 * prompt, which all conversations of an agent share; behind the newest message; and behind the newest one of the user's side before it, which the
 * request before this one ended with. A request that carries a mark already keeps its own. Pure: what is marked is copied.
 */
export function withCacheMarks<T extends { readonly messages: unknown }>(request: T): T {
  const { system, tools, messages } = request as {
    readonly system?: unknown;
    readonly tools?: unknown;
    readonly messages?: unknown;
  };
  const list = Array.isArray(messages) ? (messages as readonly Marked[]) : [];
  if ([system, tools, ...list.map(({ content }) => content)].some(hasMark)) return request;
  const newest = list.length - 1;
  const before = list.findLastIndex(({ role }, place) => role === 'user' && place < newest);
  return {
    ...request,
    ...(Array.isArray(tools) && tools.length > 0 ? { tools: lastMarked(tools as readonly Block[], () => true) } : {}),
    ...(system === undefined || system === '' ? {} : { system: markedContent(system) }),
    messages: list.map((message, place) =>
      place === newest || place === before ? { ...message, content: markedContent(message.content) } : message,
    ),
  };
}

const hasMark = (blocks: unknown): boolean =>
  Array.isArray(blocks) && blocks.some((block: Block | null) => block?.cache_control != null);

function markedContent(content: unknown): unknown {
  if (typeof content === 'string')
    return content.trim() === '' ? content : [{ type: 'text', text: content, cache_control: EPHEMERAL }];
  return Array.isArray(content) ? lastMarked(content as readonly Block[], isMarkable) : content;
}

const isMarkable = ({ type, text }: Block): boolean =>
  MARKABLE.has(type) && (type !== 'text' || (typeof text === 'string' && text.trim() !== ''));

function lastMarked(blocks: readonly Block[], fits: (block: Block) => boolean): readonly Block[] {
  const place = blocks.findLastIndex(fits);
  return blocks.map((block, index) => (index === place ? { ...block, cache_control: EPHEMERAL } : block));
}
