import { createWriteStream } from 'node:fs';
import { access, constants, readFile, stat } from 'node:fs/promises';
import { basename, dirname, resolve } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { checkSchema, decodeTable, formatOf, itemsOfRows, readRows } from '@reindeer/agent';
import { isBatchOver, type JsonObject, type NewItem, newId, ReindeerError } from '@reindeer/protocol';
import type { Command } from './arguments.ts';
import { askServer, type Server } from './attach.ts';
import { BatchesHere } from './batches-here.ts';
import { BatchesOnServer } from './batches-on-server.ts';
import { calledAs, EXIT, type Host } from './host.ts';
import { ProgressLine, type ProgressView } from './progress.ts';
import { runningServer } from './running.ts';
import { type Prepared, prepare } from './start.ts';

type BatchCommand = Extract<Command, { name: 'batch' }>;
type StartCommand = Extract<BatchCommand, { action: 'start' }>;

export interface NewBatchRequest {
  readonly threadId: string;
  readonly createThread: boolean;
  readonly title: string;
  readonly subagentType: string;
  readonly items: readonly NewItem[];
  readonly model: string | null;
  readonly schema: JsonObject | null;
  readonly maxRunning: number | undefined;
  readonly maxAttempts: number | undefined;
}

/** Batches, wherever they are worked on: in this process, or on a server. */
export interface Batches {
  start(input: NewBatchRequest): Promise<ProgressView>;
  list(): Promise<readonly Omit<ProgressView, 'counts'>[]>;
  /** Ends when the batch is over, or `signal` fires. */
  watch(id: string, signal: AbortSignal): AsyncIterable<ProgressView>;
  cancel(id: string): Promise<ProgressView>;
  results(id: string, format: 'csv' | 'jsonl', signal: AbortSignal): AsyncIterable<string | Uint8Array>;
  /** Fires when the user, or the system, wants this process to end. */
  readonly leaving: AbortSignal;
  /** Gives everything back. Answers the exit code of a clean end or a worse one. */
  close(code: number): Promise<number>;
}

const MAX_TABLE = 32 * 1024 * 1024;

/** `reindeer batch`. Answers the exit code. */
export async function batch(host: Host, command: BatchCommand): Promise<number> {
  const prepared = await prepare(host, command, true);
  // What can be wrong with the input is found before anything is started.
  const request = command.action === 'start' ? await requestOf(host, command) : null;
  const output = await outputOf(host, command);
  const batches = command.attach
    ? new BatchesOnServer(host, await serverOf(prepared, command))
    : await openHere(host, command.action === 'start' || command.action === 'watch' ? prepared : idle(prepared));
  let code: number = EXIT.failed;
  let failure: unknown = null;
  try {
    code = await act(host, prepared, batches, command, request, output);
  } catch (error) {
    failure = error;
  }
  const closed = await batches.close(code);
  if (failure !== null && !batches.leaving.aborted) throw failure;
  if (batches.leaving.aborted) return EXIT.interrupted;
  return code === EXIT.done ? closed : code;
}

/** Whoever only looks, or cancels, begins no work: not on batches that wait, and not on one that is cancelled in the next moment. */
const idle = (prepared: Prepared): Prepared => {
  const { settings } = prepared;
  return { ...prepared, settings: { ...settings, batches: { ...settings.batches, enabled: false } } };
};

async function openHere(host: Host, prepared: Prepared): Promise<BatchesHere> {
  try {
    return await BatchesHere.open(host, prepared);
  } catch (error) {
    if (!ReindeerError.is(error) || error.code !== 'data_folder_locked') throw error;
    throw new ReindeerError('data_folder_locked', `${error.message} Or let the running one do it: add --attach.`, {
      cause: error,
    });
  }
}

async function serverOf({ settings }: Prepared, command: BatchCommand): Promise<Server> {
  const server = await runningServer(settings, command);
  // Says at once when nobody is there.
  await askServer(server, 'GET', '/health');
  return server;
}

async function act(
  host: Host,
  prepared: Prepared,
  batches: Batches,
  command: BatchCommand,
  request: NewBatchRequest | null,
  output: string | null,
): Promise<number> {
  switch (command.action) {
    case 'start': {
      if (request === null) throw new ReindeerError('internal', 'A batch without a request.');
      const started = await batches.start(request);
      if (!command.json) host.say(`Batch ${started.batch_id}: ${started.total_items} items.\n`);
      if (command.attach && command.detach) {
        await host.print(`${started.batch_id}\n`);
        return EXIT.done;
      }
      const code = await follow(host, prepared, batches, started.batch_id, command);
      if (batches.leaving.aborted || output === null) return code;
      await save(batches, started.batch_id, /\.jsonl$/i.test(output) ? 'jsonl' : 'csv', output);
      host.say(`Results: ${output}\n`);
      return code;
    }
    case 'watch':
      return follow(host, prepared, batches, command.id, command);
    case 'cancel': {
      const ended = await batches.cancel(command.id);
      await host.print(
        `${ended.batch_id}: ${ended.status}. ${ended.counts.succeeded} of ${ended.total_items} succeeded.\n`,
      );
      return EXIT.done;
    }
    case 'results': {
      if (output !== null) {
        await save(batches, command.id, command.format, output);
        host.say(`Results: ${output}\n`);
        return EXIT.done;
      }
      const decoder = new TextDecoder();
      for await (const part of batches.results(command.id, command.format, batches.leaving))
        await host.print(typeof part === 'string' ? part : decoder.decode(part, { stream: true }));
      return EXIT.done;
    }
    case 'list': {
      const list = await batches.list();
      for (const one of list)
        await host.print(
          command.json
            ? `${JSON.stringify(one)}\n`
            : `${one.batch_id}  ${one.status.padEnd(9)}  ${one.total_items} items  ${one.title}\n`,
        );
      if (list.length === 0) host.say('There are no batches.\n');
      return EXIT.done;
    }
  }
}

async function follow(
  host: Host,
  { surroundings }: Prepared,
  batches: Batches,
  id: string,
  { json, attach }: Pick<BatchCommand, 'json' | 'attach'>,
): Promise<number> {
  const line = new ProgressLine(host, surroundings.clock, json);
  let last: ProgressView | null = null;
  try {
    for await (const view of batches.watch(id, batches.leaving)) {
      last = view;
      await line.show(view);
    }
  } finally {
    line.end();
  }
  if (batches.leaving.aborted) {
    host.say(`Stopped. Go on with: ${calledAs(host)} batch watch ${id}${attach ? ' --attach' : ''}\n`);
    return EXIT.interrupted;
  }
  if (last === null || !isBatchOver(last.status))
    throw new ReindeerError(
      'not_found',
      `The batch ${id} cannot be followed any more: it was deleted with its thread.`,
    );
  const { counts, status, total_items: total } = last;
  if (!json)
    host.say(
      `${status}: ${counts.succeeded} of ${total} succeeded, ${counts.failed} failed, ${counts.cancelled} cancelled.\n`,
    );
  return counts.succeeded === total ? EXIT.done : EXIT.failed;
}

/** Where a table of results goes; null = nowhere. A place that cannot be written is refused before hours of work. Throws `bad_request`. */
async function outputOf(host: Host, command: BatchCommand): Promise<string | null> {
  const bad = (message: string, cause?: unknown) => new ReindeerError('bad_request', message, { cause });
  if (command.action !== 'start' && command.action !== 'results') return null;
  const given = command.output ?? (command.action === 'start' ? `${command.file}.results.csv` : null);
  // Whoever does not wait gets no table.
  if (given === null || (command.action === 'start' && command.detach)) return null;
  const output = resolve(host.cwd, given);
  if (command.action === 'start' && output === resolve(host.cwd, command.file))
    throw bad(`--output ${given} is the table itself. Choose another file for the results.`);
  const there = await stat(output).catch(() => null);
  if (there?.isDirectory() === true) throw bad(`--output ${given} is a folder. Name a file in it.`);
  try {
    await access(there === null ? dirname(output) : output, constants.W_OK);
  } catch (cause) {
    throw bad(`${given} cannot be written: ${(cause as Error).message}. Choose another place with --output.`, cause);
  }
  return output;
}

async function save(batches: Batches, id: string, format: 'csv' | 'jsonl', file: string): Promise<void> {
  const source = Readable.from(batches.results(id, format, batches.leaving));
  await pipeline(source, createWriteStream(file));
}

/** The items of a table on this machine. Throws `bad_request` and `validation_failed`. */
async function requestOf(host: Host, command: StartCommand): Promise<NewBatchRequest> {
  const text = await readText(host, command.file);
  const rows = await readRows(text, formatOf(command.file));
  const items = await itemsOfRows(rows, {
    template: command.prompt,
    keyColumn: command.keyColumn,
    acceptance: command.acceptance,
  });
  return {
    threadId: command.thread ?? newId({ uuid: () => crypto.randomUUID(), next: Math.random }),
    createThread: command.thread === undefined,
    title: command.title ?? basename(command.file),
    subagentType: command.agent ?? 'general-purpose',
    items,
    model: command.model ?? null,
    schema: command.schema === undefined ? null : await readSchema(host, command.schema),
    maxRunning: command.concurrency,
    maxAttempts: command.attempts,
  };
}

async function readSchema(host: Host, file: string): Promise<JsonObject> {
  let schema: unknown;
  try {
    schema = JSON.parse(await readText(host, file));
  } catch (cause) {
    if (ReindeerError.is(cause)) throw cause;
    throw new ReindeerError('bad_request', `--schema ${file} is not JSON: ${(cause as Error).message}`, { cause });
  }
  checkSchema(schema);
  return schema;
}

async function readText(host: Host, file: string): Promise<string> {
  const path = resolve(host.cwd, file);
  try {
    const { size } = await stat(path);
    if (size > MAX_TABLE)
      throw new ReindeerError(
        'bad_request',
        `${file} has more than ${MAX_TABLE} bytes. Split it into several batches.`,
      );
    return decodeTable(await readFile(path));
  } catch (cause) {
    if (ReindeerError.is(cause)) throw cause;
    throw new ReindeerError('bad_request', `${file} cannot be read: ${(cause as Error).message}`, { cause });
  }
}
