import type { ChannelPart, ChannelReply, DeliveryReceipt, Json, Run, WireMessage } from '@reindeer/protocol';
import type { ChannelHost, ThreadAddress } from './host.ts';
import { beginning, split } from './split.ts';
import { TEXTS } from './texts.ts';

const OUTPUTS = '/mnt/user-data/outputs/';
/** Messages that one answer takes at most, and files. */
const MOST_TEXTS = 8;
const MOST_FILES = 10;
/** Messages of a run that are looked at for its answer. */
const NEWEST = 50;
const CLARIFICATION = 'ask_clarification';

/** Text of a message's content: a text, or the text blocks of a list. Nothing that was thought. */
export function textOf(content: Json | undefined): string {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return '';
  return content
    .map((block) => {
      if (typeof block === 'string') return block;
      if (typeof block !== 'object' || block === null || Array.isArray(block)) return '';
      return block.type === 'text' && typeof block.text === 'string' ? block.text : '';
    })
    .join('');
}

/** Is this something that the agent says? Not what stands in for an answer of a model that failed. */
export function isSaid(message: WireMessage): boolean {
  if (message.type !== 'ai' && message.type !== 'AIMessageChunk') return false;
  const kwargs = message.additional_kwargs;
  const fields: Readonly<Record<string, unknown>> = typeof kwargs === 'object' && kwargs !== null ? { ...kwargs } : {};
  return fields.reindeer_error_fallback !== true && fields.hide_from_ui !== true;
}

/** What goes out when a run has ended: the agent's last words, or the question that it asks, and the files that it presented. */
export async function answerOf(
  host: Pick<ChannelHost, 'threads'>,
  at: ThreadAddress,
  run: Run | null,
  notices: readonly string[],
  textLimit: number,
): Promise<ChannelReply> {
  if (run === null) return textReply([...notices.map(TEXTS.notice), TEXTS.stopped], textLimit);
  const { runId } = run;
  const page = await host.threads.messages({ ...at, runId, before: null, after: null, limit: NEWEST });
  const messages = (page?.facts ?? []).flatMap(({ body }) =>
    body.kind === 'message' && body.ns === '' ? [body.message as WireMessage] : [],
  );
  const said = messages.findLast((message) => isSaid(message) && textOf(message.content).trim() !== '');
  const last = messages.at(-1);
  const question = last?.type === 'tool' && last.name === CLARIFICATION ? textOf(last.content).trim() : '';
  const words = [said === undefined ? '' : textOf(said.content).trim(), question].filter((text) => text !== '');
  const failed = run.status === 'error' || run.status === 'timeout';
  const ending = endingOf(run, words.length > 0);
  const receipt = await receiptOf(host, at, runId, page?.facts.at(-1)?.seq ?? 0);
  const paths = [...new Set(receipt?.presented_paths ?? [])].filter((path) => path.startsWith(OUTPUTS));
  const texts = [...notices.map(TEXTS.notice), ...(failed ? [] : words), ...(ending === null ? [] : [ending])];
  if (paths.length > MOST_FILES)
    texts.push(TEXTS.filesKept(paths.slice(MOST_FILES).map((path) => path.slice(OUTPUTS.length))));
  const { parts } = textReply(texts, textLimit);
  const files = paths.slice(0, MOST_FILES).map((path): ChannelPart => ({ kind: 'file', path }));
  return { parts: [...parts, ...files], sent: 0, failed };
}

/** What is said beside the agent's own words; null = nothing. */
function endingOf(run: Run, hasWords: boolean): string | null {
  switch (run.status) {
    case 'error':
      return TEXTS.failed(run.error === null ? null : beginning(run.error, 500));
    case 'timeout':
      return TEXTS.timeout;
    case 'interrupted':
      return TEXTS.stopped;
    default:
      if (run.stopReason === 'interrupt') return TEXTS.approval;
      return hasWords ? null : TEXTS.empty;
  }
}

/** Stands behind the last message of the run, right before its end. */
async function receiptOf(
  host: Pick<ChannelHost, 'threads'>,
  at: ThreadAddress,
  runId: string,
  afterSeq: number,
): Promise<DeliveryReceipt | null> {
  const rest = await host.threads.facts({ ...at, runId, afterSeq, limit: 200 });
  for (const { body } of rest?.facts ?? []) if (body.kind === 'delivery') return body.receipt;
  return null;
}

/** Texts as messages that the provider takes. */
export function textReply(texts: readonly string[], limit: number, failed = false): ChannelReply {
  const whole = texts.join('\n\n');
  // Looked at no further than what can go out, however long it is.
  const pieces = split(beginning(whole, limit * (MOST_TEXTS + 1)), limit);
  const parts = pieces.slice(0, MOST_TEXTS);
  const isCut = pieces.length > MOST_TEXTS;
  const last = parts.at(-1);
  if (isCut && last !== undefined)
    parts[parts.length - 1] = `${beginning(last, limit - TEXTS.more.length - 2)}\n\n${TEXTS.more}`;
  return { parts: parts.map((text) => ({ kind: 'text', text })), sent: 0, failed };
}
