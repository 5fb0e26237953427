import { stat } from 'node:fs/promises';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import {
  type Clock,
  type ExecResult,
  ReindeerError,
  SKILLS_ROOT,
  VIRTUAL_FOLDERS,
  VIRTUAL_ROOT,
} from '@reindeer/protocol';
import { checkCommand } from '../process/command.ts';
import { checkEnvironment } from '../process/environment.ts';
import type { CommandInput, CommandRunner } from './commands.ts';
import { downloadRoute, listRoute, readRoute, writeRoute } from './file-routes.ts';
import {
  addressOf,
  answer,
  type Body,
  decodedPart,
  flagOf,
  isAuthorized,
  numberOf,
  readJson,
  sendError,
  sendJson,
  textOf,
  textsOf,
} from './http.ts';
import { mirrorListRoute, mirrorReadRoute, mirrorWriteRoute, serverTree } from './mirror-routes.ts';
import { Sessions, type SessionView } from './sessions.ts';

/** What this server can beyond the public image: commands whose output is streamed and that end with the connection. */
const SERVER_PROTOCOL = 1;
/** It can exchange files with a gateway that does not share its folders. */
const MIRROR_PROTOCOL = 1;
/** Asks for a stream of JSON lines: `{"output": text}` …, `{"result": …}` or `{"error": …}`. */
const LINES = 'application/x-ndjson';

const MIB = 1024 * 1024;
const DEFAULT_TIMEOUT_MS = 600_000;

export interface SandboxServerParts {
  /** SHA-256 of the secret that every request carries. */
  readonly secretHash: Buffer;
  readonly runner: CommandRunner;
  readonly clock: Clock;
  readonly uuid: () => string;
  readonly version: string;
  readonly home: string;
  /** Folders that are carried to and from a gateway that does not share them; default: the virtual ones. */
  readonly folders?: ReadonlyMap<string, string>;
}

const FOLDERS: ReadonlyMap<string, string> = new Map([
  ...VIRTUAL_FOLDERS.map((name) => [name, `${VIRTUAL_ROOT}/${name}`] as const),
  ['skills', SKILLS_ROOT],
]);

/**
 * The server in a sandbox: the routes of the public all-in-one sandbox image that are needed here (`/v1/sandbox`, `/v1/bash`, `/v1/shell`,
 * `/v1/file`), so that one client speaks to both. Every request carries the sandbox's secret.
 */
export function createSandboxServer(parts: SandboxServerParts): Server {
  const { runner, clock, uuid } = parts;
  const sessions = new Sessions({ runner, clock, uuid });
  /** Commands that are streamed right now, by the session that their client named. */
  const streams = new Map<string, AbortController>();
  const tree = serverTree(parts.folders ?? FOLDERS, uuid);
  const routes: Readonly<Record<string, (body: Body, request: IncomingMessage, response: ServerResponse) => unknown>> =
    {
      'POST /v1/bash/exec': async (body, request, response) => {
        const input = await commandOf(body);
        if (request.headers.accept === LINES)
          return stream({ runner, streams }, textOf(body, 'session_id', uuid()), input, response);
        const id = sessions.start(body.session_id == null ? null : textOf(body, 'session_id'), input);
        const wait = numberOf(body, 'timeout', null);
        const view = flagOf(body, 'async_mode')
          ? await sessions.view(id, 0, 0)
          : await sessions.finished(id, wait === null ? null : wait * 1000);
        return answer(response, bashResult(view));
      },
      'POST /v1/bash/output': async (body, _request, response) => {
        const wait = flagOf(body, 'wait') ? numberOf(body, 'wait_timeout', 30) * 1000 : 0;
        const view = await sessions.view(textOf(body, 'session_id'), numberOf(body, 'offset', 0), wait);
        const { command_id, command, status, exit_code } = view;
        answer(response, { ...bashResult(view), command: { command_id, command, status, exit_code } });
      },
      'POST /v1/bash/kill': (body, _request, response) => {
        const id = textOf(body, 'session_id');
        const streamed = streams.get(id);
        // Its result comes on its own connection, once it is dead.
        if (streamed !== undefined) streamed.abort();
        else sessions.kill(id);
        answer(response, null);
      },
      'POST /v1/shell/exec': async (body, _request, response) => {
        const id = sessions.start(body.id == null ? null : textOf(body, 'id'), await commandOf(body));
        const wait = numberOf(body, 'timeout', null);
        const view = flagOf(body, 'async_mode')
          ? await sessions.view(id, 0, 0)
          : await sessions.finished(id, wait === null ? null : wait * 1000);
        answer(response, shellResult(view));
      },
      'POST /v1/shell/view': async (body, _request, response) =>
        answer(response, shellResult(await sessions.view(textOf(body, 'id'), 0, 0))),
      'POST /v1/shell/wait': async (body, _request, response) =>
        answer(
          response,
          shellResult(await sessions.finished(textOf(body, 'id'), numberOf(body, 'seconds', 30) * 1000)),
        ),
      'POST /v1/shell/kill': async (body, _request, response) => {
        const id = textOf(body, 'id');
        sessions.kill(id);
        const { status, exit_code } = shellResult(await sessions.finished(id, null));
        answer(response, { status, exit_code, returncode: exit_code });
      },
      'POST /v1/file/read': (body, _request, response) => readRoute(body, response),
      'POST /v1/file/write': (body, _request, response) => writeRoute(body, response),
      'POST /v1/file/list': (body, _request, response) => listRoute(body, response),
      'POST /v1/mirror/list': (_body, _request, response) => mirrorListRoute(tree, response),
      'POST /v1/mirror/read': (body, _request, response) => mirrorReadRoute(tree, body, response),
    };

  const handle = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const url = addressOf(request);
    // For probes of the machine, which know no secret; it tells nothing but that somebody answers.
    if (request.method === 'GET' && url.pathname === '/health') return sendJson(response, 200, { status: 'healthy' });
    if (!isAuthorized(request, parts.secretHash))
      throw new ReindeerError('unauthorized', 'This sandbox wants its secret as a bearer token.');
    if (request.method === 'GET' && url.pathname === '/v1/sandbox')
      return sendJson(response, 200, {
        success: true,
        message: 'Operation successful',
        home_dir: parts.home,
        version: parts.version,
        reindeer: SERVER_PROTOCOL,
        mirror: MIRROR_PROTOCOL,
        commands: runner.running,
      });
    if (request.method === 'GET' && url.pathname === '/v1/file/download')
      return downloadRoute(url.searchParams.get('path') ?? '', response);
    if (request.method === 'DELETE' && url.pathname.startsWith('/v1/shell/sessions/')) {
      sessions.close(decodedPart(url.pathname.slice('/v1/shell/sessions/'.length)));
      return answer(response, null);
    }
    // Its body is no JSON.
    if (request.method === 'POST' && url.pathname === '/v1/mirror/write')
      return mirrorWriteRoute(tree, request, response);
    const route = routes[`${request.method} ${url.pathname}`];
    if (route === undefined) throw new ReindeerError('not_found', 'There is no such route.');
    await route(request.method === 'GET' ? {} : await readJson(request), request, response);
  };

  return createServer({ keepAliveTimeout: 60_000, headersTimeout: 10_000, requestTimeout: 0 }, (request, response) => {
    handle(request, response).catch((error: unknown) => sendError(response, error));
  });
}

/** Runs one command, its output as it comes. The client that goes away takes its command along. */
async function stream(
  { runner, streams }: { readonly runner: CommandRunner; readonly streams: Map<string, AbortController> },
  id: string,
  input: Omit<CommandInput, 'signal' | 'onOutput'>,
  response: ServerResponse,
): Promise<void> {
  const controller = new AbortController();
  response.on('close', () => controller.abort());
  const line = (value: unknown) => {
    if (!response.headersSent) response.writeHead(200, { 'content-type': LINES });
    response.write(`${JSON.stringify(value)}\n`);
  };
  streams.set(id, controller);
  try {
    const onOutput = (text: string) => line({ output: text });
    const result: ExecResult = await runner.run({ ...input, signal: controller.signal, onOutput });
    line({ result });
    response.end();
  } finally {
    streams.delete(id);
  }
}

async function commandOf(body: Body): Promise<Omit<CommandInput, 'signal' | 'onOutput'>> {
  const command = textOf(body, 'command');
  checkCommand(command);
  const env = textsOf(body, 'env');
  checkEnvironment(env);
  const cwd = textOf(body, 'exec_dir', `${VIRTUAL_ROOT}/workspace`);
  const folder = await stat(cwd).catch(() => null);
  if (!cwd.startsWith('/') || folder?.isDirectory() !== true)
    throw new ReindeerError('not_found', `${cwd}: no such folder to start in`);
  const outputBytes = Math.min(numberOf(body, 'output_bytes', 10 * MIB), 64 * MIB);
  const seconds = numberOf(body, 'hard_timeout', null);
  return {
    command,
    cwd,
    env,
    timeoutMs: seconds === null || seconds === 0 ? DEFAULT_TIMEOUT_MS : seconds * 1000,
    outputBytes,
    outputEndBytes: numberOf(body, 'output_end_bytes', 100 * MIB),
    fileBytes: numberOf(body, 'file_bytes', null),
  };
}

function bashResult({ output, ...view }: SessionView): Readonly<Record<string, unknown>> {
  return { ...view, stdout: output, stderr: '', stderr_offset: 0 };
}

/** The shell routes of the public image have words of their own for how a command has ended. */
const SHELL_STATUS = { timed_out: 'hard_timeout', killed: 'terminated', running: 'running', completed: 'completed' };

function shellResult({ session_id, command, status, exit_code, output }: SessionView) {
  return { session_id, command, status: SHELL_STATUS[status], exit_code, output };
}
