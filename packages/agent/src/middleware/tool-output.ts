import { createHash } from 'node:crypto';
import type { BaseMessage, ToolMessage } from '@langchain/core/messages';
import { type Logger, ReindeerError, VIRTUAL_ROOT } from '@reindeer/protocol';
import { isTool } from '../loop/messages.ts';
import { defineMiddleware, type Middleware } from '../loop/middleware.ts';
import { type AttemptScope, scopeOf } from '../loop/scope.ts';
import { shownPath } from '../tools/paths.ts';
import { synopsisOf } from './synopsis.ts';
import { withContent, withToolMessages } from './tool-messages.ts';

export const TOOL_OUTPUT = 'tool-output';
/** In `additional_kwargs` of a result whose text lies in a file: `{path, characters}`. */
export const EXTERNALIZED = 'reindeer_externalized';

export interface ToolOutputSettings {
  readonly enabled: boolean;
  /** A result with more characters goes to a file. */
  readonly externalizeMinCharacters: number;
  readonly previewHeadCharacters: number;
  readonly previewTailCharacters: number;
  /** Longest result where no file can be written; 0 = no limit. */
  readonly fallbackMaxCharacters: number;
  readonly fallbackHeadCharacters: number;
  readonly fallbackTailCharacters: number;
  /** One folder name below `outputs`. */
  readonly storageSubfolder: string;
  /** Never shortened: they have limits of their own, and their results come out of files anyway. */
  readonly exemptTools: readonly string[];
  /** Tool → its own `externalizeMinCharacters`; 0 = never. */
  readonly toolOverrides: Readonly<Record<string, number>>;
}

export const DEFAULT_TOOL_OUTPUT: ToolOutputSettings = {
  enabled: true,
  externalizeMinCharacters: 12_000,
  previewHeadCharacters: 2_000,
  previewTailCharacters: 1_000,
  fallbackMaxCharacters: 30_000,
  fallbackHeadCharacters: 8_000,
  fallbackTailCharacters: 3_000,
  storageSubfolder: '.tool-results',
  exemptTools: ['read_file', 'read_file_tool'],
  toolOverrides: {},
};

export interface ToolOutputParts {
  readonly settings: ToolOutputSettings;
  readonly pathStyle: 'virtual' | 'relative';
  readonly logger: Logger;
}

/**
 * One huge result cannot blow the context, and nothing of it is lost (MW-2). A result over its limit is written to a file that `read_file`
 * reads (through the thread's own sandbox, so that both see the same file), and the model gets what it is, its beginning and end, and
 * the path. Where no file can be written, head and tail are kept. The file is named by its content: a repeat writes the same one.
 *
 * @throws ReindeerError `configuration` for a storage folder that is not one plain name
 */
export function toolOutputMiddleware(parts: ToolOutputParts): Middleware {
  const { settings, logger } = parts;
  if (!/^\.?[A-Za-z0-9_][A-Za-z0-9_-]{0,63}$/.test(settings.storageSubfolder))
    throw new ReindeerError(
      'configuration',
      `tool_output.storage_subdir: "${settings.storageSubfolder}" must be one folder name of letters, digits, - and _.`,
    );
  const exempt = new Set(settings.exemptTools);
  const limitOf = (tool: string): number => {
    if (exempt.has(tool)) return 0;
    return settings.toolOverrides[tool] ?? settings.externalizeMinCharacters;
  };
  // Results of earlier versions, or from other middleware, are cut for the request once and remembered.
  const cuts = new WeakMap<BaseMessage, BaseMessage>();
  const historical = (message: BaseMessage): BaseMessage => {
    if (!isTool(message) || !isOver(message, settings.fallbackMaxCharacters)) return message;
    const tool = message.name ?? '';
    if (exempt.has(tool) || settings.toolOverrides[tool] === 0) return message;
    const text = joinedText(message);
    if (text === null) return message;
    const known = cuts.get(message) ?? withContent(message, cutText(text, settings, ''));
    cuts.set(message, known);
    return known;
  };
  return defineMiddleware({
    name: TOOL_OUTPUT,
    async wrapToolCall(request, handler) {
      const result = await handler(request);
      const limit = limitOf(request.toolCall.name);
      if (!settings.enabled || limit === 0) return result;
      return withToolMessages(result, async (message) => {
        if (!isOver(message, limit)) return message;
        const text = joinedText(message);
        if (text === null) return message;
        return shortened(message, text, request.toolCall.name, scopeOf(request.runtime), parts);
      });
    },
    wrapModelCall(request, handler) {
      if (!settings.enabled || settings.fallbackMaxCharacters === 0) return handler(request);
      const first = request.messages.findIndex((message) => historical(message) !== message);
      if (first < 0) return handler(request);
      return handler({ ...request, messages: request.messages.map(historical) });
    },
  });

  async function shortened(
    message: ToolMessage,
    text: string,
    tool: string,
    scope: AttemptScope,
    { pathStyle }: ToolOutputParts,
  ): Promise<ToolMessage> {
    const path = `${VIRTUAL_ROOT}/outputs/${settings.storageSubfolder}/${fileName(tool, text)}`;
    try {
      const { files } = await scope.sandbox();
      await files.write(path, text);
      const info = await files.stat(path);
      if (info?.kind !== 'file' || info.size !== Buffer.byteLength(text)) throw new Error('the file is not complete');
    } catch (error) {
      scope.attempt.signal.throwIfAborted();
      logger.warn('A long tool result could not be written to a file', {
        tool,
        characters: text.length,
        reason: ReindeerError.is(error) ? error.code : 'unknown',
      });
      return text.length <= settings.fallbackMaxCharacters || settings.fallbackMaxCharacters === 0
        ? message
        : withContent(message, cutText(text, settings, ''));
    }
    return withContent(message, preview(text, shownPath(path, pathStyle), settings), {
      [EXTERNALIZED]: { path, characters: text.length },
    });
  }
}

/** `{tool}-{12 hex}.{log|txt}`: the name says which tool, and the same text always gives the same name. */
function fileName(tool: string, text: string): string {
  const name = tool.replace(/[^A-Za-z0-9_-]+/g, '_').slice(0, 64) || 'tool';
  const hash = createHash('sha256').update(text).digest('hex').slice(0, 12);
  return `${name}-${hash}.${tool === 'bash' ? 'log' : 'txt'}`;
}

/** Cheap: no copy of the text is made to find that it is short. */
function isOver(message: ToolMessage, limit: number): boolean {
  if (limit === 0) return false;
  if (typeof message.content === 'string') return message.content.length > limit;
  let size = 0;
  for (const block of message.content as readonly (Record<string, unknown> | string)[]) {
    if (typeof block === 'string') size += block.length;
    else if (typeof block.text === 'string') size += block.text.length;
  }
  return size > limit;
}

/** The text of a result; null when it holds more than text, such as a picture. */
function joinedText(message: ToolMessage): string | null {
  if (typeof message.content === 'string') return message.content;
  const texts: string[] = [];
  for (const block of message.content as readonly (Record<string, unknown> | string)[]) {
    const text = typeof block === 'string' ? block : block.type === 'text' ? block.text : undefined;
    if (typeof text !== 'string') return null;
    texts.push(text);
  }
  return texts.join('\n');
}

function preview(text: string, path: string, settings: ToolOutputSettings): string {
  const { type, lines } = synopsisOf(text);
  const head = headOf(text, settings.previewHeadCharacters);
  const tail = tailOf(text, settings.previewTailCharacters);
  return [
    `[The result has ${text.length} characters and was saved to ${path}. Read the parts that you need with read_file and start_line/end_line, or search it with grep.]`,
    `Type: ${type}. ${lines.join('. ')}`,
    `--- first ${head.length} characters ---`,
    head,
    `--- last ${tail.length} characters ---`,
    tail,
  ].join('\n');
}

/** Head and tail with a note between them; never longer than the limit. */
function cutText(text: string, settings: ToolOutputSettings, hint: string): string {
  const limit = settings.fallbackMaxCharacters;
  const note = `\n[… ${text.length} characters in all; the middle was left out${hint} …]\n`;
  const room = Math.max(0, limit - note.length);
  const wanted = settings.fallbackHeadCharacters + settings.fallbackTailCharacters;
  const scale = wanted > room ? room / wanted : 1;
  const head = headOf(text, Math.floor(settings.fallbackHeadCharacters * scale));
  const tail = tailOf(text, Math.floor(settings.fallbackTailCharacters * scale));
  return `${head}${note}${tail}`.slice(0, limit);
}

/** The beginning, up to the last line break when there is one in its second half. */
function headOf(text: string, limit: number): string {
  const head = text.slice(0, limit);
  const at = head.lastIndexOf('\n');
  return at > limit / 2 ? head.slice(0, at) : head;
}

function tailOf(text: string, limit: number): string {
  if (limit <= 0) return '';
  const tail = text.slice(-limit);
  const at = tail.indexOf('\n');
  return at >= 0 && at < limit / 2 ? tail.slice(at + 1) : tail;
}
