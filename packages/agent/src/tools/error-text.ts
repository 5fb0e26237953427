import { ReindeerError } from '@reindeer/protocol';
import type { Hide } from './text.ts';

/** Longest error detail that goes to the model (MW-13). */
const MAX_ERROR_DETAIL = 500;
/** No more of an error's text is even looked at: an error may carry a whole response. */
const MAX_EXAMINED = 4_000;

/**
 * What the model is told about a failed tool: the tool, the kind of error, at most 500 characters of detail without stack
 * traces or host paths, and what to do.
 *
 * @param hide takes secrets out, before the detail is cut
 */
export function toolErrorText(tool: string, error: unknown, hide: Hide = (text) => text): string {
  if (ReindeerError.is(error) && error.code === 'validation_failed')
    return `Error: ${detailOf(error, hide)}. Correct the arguments and call it again.`;
  const kind = ReindeerError.is(error) ? error.code : error instanceof Error ? error.name : typeof error;
  return `Error: tool '${tool}' failed with ${kind}: ${detailOf(error, hide)}. Continue with what you have, or choose another tool.`;
}

function detailOf(error: unknown, hide: Hide): string {
  const message = (error instanceof Error ? error.message : String(error)).slice(0, MAX_EXAMINED);
  const plain = withoutHostDetails(hide(message, { end: true }))
    .trim()
    .replace(/[.\s]+$/, '');
  return plain.length > MAX_ERROR_DETAIL ? `${plain.slice(0, MAX_ERROR_DETAIL - 1)}…` : plain;
}

const STACK_LINE = /^\s*at\s.+(:\d+:\d+|\(native\)|<anonymous>).*$/gm;
const HOST_PATH = /(?:file:\/\/)?(?<![\w/.:-])\/(?!mnt\/)(?:[\w.@+-]+\/)+[\w.@+-]*/g;

/** Drops stack lines and replaces absolute host paths, except those of the sandbox, by their last part. */
export function withoutHostDetails(text: string): string {
  return text
    .replace(STACK_LINE, '')
    .replace(HOST_PATH, (path) => path.split('/').findLast((part) => part !== '') ?? '')
    .replace(/\n{2,}/g, '\n');
}
