import { ReindeerError } from '@reindeer/protocol';
import { startUrl } from '../access.ts';
import type { Composed } from '../compose.ts';
import type { Command } from './arguments.ts';
import { EXIT, type Host } from './host.ts';
import { announce, announced } from './running.ts';
import { openSession, type Prepared, prepare, start } from './start.ts';

/** Milliseconds that `--check` waits for a healthy answer. */
const HEALTHY_WITHIN_MS = 30_000;

/** `reindeer serve`: serves until a signal; with `--check` only until the first healthy answer. Answers the exit code. */
export async function serve(host: Host, command: Extract<Command, { name: 'serve' }>): Promise<number> {
  const begun = performance.now();
  const prepared = await prepare(host, { ...command, port: command.port ?? (command.check ? 0 : undefined) });
  let takeBack = async () => {};
  // While the folder is still this one's: behind that, another server may have written its own.
  const session = openSession(host, prepared, () => takeBack());
  let composed: Composed;
  try {
    composed = await start(host, prepared, session, true);
  } catch (error) {
    // A stop during the start is no fault of the start.
    const asked = ReindeerError.is(error) && error.code === 'shutting_down';
    session.stop(asked ? EXIT.done : EXIT.failed);
    const code = await session.ended;
    if (asked) return code;
    throw await withAddress(error, prepared);
  }
  const { server } = composed;
  if (server === null) throw new ReindeerError('internal', 'The server did not open its port.');
  if (command.check) {
    const healthy = await isHealthy(server.host, server.port);
    const seconds = ((performance.now() - begun) / 1000).toFixed(2);
    await host.print(healthy ? `Healthy after ${seconds} s.\n` : `Not healthy after ${seconds} s.\n`);
    session.stop(healthy ? EXIT.done : EXIT.failed);
    return await session.ended;
  }
  takeBack = await announce(prepared.settings, server.host, server.port);
  await host.print(`Reindeer is ready: ${server.url}\n`);
  await host.print(notes(composed));
  return await session.ended;
}

/** Somebody who starts it twice mostly looks for the page. */
async function withAddress(error: unknown, { settings }: Prepared): Promise<unknown> {
  if (!ReindeerError.is(error) || error.code !== 'data_folder_locked') return error;
  const other = await announced(settings);
  if (other === null) return error;
  const message = `${error.message} Its page is ${startUrl(other.host, other.port, null)}`;
  return new ReindeerError('data_folder_locked', message, { cause: error });
}

/** What somebody who has just started it should know. */
function notes({ agents, sandboxes, server }: Composed): string {
  const lines: string[] = [];
  if (agents.models.every((model) => model.demo))
    lines.push(
      'No model is configured: the demo model answers. It is scripted, not a real AI. Set OPENAI_API_KEY or ANTHROPIC_API_KEY for a real one.',
    );
  const report = sandboxes.report();
  if (!report.canExecute)
    lines.push(
      `Commands cannot run, only file tools: ${report.reason ?? 'no sandbox'}${report.remedy === undefined ? '' : ` To change that: ${report.remedy}`}`,
    );
  if (server?.token != null) lines.push('The address holds the token that every client needs; keep it to yourself.');
  return lines.map((line) => `  ${line}\n`).join('');
}

async function isHealthy(host: string, port: number): Promise<boolean> {
  const name = host === '0.0.0.0' || host === '::' ? '127.0.0.1' : host.includes(':') ? `[${host}]` : host;
  try {
    const answer = await fetch(`http://${name}:${port}/health`, { signal: AbortSignal.timeout(HEALTHY_WITHIN_MS) });
    const body = (await answer.json()) as { status?: string; ready?: boolean };
    return answer.ok && body.status === 'healthy' && body.ready === true;
  } catch {
    return false;
  }
}
