import { open, readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { ReindeerError } from '@reindeer/protocol';
import { convertConfig } from '../config/convert.ts';
import { loadConfig } from '../config/load.ts';
import { resolveSettings } from '../config/settings.ts';
import type { Command } from './arguments.ts';
import { EXIT, type Host } from './host.ts';

/** `reindeer config check | convert`: is a configuration right, and what of another system's means here. */
export async function configuration(host: Host, command: Extract<Command, { name: 'config' }>): Promise<number> {
  return command.action === 'check'
    ? await check(host, command.config)
    : await convert(host, command.file, command.output);
}

async function check(host: Host, config: string | undefined): Promise<number> {
  const loaded = await loadConfig({ path: config, cwd: host.cwd, environment: host.environment });
  const settings = resolveSettings(loaded, {});
  for (const warning of [...loaded.warnings, ...settings.warnings]) host.say(`warning: ${warning}\n`);
  const models = settings.models.map((model) => model.name).join(', ');
  await host.print(
    `${loaded.file ?? 'No file, so everything is default'}: no faults. Models: ${models}. Sandbox: ${settings.sandbox.provider}. Database: ${settings.postgres === null ? 'SQLite' : 'Postgres'}.\n`,
  );
  return EXIT.done;
}

async function convert(host: Host, file: string, output: string | undefined): Promise<number> {
  const from = resolve(host.cwd, file);
  const text = await readFile(from, 'utf8').catch((cause: NodeJS.ErrnoException) => {
    throw new ReindeerError('configuration', `${from} cannot be read (${cause.code}).`, { cause });
  });
  const converted = convertConfig(text);
  if (output === undefined) await host.print(converted.text);
  else {
    const to = resolve(host.cwd, output);
    // Never over a file that is there: it may be the one that works.
    const handle = await open(to, 'wx', 0o600).catch((cause: NodeJS.ErrnoException) => {
      throw new ReindeerError(
        'bad_request',
        cause.code === 'EEXIST'
          ? `${to} exists already. Name another file, or remove it first.`
          : `${to} cannot be written (${cause.code}).`,
        { cause },
      );
    });
    try {
      await handle.writeFile(converted.text);
    } finally {
      await handle.close();
    }
    await host.print(`Written to ${to}. Check it with: reindeer config check --config ${output}\n`);
  }
  host.say(`What differs:\n${converted.notes.map((note) => `- ${note}\n`).join('')}`);
  return EXIT.done;
}
