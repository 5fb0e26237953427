import type { StructuredToolInterface } from '@langchain/core/tools';
import {
  type Batch,
  type BatchItem,
  type BatchProgress,
  type BatchService,
  isBatchOver,
  type JsonObject,
  ReindeerError,
  SCHEDULED_KEY,
  type Surroundings,
} from '@reindeer/protocol';
import { z } from 'zod';
import { runOptions } from '../loop/run-options.ts';
import { skillNames } from '../profiles/active.ts';
import { ROLE_KEY } from '../safety/authorization.ts';
import { CHANNEL_KEY } from '../safety/channels.ts';
import type { SubagentType } from '../subagents/settings.ts';
import { defineTool, failed, type MarkedText, type ToolContext } from '../tools/define.ts';
import { virtualPath } from '../tools/paths.ts';
import { decodeTable, formatOf, itemsOfRows, LONGEST_TABLE, readRows, type TemplateItem } from './items.ts';
import { checkSchema } from './result-schema.ts';

const LONGEST_WAIT_S = 3_600;
const MOST_FILES = 5_000;
const SHOWN = 20;
/** The results of a batch that is over are written to files: how long they are waited for, and looked for. */
const FILES_WITHIN_MS = 20_000;
const LOOK_FOR_FILES_MS = 100;
/** Between two progress events of one waiting call. */
const PROGRESS_MS = 2_000;

export interface BatchToolParts {
  /** Asked at each call: the service starts after the agents. */
  readonly service: () => BatchService | null;
  readonly types: ReadonlyMap<string, SubagentType>;
  readonly surroundings: Surroundings;
}

/** `batch_task`, `batch_status`, `batch_wait`, `cancel_batch`: many items of one kind, each by a sub-agent of its own. */
export function batchTools(parts: BatchToolParts): readonly StructuredToolInterface[] {
  const names = [...parts.types.keys()].join(', ');
  const service = (): BatchService => {
    const found = parts.service();
    return found ?? failed('batches are not available now. Try again later, or do the work in another way.');
  };
  return [
    defineTool({
      name: 'batch_task',
      description: `Starts a batch: many items of the same kind, each done by a sub-agent of its own, without this conversation. For tens to thousands of rows, files or records. It answers at once with the id of the batch, which goes on when this turn ends; you are told when it is over. Give the items in one way: \`items\`, \`file\` (CSV, TSV or JSON lines) or \`glob\` (one item per file). Results stand in outputs/batches/<id>/results.csv and results.jsonl. Sub-agents: ${names}.`,
      schema: z.object({
        title: z.string().min(1).max(200).describe('In a few words: what the batch does.'),
        subagent_type: z.string().optional().describe(`One of: ${names}. Default general-purpose.`),
        prompt: z
          .string()
          .max(100_000)
          .optional()
          .describe(
            'The task of one item, with {{column}} for its values; {{path}} and {{name}} with glob. Not with items that bring prompts of their own.',
          ),
        items: z
          .array(
            z.object({
              key: z.string().min(1).max(128).optional(),
              prompt: z.string().min(1).max(100_000).optional(),
              values: z.record(z.string(), z.string()).optional(),
            }),
          )
          .min(1)
          .max(5_000)
          .optional()
          .describe('Each with a whole prompt, or with values for the template.'),
        file: z.string().optional().describe('A table in the workspace or uploads: one item per row.'),
        glob: z.string().optional().describe('A pattern below the workspace: one item per file.'),
        key_column: z.string().optional().describe('The column that names the items; its values differ.'),
        result_schema: z
          .record(z.string(), z.unknown())
          .optional()
          .describe(
            'A JSON Schema. Each result is then JSON that is valid under it, and its properties are columns of results.csv.',
          ),
        acceptance: z
          .string()
          .min(1)
          .max(100_000)
          .optional()
          .describe(
            'When is a result good? With {{column}} for values. Each result is then judged; the verdict is advice, and nothing is done again for it.',
          ),
        max_running: z.number().int().min(1).optional().describe('Items at work at once.'),
        max_attempts: z.number().int().min(1).max(10).optional().describe('Tries per item.'),
      }),
      repeatable: false,
      // The same call again is the same batch (BT-01).
      resumable: true,
      run: async (args, context) => {
        const type = args.subagent_type ?? 'general-purpose';
        if (!parts.types.has(type)) failed(`there is no sub-agent "${type.slice(0, 80)}". Choose one of: ${names}.`);
        if (args.result_schema !== undefined) checkSchema(args.result_schema);
        const items = await itemsFor(args, context);
        const { run } = context.scope.attempt;
        const { messageId, index } = context.call;
        const answer = await service().submit({
          userId: run.userId,
          threadId: run.threadId,
          runId: run.runId,
          toolCallId: context.callId,
          // Providers repeat the ids of their calls: the place of the call in its message does not.
          submissionKey: `call:${run.threadId}:${messageId}:${index}`,
          title: args.title,
          subagentType: type,
          items,
          spec: specOf(context, args.result_schema as JsonObject | undefined),
          notify: true,
          ...(args.max_running === undefined ? {} : { maxRunning: args.max_running }),
          ...(args.max_attempts === undefined ? {} : { maxAttempts: args.max_attempts }),
        });
        if (answer.outcome === 'thread_not_found') failed('this conversation does not exist any more.');
        const { batch } = answer;
        emit(context, 'started', { type: 'batch_started', ...headOf(batch) });
        return marked(
          `Started batch ${batch.batchId} "${batch.title}": ${batch.totalItems} items, up to ${batch.maxRunning} at once. It goes on by itself; you are told when it is over. Use batch_wait only if this turn needs its results.`,
          batch,
        );
      },
    }),
    defineTool({
      name: 'batch_status',
      description: 'Tells how far a batch is, and shows results of its items.',
      schema: z.object({
        batch_id: z.string(),
        status: z
          .enum(['pending', 'queued', 'leased', 'running', 'succeeded', 'failed', 'cancelled'])
          .optional()
          .describe('Shows items in this state only.'),
        offset: z.number().int().min(0).optional(),
        limit: z.number().int().min(0).max(50).optional().describe('Items to show. Default 10.'),
      }),
      repeatable: true,
      run: async (args, context) => {
        const where = addressOf(args.batch_id, context);
        const progress = (await service().get(where)) ?? missing(args.batch_id);
        const limit = args.limit ?? 10;
        const items =
          limit === 0
            ? []
            : ((await service().items({
                ...where,
                status: args.status ?? null,
                offset: args.offset ?? 0,
                limit,
                results: false,
              })) ?? []);
        await heard(service(), progress);
        return marked([summaryOf(progress), ...items.map(lineOf)].join('\n'), progress.batch);
      },
    }),
    defineTool({
      name: 'batch_wait',
      description: `Waits until a batch is over, at most timeout_seconds (default 600, up to ${LONGEST_WAIT_S}), and tells how it ended. Without need for its results in this turn, do not wait: you are told.`,
      schema: z.object({
        batch_id: z.string(),
        timeout_seconds: z.number().int().min(1).max(LONGEST_WAIT_S).optional(),
      }),
      repeatable: true,
      // It holds nothing but its place in the line: after a crash it looks again (D7).
      resumable: true,
      run: (args, context) => wait(service(), parts.surroundings, args.batch_id, args.timeout_seconds ?? 600, context),
    }),
    defineTool({
      name: 'cancel_batch',
      description: 'Cancels a batch: items at work are stopped, waiting ones never begin. What has succeeded stays.',
      schema: z.object({ batch_id: z.string() }),
      repeatable: true,
      run: async (args, context) => {
        const answer = await service().cancel(addressOf(args.batch_id, context));
        if (answer.outcome === 'not_found') return missing(args.batch_id);
        const progress = (await service().get(addressOf(args.batch_id, context))) ?? missing(args.batch_id);
        await heard(service(), progress);
        const begun = answer.outcome === 'done' ? 'Cancelled.' : 'It was over already.';
        return marked(`${begun} ${summaryOf(progress)}`, progress.batch);
      },
    }),
  ];
}

async function wait(
  service: BatchService,
  { clock }: Surroundings,
  batchId: string,
  seconds: number,
  context: ToolContext,
): Promise<MarkedText> {
  const where = addressOf(batchId, context);
  const { signal } = context.scope.attempt;
  const timer = new AbortController();
  clock.sleep(seconds * 1_000, timer.signal).then(
    () => timer.abort(new ReindeerError('aborted', 'The wait is over.')),
    () => undefined,
  );
  const stop = AbortSignal.any([signal, timer.signal, ...(context.signal === undefined ? [] : [context.signal])]);
  let last: BatchProgress | null = null;
  let told = Number.NEGATIVE_INFINITY;
  try {
    for await (const progress of service.watch(where, stop)) {
      last = progress;
      if (clock.monotonic() - told < PROGRESS_MS) continue;
      told = clock.monotonic();
      const { batch, counts } = progress;
      emit(context, null, { type: 'batch_progress', ...headOf(batch), counts: { ...counts } });
    }
  } finally {
    timer.abort();
  }
  signal.throwIfAborted();
  context.signal?.throwIfAborted();
  if (last === null) return missing(batchId);
  if (!isBatchOver(last.batch.status)) return marked(`Not over yet. ${summaryOf(last)}`, last.batch);
  const turn = context.signal === undefined ? signal : AbortSignal.any([signal, context.signal]);
  const progress = await whenFiled(service, clock, last, turn);
  const { batch } = progress;
  await heard(service, progress);
  const failures = (await service.items({ ...where, status: 'failed', offset: 0, limit: 5, results: false })) ?? [];
  const good = (await service.items({ ...where, status: 'succeeded', offset: 0, limit: SHOWN, results: false })) ?? [];
  return marked([summaryOf(progress), ...failures.map(lineOf), ...good.map(lineOf)].join('\n'), batch);
}

/** The answer names the files with the results, so that it waits until they are there; a while, for where nobody can write them. */
async function whenFiled(
  service: BatchService,
  clock: Surroundings['clock'],
  over: BatchProgress,
  signal: AbortSignal,
): Promise<BatchProgress> {
  const { batchId, userId } = over.batch;
  const until = clock.monotonic() + FILES_WITHIN_MS;
  let progress = over;
  while (!progress.batch.filed && service.working && clock.monotonic() < until) {
    await clock.sleep(LOOK_FOR_FILES_MS, signal);
    const found = await service.get({ batchId, userId });
    // A retry took it up again: what was heard counts.
    if (found === null || found.batch.ends !== over.batch.ends || !isBatchOver(found.batch.status)) break;
    progress = found;
  }
  return progress;
}

/** The agent reads of the end here: no further run needs to tell it. */
async function heard(service: BatchService, { batch }: BatchProgress): Promise<void> {
  if (isBatchOver(batch.status)) await service.told({ batchId: batch.batchId, ends: batch.ends });
}

type TaskArguments = {
  readonly prompt?: string | undefined;
  readonly items?:
    | readonly {
        readonly key?: string | undefined;
        readonly prompt?: string | undefined;
        readonly values?: Readonly<Record<string, string>> | undefined;
      }[]
    | undefined;
  readonly file?: string | undefined;
  readonly glob?: string | undefined;
  readonly key_column?: string | undefined;
  readonly acceptance?: string | undefined;
};

async function itemsFor(args: TaskArguments, context: ToolContext): Promise<readonly TemplateItem[]> {
  const ways = [args.items, args.file, args.glob].filter((way) => way !== undefined);
  if (ways.length !== 1) failed('give the items in exactly one way: items, file or glob.');
  const { prompt: template, acceptance } = args;
  const needed = (): string =>
    template ?? failed('give the task of one item as prompt, with {{column}} for its values.');
  if (args.items !== undefined)
    return Promise.all(
      args.items.map(async ({ key, prompt, values }, index): Promise<TemplateItem> => {
        const name = key ?? String(index + 1);
        if (prompt !== undefined) return { key: name, prompt, ...(acceptance === undefined ? {} : { acceptance }) };
        try {
          const [made] = await itemsOfRows([values ?? {}], { template: needed(), acceptance });
          return { prompt: '', ...made, key: name };
        } catch (error) {
          if (!ReindeerError.is(error)) throw error;
          throw new ReindeerError(error.code, `Item ${index + 1}: ${error.message}`, { cause: error });
        }
      }),
    );
  const sandbox = await context.sandbox();
  if (args.file !== undefined) {
    const path = virtualPath(args.file);
    const bytes = await sandbox.files.read(path, { maxBytes: LONGEST_TABLE });
    const rows = await readRows(decodeTable(bytes), formatOf(path));
    return itemsOfRows(rows, { template: needed(), keyColumn: args.key_column, acceptance });
  }
  const { paths, truncated } = await sandbox.files.glob(args.glob ?? '', '/mnt/user-data/workspace', {
    includeDirectories: false,
    limit: MOST_FILES,
    ...(context.signal === undefined ? {} : { signal: context.signal }),
  });
  if (paths.length === 0) failed(`no file fits ${String(args.glob).slice(0, 200)} below the workspace.`);
  if (truncated) failed(`more than ${MOST_FILES} files fit. Use a narrower pattern.`);
  const rows = paths.toSorted().map((path) => ({ path, name: path.slice(path.lastIndexOf('/') + 1) }));
  // A path can be too long for a key.
  const short = rows.every(({ path }) => path.length <= 128);
  return itemsOfRows(rows, { template: needed(), acceptance, ...(short ? { keyColumn: 'path' } : {}) });
}

const OPTIONS_KEPT = [
  'agent_name',
  'model_name',
  'model',
  'thinking_enabled',
  'reasoning_effort',
  // Who asks stays who asks: a batch gives nobody another role.
  ROLE_KEY,
  SCHEDULED_KEY,
  CHANNEL_KEY,
] as const;

/** What the items and the notice at the end take over from the run: its model, the agent who hears of the end, and that agent's skills. */
function specOf(context: ToolContext, schema: JsonObject | undefined): JsonObject {
  const run = runOptions({ configurable: context.configurable, context: context.runContext });
  const kept = Object.fromEntries(
    OPTIONS_KEPT.flatMap((name) => {
      const value = run[name];
      return typeof value === 'string' || typeof value === 'boolean' ? [[name, value]] : [];
    }),
  );
  const model = kept.model_name ?? kept.model ?? context.scope.agent?.profile?.model;
  const skills = skillNames(context.scope.agent);
  return {
    model_name: typeof model === 'string' ? model : null,
    run_context: kept,
    ...(skills === null ? {} : { skills: [...skills] }),
    ...(schema === undefined ? {} : { result_schema: schema }),
  };
}

const addressOf = (batchId: string, { scope }: ToolContext) => {
  const { userId, threadId } = scope.attempt.run;
  return { batchId, userId, threadId };
};

const missing = (batchId: string): never =>
  failed(`there is no batch "${batchId.slice(0, 80)}" in this conversation. Check the id that batch_task answered.`);

const headOf = (batch: Batch) => ({
  batch_id: batch.batchId,
  title: batch.title,
  status: batch.status,
  total_items: batch.totalItems,
});

const marked = (text: string, batch: Batch): MarkedText => ({ text, kwargs: { batch: headOf(batch) } });

function summaryOf({ batch, counts }: BatchProgress): string {
  const open = counts.pending + counts.queued + counts.leased + counts.running;
  const file = `/mnt/user-data/outputs/batches/${batch.batchId}/results.csv`;
  const where = !isBatchOver(batch.status)
    ? ''
    : batch.filed
      ? ` All results: ${file}`
      : ` All results are being written to ${file}`;
  return `Batch ${batch.batchId} "${batch.title}": ${batch.status}. ${counts.succeeded} succeeded, ${counts.failed} failed, ${counts.cancelled} cancelled, ${open} open (${counts.running} running) of ${batch.totalItems}.${where}`;
}

function lineOf(item: BatchItem): string {
  const what = item.error ?? item.resultPreview ?? '';
  const verdict = item.verdict === null ? '' : item.verdict.accepted ? ', accepted' : ', not accepted';
  return `- ${item.key} [${item.status}${verdict}${item.attempt > 1 ? `, attempt ${item.attempt}` : ''}] ${what.slice(0, 300).replaceAll(/\s+/g, ' ')}`;
}

/** An event of the lead agent's stream. With a part its repeat by a later attempt is no news. */
function emit(context: ToolContext, part: string | null, data: JsonObject): void {
  const { attempt } = context.scope;
  const { messageId, index } = context.call;
  attempt.emit(
    { ...data, tool_call_id: context.callId },
    [],
    ...(part === null ? [] : [`batch:${messageId}:${index}:${part}`]),
  );
}
