import type {
  Batch,
  BatchCounts,
  BatchItem,
  BatchStore,
  EndedBatch,
  JsonObject,
  RunService,
  Surroundings,
} from '@reindeer/protocol';
import { EMPTY_REQUEST, ReindeerError } from '@reindeer/protocol';
import { Bell, settledWithin } from '../common/waiting.ts';
import { type FilesOf, folderOf } from './results.ts';

export interface ReporterParts {
  readonly store: BatchStore;
  /** null = results stand in the store alone. */
  readonly files: FilesOf | null;
  readonly runs: Pick<RunService, 'create'>;
  /** The agent that hears of the end. */
  readonly assistantId: string;
  readonly surroundings: Surroundings;
  readonly pollMs: number;
}

/** A report that was begun and not finished is begun again after this. */
const REPORT_LEASE_MS = 60_000;
/** A busy thread is asked again after this. */
const BUSY_MS = 2_000;
const PAGE = 200;
const MAX_FILE_BYTES = 2 * 1024 * 1024 * 1024;
const REPORTS_AT_ONCE = 5;

/**
 * Does what follows the end of a batch, once, on whichever instance comes first: its results as files of the thread, and one run that tells the
 * agent. A restart in between repeats what was not recorded; the files are the same, and the run's key makes it the same run.
 */
export class BatchReporter {
  readonly #parts: ReporterParts;
  readonly #stopping = new AbortController();
  readonly #bell = new Bell();
  #loop: Promise<void> | null = null;

  constructor(parts: ReporterParts) {
    this.#parts = parts;
  }

  /** Idempotent. */
  start(): void {
    this.#loop ??= this.#run();
  }

  wake(): void {
    this.#bell.ring();
  }

  /** Ends after the report that is under way. Idempotent. */
  async stop(timeoutMs: number): Promise<void> {
    this.#stopping.abort();
    this.#bell.ring();
    if (this.#loop !== null) await settledWithin(this.#parts.surroundings.clock, this.#loop, timeoutMs);
  }

  /** One look for batches that have ended. Answers how many were dealt with. */
  async pass(): Promise<number> {
    const { store, surroundings } = this.#parts;
    const { clock, random, logger } = surroundings;
    const owner = random.uuid();
    const ended = await store.claimEnded({
      owner,
      leaseMs: REPORT_LEASE_MS,
      limit: REPORTS_AT_ONCE,
      now: clock.now(),
    });
    await Promise.all(
      ended.map(async (one) => {
        try {
          await this.#report(one, owner);
        } catch (error) {
          logger.warn('The end of a batch could not be reported; it is tried again', {
            batchId: one.batch.batchId,
            error: String(error),
          });
        }
      }),
    );
    return ended.length;
  }

  async #report({ batch, notify }: EndedBatch, owner: string): Promise<void> {
    const { store, files, surroundings } = this.#parts;
    const { batchId, userId, threadId, ends } = batch;
    const found = await store.get({ batchId, userId });
    if (found === null) return;
    if (!batch.filed) {
      if (files !== null) await writeResults(store, files({ userId, threadId }), batch);
      // Whether the agent is to be told is asked anew: it may have read of the end while they were written.
      await store.filed({ batchId, owner, ends });
    } else if (notify && !(await this.#tell(batch, found.counts)))
      // Nobody waits for a busy thread. By then its agent may have read of the end itself.
      await store.postpone({ batchId, owner, ends, until: surroundings.clock.now() + BUSY_MS });
    else await store.reported({ batchId, owner, ends });
  }

  /** One internal run on the thread. False = the thread is busy. A deleted thread hears nothing. */
  async #tell(batch: Batch, counts: BatchCounts): Promise<boolean> {
    const { runs, assistantId } = this.#parts;
    const { batchId, threadId, userId, ends } = batch;
    try {
      const admitted = await runs.create({
        threadId,
        userId,
        assistantId,
        request: {
          ...EMPTY_REQUEST,
          input: {
            messages: [
              {
                type: 'human',
                content: textFor(batch, counts, this.#parts.files !== null),
                additional_kwargs: { hide_from_ui: true, batch_id: batchId },
              },
            ],
          },
          config: { recursion_limit: 100 },
          context: { ...(contextOf(batch) ?? {}) },
          streamModes: ['values', 'messages-tuple', 'custom'],
        },
        metadata: { source: 'batch', batch_id: batchId },
        multitaskStrategy: 'reject',
        onDisconnect: 'continue',
        crashPolicy: null,
        createThread: false,
        idempotencyKey: `batch:${batchId}:${ends}`,
      });
      // A key that stands under another payload is the same report as an earlier version wrote it.
      return admitted.outcome !== 'conflict' || admitted.reason === 'key_reused';
    } catch (error) {
      if (ReindeerError.is(error) && ['over_capacity', 'shutting_down'].includes(error.code)) return false;
      throw error;
    }
  }

  async #run(): Promise<void> {
    const { surroundings, pollMs } = this.#parts;
    const { clock, logger } = surroundings;
    while (!this.#stopping.signal.aborted) {
      const next = this.#bell.next();
      try {
        // Those that were filed are told next.
        while ((await this.pass()) > 0 && !this.#stopping.signal.aborted);
      } catch (error) {
        logger.warn('Looking for ended batches failed; the next look tries again', { error: String(error) });
      }
      await settledWithin(clock, next, pollMs);
      if (!this.#stopping.signal.aborted) await clock.sleep(50);
    }
  }
}

/** The options of the run that asked for the batch: the same model answers. */
const contextOf = (batch: Batch): JsonObject | null => {
  const { run_context: context } = batch.spec;
  return typeof context === 'object' && context !== null && !Array.isArray(context) ? (context as JsonObject) : null;
};

function textFor(batch: Batch, counts: BatchCounts, hasFiles: boolean): string {
  const { batchId, title, status, totalItems } = batch;
  const where = hasFiles ? ` All results: ${folderOf(batchId)}/results.csv and results.jsonl.` : '';
  return [
    `[Automatic notice, not written by the user] The batch "${title}" (${batchId}) is over: ${status}.`,
    `Of ${totalItems} items ${counts.succeeded} succeeded, ${counts.failed} failed, ${counts.cancelled} were cancelled.${where}`,
    // This run cannot delegate, so that no batch begins another without a person: it has none of their tools.
    `${hasFiles ? 'Look at the results in the files, and tell' : 'Tell'} the user briefly what came of it. Do not start the batch again.`,
  ].join('\n');
}

/** Writes `results.jsonl` and `results.csv`, in the order of the items, a page at a time. */
export async function writeResults(
  store: Pick<BatchStore, 'items'>,
  files: ReturnType<FilesOf>,
  batch: Batch,
  maxBytes = MAX_FILE_BYTES,
): Promise<void> {
  const folder = folderOf(batch.batchId);
  // What has no room is said in the file: one that could never be written would be begun again for ever, and nobody told of the end.
  const write = (name: string, lines: AsyncIterable<string>, last: string) =>
    files.writeStream(`${folder}/${name}`, within(lines, maxBytes, `${last}\r\n`), { maxBytes, overwrite: true });
  const note = 'There is no room for more results in this file. Download the results of the batch to have all of them.';
  await write('results.jsonl', jsonLines(itemsOf(store, batch)), JSON.stringify({ cut: note }));
  await write('results.csv', csvLines(itemsOf(store, batch), batch), csvCell(note));
}

/** All items of a batch by position. Ends early when the batch is gone. */
export async function* itemsOf(
  store: Pick<BatchStore, 'items'>,
  batch: Pick<Batch, 'batchId' | 'userId'>,
): AsyncGenerator<BatchItem> {
  const { batchId, userId } = batch;
  for (let offset = 0; ; offset += PAGE) {
    const page = await store.items({ batchId, userId, status: null, offset, limit: PAGE, results: true });
    if (page === null) return;
    yield* page;
    if (page.length < PAGE) return;
  }
}

/** Lines up to a size; `last` in the place of those that have no room. */
async function* within(lines: AsyncIterable<string>, maxBytes: number, last: string): AsyncGenerator<Uint8Array> {
  const encoder = new TextEncoder();
  const end = encoder.encode(last);
  let room = maxBytes - end.length;
  for await (const line of lines) {
    const bytes = encoder.encode(line);
    room -= bytes.length;
    if (room < 0) {
      yield end;
      return;
    }
    yield bytes;
  }
}

/** One JSON object per item and line. */
export async function* jsonLines(items: AsyncIterable<BatchItem>): AsyncGenerator<string> {
  for await (const item of items) yield `${JSON.stringify(resultView(item))}\n`;
}

const resultView = (item: BatchItem) => ({
  key: item.key,
  position: item.position,
  status: item.status,
  attempts: item.attempt,
  result: item.result,
  ...(item.resultTruncated ? { result_truncated: true, result_file: item.resultFile } : {}),
  ...(item.verdict === null ? {} : { accepted: item.verdict.accepted, verdict: item.verdict.reason }),
  ...(item.error === null ? {} : { error: item.error }),
  ...(item.stopReason === null ? {} : { stop_reason: item.stopReason }),
  model: item.modelName,
  usage: { input_tokens: item.usage.inputTokens, output_tokens: item.usage.outputTokens },
});

/** Properties of the result schema, which get columns of their own. */
function columnsOf(batch: Batch): readonly string[] {
  const schema = batch.spec.result_schema;
  if (typeof schema !== 'object' || schema === null || Array.isArray(schema)) return [];
  const { properties } = schema as JsonObject;
  return typeof properties === 'object' && properties !== null && !Array.isArray(properties)
    ? Object.keys(properties).slice(0, 100)
    : [];
}

/** Is anything of the batch judged? Then the table says what came of it. */
const isJudged = (batch: Batch): boolean => batch.spec.judged === true;

export async function* csvLines(items: AsyncIterable<BatchItem>, batch: Batch): AsyncGenerator<string> {
  const columns = columnsOf(batch);
  const judged = isJudged(batch);
  const verdicts = judged ? ['accepted', 'verdict'] : [];
  const own = ['key', 'status', 'result', ...verdicts, 'error'];
  const named = columns.map((column) => (own.includes(column) ? `result.${column}` : column));
  yield `${['key', 'status', ...named, 'result', ...verdicts, 'error'].map(csvCell).join(',')}\r\n`;
  for await (const item of items) {
    const fields = columns.length === 0 ? {} : objectOf(item.result);
    const cells = columns.map((column) => {
      const value = Object.hasOwn(fields, column) ? fields[column] : null;
      return value === undefined || value === null ? '' : typeof value === 'string' ? value : JSON.stringify(value);
    });
    const { verdict } = item;
    const said = judged ? [verdict === null ? '' : String(verdict.accepted), verdict?.reason ?? ''] : [];
    yield `${[item.key, item.status, ...cells, item.result ?? '', ...said, item.error ?? cutNote(item)].map(csvCell).join(',')}\r\n`;
  }
}

/** Whoever reads a table must not take a part of a result for all of it. */
const cutNote = ({ resultTruncated, resultFile }: BatchItem): string =>
  !resultTruncated
    ? ''
    : `The result is cut here. ${resultFile === null ? 'The rest is lost.' : `All of it: ${resultFile}`}`;

function objectOf(text: string | null): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(text ?? '');
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

/** A cell that begins like a formula is made text: spreadsheets would run it, and models wrote it. */
export function csvCell(value: string): string {
  const safe = /^[=+\-@\t\r\n＝＋－＠]/.test(value) && !/^-?\d+(\.\d+)?$/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
