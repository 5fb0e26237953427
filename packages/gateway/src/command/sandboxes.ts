import { ReindeerError } from '@reindeer/protocol';
import type { Command } from './arguments.ts';
import { askServer, type Server } from './attach.ts';
import { EXIT, type Host } from './host.ts';
import { runningServer } from './running.ts';
import { prepare } from './start.ts';

type SandboxesCommand = Extract<Command, { name: 'sandboxes' }>;

interface Row {
  readonly id: string;
  readonly state: string;
  readonly user_id: string | null;
  readonly thread_id: string | null;
  readonly age_seconds: number | null;
  readonly idle_seconds: number;
  readonly commands: number;
  readonly memory_bytes: number | null;
}

/** `reindeer sandboxes`: asks the server that is running what it keeps, and stops what it is told to. Answers the exit code. */
export async function sandboxes(host: Host, command: SandboxesCommand): Promise<number> {
  const { settings } = await prepare(host, command, true);
  const server = await runningServer(settings, command);
  switch (command.action) {
    case 'list':
      return await list(host, server, command.json);
    case 'stop': {
      const force = command.force ? '?force=true' : '';
      await askServer(server, 'DELETE', `/api/sandboxes/${encodeURIComponent(command.id)}${force}`);
      await host.print(`Stopped ${command.id}.\n`);
      return EXIT.done;
    }
    case 'prune': {
      const body = command.idle === undefined ? {} : { idle_seconds: command.idle };
      const answer = await askServer(server, 'POST', '/api/sandboxes/prune', body);
      const { stopped, kept } = answer as { stopped: string[]; kept: string[] };
      await host.print(stopped.length === 0 ? 'Nothing to stop.\n' : `Stopped: ${stopped.join(', ')}\n`);
      if (kept.length === 0) return EXIT.done;
      host.say(`Not stopped, because somebody uses or owns them: ${kept.join(', ')}\n`);
      return EXIT.failed;
    }
  }
}

async function list(host: Host, server: Server, json: boolean): Promise<number> {
  const answer = await askServer(server, 'GET', '/api/sandboxes');
  if (json) {
    await host.print(`${JSON.stringify(answer)}\n`);
    return EXIT.done;
  }
  const { provider, sandboxes: rows } = answer as { provider?: unknown; sandboxes?: unknown };
  if (!Array.isArray(rows))
    throw new ReindeerError('bad_request', 'The server did not answer with a list of sandboxes.');
  if (rows.length === 0) {
    await host.print(`No sandboxes (${String(provider)}).\n`);
    return EXIT.done;
  }
  const cells = [
    ['ID', 'STATE', 'USER', 'THREAD', 'AGE', 'IDLE', 'COMMANDS', 'MEMORY'],
    ...(rows as Row[]).map((row) => [
      row.id,
      row.state,
      row.user_id ?? '-',
      row.thread_id ?? '-',
      row.age_seconds === null ? '-' : duration(row.age_seconds),
      duration(row.idle_seconds),
      String(row.commands),
      row.memory_bytes === null ? '-' : `${Math.round(row.memory_bytes / 1024 ** 2)} MiB`,
    ]),
  ].map((line) => line.map(plain));
  const widths = cells[0]?.map((_, column) => Math.max(...cells.map((line) => line[column]?.length ?? 0))) ?? [];
  const text = cells.map((line) =>
    line
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join('  ')
      .trimEnd(),
  );
  await host.print(`${text.join('\n')}\n`);
  return EXIT.done;
}

/** What came over the network moves no cursor. */
const plain = (text: string): string => text.replaceAll(/[^\x20-\x7e]/g, '?').slice(0, 100);

function duration(seconds: number): string {
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7_200) return `${Math.round(seconds / 60)} min`;
  return `${Math.round(seconds / 3_600)} h`;
}
