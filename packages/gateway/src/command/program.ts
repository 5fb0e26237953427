import { ReindeerError } from '@reindeer/protocol';
import { maskText } from '../log.ts';
import { helpText, parseCommand } from './arguments.ts';
import { EXIT, type Host } from './host.ts';

/** The oldest Node that has what the commands need. */
const NODE = 24;

/** Runs one command and answers the exit code. Each command's code is loaded only when it is asked for. */
export async function program(host: Host, words: readonly string[]): Promise<number> {
  try {
    const command = parseCommand(words);
    switch (command.name) {
      case 'help':
        await host.print(helpText(command.topic));
        return EXIT.done;
      case 'version':
        await host.print(`reindeer ${host.version} (node ${host.nodeVersion})\n`);
        return EXIT.done;
    }
    requireNode(host);
    switch (command.name) {
      case 'serve':
        return await owning(host, async () => (await import('./serve.ts')).serve(host, command));
      case 'run':
        return await owning(host, async () => (await import('./run.ts')).run(host, command));
      case 'doctor':
        return await (await import('./doctor.ts')).doctor(host, command);
      case 'sandboxes':
        return await (await import('./sandboxes.ts')).sandboxes(host, command);
      case 'batch':
        return await (await import('./batch.ts')).batch(host, command);
      case 'config':
        return await (await import('./config.ts')).configuration(host, command);
      case 'provisioner':
        return await (await import('./provisioner.ts')).provisioner(host, command);
      case 'backup':
        return await (await import('./backup.ts')).backup(host, command);
    }
  } catch (error) {
    const known = ReindeerError.is(error);
    // A message of ours says what to do; anything else is a fault, and its trace helps to report it.
    const text = known ? error.message : error instanceof Error ? (error.stack ?? error.message) : String(error);
    host.say(`reindeer: ${maskText(text)}\n`);
    return known && WRONG_USAGE.includes(error.code) ? EXIT.usage : EXIT.failed;
  }
}

/** Input that breaks a rule is wrong usage, whether this process or a server says so. */
const WRONG_USAGE: readonly string[] = ['bad_request', 'validation_failed'];

/**
 * Declares, before anything is loaded that could make a provider, that sandboxes are stopped by the command's own stop: after its runs
 * have ended. Withdrawn whatever happens.
 */
async function owning(host: Host, command: () => Promise<number>): Promise<number> {
  const withdraw = host.shutdownOwnership.declare();
  try {
    return await command();
  } finally {
    withdraw();
  }
}

function requireNode({ nodeVersion }: Host): void {
  if (Number(/^v?(\d+)/.exec(nodeVersion)?.[1]) >= NODE) return;
  throw new ReindeerError(
    'configuration',
    `Reindeer runs on Node ${NODE}, and this is ${nodeVersion}. In the project's folder, npm start and npm run reindeer -- COMMAND bring it along.`,
  );
}
