import { EMPTY_REQUEST, isId, type JsonObject, ReindeerError, type StreamEvent } from '@reindeer/protocol';
import type { Composed } from '../compose.ts';
import { didYouMean } from '../nearest.ts';
import type { Command } from './arguments.ts';
import { cancelOnServer, streamFromServer } from './attach.ts';
import { calledAs, EXIT, type Host } from './host.ts';
import { runningServer } from './running.ts';
import { openSession, type Prepared, prepare, start } from './start.ts';
import { TERMINAL_MODES, Terminal } from './terminal.ts';

type RunCommand = Extract<Command, { name: 'run' }>;

/** `--json` shows what the run does; the values mode would repeat the whole state at every step. */
const JSON_MODES = ['messages-tuple', 'updates', 'custom'];

/** `reindeer run`: one run, in this process or on a running server. Answers the exit code. */
export async function run(host: Host, command: RunCommand): Promise<number> {
  if (command.thread !== undefined && !isId(command.thread))
    throw new ReindeerError(
      'bad_request',
      `"${command.thread}" is not a thread id. Use 1 to 64 letters, digits, "_" or "-".`,
    );
  const prepared = await prepare(host, command, true);
  return command.attach ? await runOnServer(host, command, prepared) : await runHere(host, command, prepared);
}

const inputOf = (command: RunCommand): JsonObject => ({ messages: [{ type: 'human', content: command.prompt }] });
const contextOf = (command: RunCommand): JsonObject =>
  command.model === undefined ? {} : { model_name: command.model };

async function runHere(host: Host, command: RunCommand, prepared: Prepared): Promise<number> {
  const terminal = new Terminal(host, command.json);
  const leaving = new AbortController();
  let composed: Composed | null = null;
  let over = false;
  // Ctrl-C ends the run before the parts stop; else it would continue at the next start, as after a crash.
  const session = openSession(host, prepared, async () => {
    if (over) return;
    leaving.abort();
    const { runId, threadId } = terminal;
    if (composed !== null && runId !== null && threadId !== null)
      await composed.runs.cancel({ runId, threadId, userId: composed.userId, action: 'interrupt', wait: true });
  });
  let code: number = EXIT.failed;
  let failure: unknown = null;
  try {
    composed = await start(host, prepared, session, false);
    await follow(terminal, eventsHere(composed, command, leaving.signal));
    code = leaving.signal.aborted ? EXIT.interrupted : await exitCodeHere(composed, terminal);
  } catch (error) {
    failure = withAttachHint(error);
  }
  over = true;
  session.stop(code);
  const stopped = await session.ended;
  if (failure !== null && !leaving.signal.aborted) throw failure;
  await sayThread(host, terminal, command);
  return code === EXIT.done ? stopped : code;
}

function withAttachHint(error: unknown): unknown {
  if (!ReindeerError.is(error) || error.code !== 'data_folder_locked') return error;
  return new ReindeerError('data_folder_locked', `${error.message} Or let the running one do it: add --attach.`, {
    cause: error,
  });
}

async function* eventsHere(composed: Composed, command: RunCommand, signal: AbortSignal): AsyncGenerator<StreamEvent> {
  const names = composed.agents.models.map((model) => model.name);
  if (command.model !== undefined && !names.includes(command.model))
    throw new ReindeerError(
      'bad_request',
      `There is no model "${command.model}".${didYouMean(command.model, names)} Configured: ${names.join(', ')}.`,
    );
  const [assistantId = 'lead_agent'] = composed.agents.graphs.keys();
  const { userId } = composed;
  const admitted = await composed.runs.create({
    threadId: command.thread ?? null,
    userId,
    assistantId,
    request: {
      ...EMPTY_REQUEST,
      input: inputOf(command),
      config: { recursion_limit: 100 },
      context: contextOf(command),
      streamModes: command.json ? JSON_MODES : TERMINAL_MODES,
    },
    metadata: { source: 'command-line' },
    multitaskStrategy: 'reject',
    onDisconnect: 'continue',
    crashPolicy: null,
    createThread: true,
    idempotencyKey: null,
  });
  if (admitted.outcome !== 'admitted' && admitted.outcome !== 'reused')
    throw new ReindeerError(
      'conflict',
      `The thread ${command.thread ?? ''} is busy with another run. Wait for its end, or use another thread.`,
    );
  const { runId, threadId } = admitted.run;
  for await (const item of composed.runs.stream({
    runId,
    threadId,
    userId,
    lastEventId: null,
    modes: null,
    heartbeatMs: 60_000,
    signal,
  }))
    if (item !== 'heartbeat') yield item;
}

async function follow(terminal: Terminal, events: AsyncIterable<StreamEvent>): Promise<void> {
  for await (const event of events) await terminal.accept(event);
  await terminal.finish();
}

async function exitCodeHere(composed: Composed, terminal: Terminal): Promise<number> {
  const { runId, threadId } = terminal;
  if (runId === null || threadId === null) return EXIT.failed;
  const ended = await composed.runs.get({ runId, threadId, userId: composed.userId });
  if (ended?.status !== 'success') return EXIT.failed;
  return terminal.asks ? EXIT.asks : EXIT.done;
}

async function runOnServer(host: Host, command: RunCommand, { settings }: Prepared): Promise<number> {
  const terminal = new Terminal(host, command.json);
  const server = await runningServer(settings, command);
  const leaving = new AbortController();
  const leave = () => leaving.abort();
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) host.process.on(signal, leave);
  try {
    const body = {
      assistant_id: 'lead_agent',
      input: inputOf(command),
      context: contextOf(command),
      stream_mode: command.json ? JSON_MODES : TERMINAL_MODES,
      on_disconnect: 'cancel',
      if_not_exists: 'create',
      metadata: { source: 'command-line' },
    };
    const path = command.thread === undefined ? '/api/runs/stream' : `/api/threads/${command.thread}/runs/stream`;
    await follow(terminal, streamFromServer(server, path, body, leaving.signal));
    if (leaving.signal.aborted) {
      const { runId, threadId } = terminal;
      if (runId !== null && threadId !== null) await cancelOnServer(server, threadId, runId);
      return EXIT.interrupted;
    }
  } finally {
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) host.process.off(signal, leave);
  }
  await sayThread(host, terminal, command);
  if (terminal.failed !== null || terminal.status !== 'success') return EXIT.failed;
  return terminal.asks ? EXIT.asks : EXIT.done;
}

/** How to go on; only for people, and only when the thread is new to them. */
async function sayThread(host: Host, terminal: Terminal, command: RunCommand): Promise<void> {
  if (command.json || command.thread !== undefined || terminal.threadId === null) return;
  host.say(`Continue with: ${calledAs(host)} run --thread ${terminal.threadId} "…"\n`);
}
