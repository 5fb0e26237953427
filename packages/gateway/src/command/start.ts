import type { Surroundings } from '@reindeer/protocol';
import { systemSurroundings } from '@reindeer/runtime';
import { createAgents } from '../agents.ts';
import { type Composed, compose, hardDeadlineMs } from '../compose.ts';
import { type LoadedConfig, loadConfig } from '../config/load.ts';
import { type LiveSettings, liveSettings } from '../config/reload.ts';
import { type CommandLineSettings, resolveSettings, type Settings } from '../config/settings.ts';
import { Lifecycle } from '../life/lifecycle.ts';
import { connectSignals } from '../life/signals.ts';
import { createLogger } from '../log.ts';
import { resourcesOf } from '../resources.ts';
import { EXIT, type Host } from './host.ts';

export interface Prepared {
  readonly settings: Settings;
  readonly loaded: LoadedConfig;
  readonly surroundings: Surroundings;
  /** The configuration while the process runs. */
  readonly live: LiveSettings;
}

/** Configuration and log of a command. */
export async function prepare(
  host: Host,
  line: CommandLineSettings & { readonly config: string | undefined },
  quiet = false,
): Promise<Prepared> {
  const load = () => loadConfig({ path: line.config, cwd: host.cwd, environment: host.environment });
  const loaded = await load();
  const settings = resolveSettings(loaded, line);
  // A command that prints results keeps its log out of the way, unless somebody looks for a fault.
  const levelOf = ({ logLevel }: Settings) => (quiet && logLevel !== 'debug' ? 'error' : logLevel);
  const logger = createLogger({ level: levelOf(settings), pretty: host.interactive, write: (text) => host.say(text) });
  for (const warning of loaded.warnings) logger.warn(warning);
  const live = liveSettings({ loaded, load, resolve: (changed) => resolveSettings(changed, line), logger });
  live.onChange((changed) => () => logger.setLevel(levelOf(changed)));
  return { settings, loaded, surroundings: systemSurroundings({ logger }), live };
}

export interface Session {
  readonly lifecycle: Lifecycle;
  /** Begins the stop with this exit code; only the first call counts. */
  stop(code: number): void;
  /** The exit code, once everything has stopped. */
  readonly ended: Promise<number>;
}

/**
 * A lifecycle that is connected with the process: signals, uncaught faults and the hard deadline. `ended` resolves after the stop with
 * 0 only if every part finished (GW-24).
 *
 * @param before runs when the stop begins, before anything is released
 */
export function openSession(
  host: Host,
  { settings, surroundings }: Omit<Prepared, 'live'>,
  before: (code: number) => Promise<void> = async () => {},
): Session {
  const { logger } = surroundings;
  const lifecycle = new Lifecycle({ clock: surroundings.clock, logger });
  const ended = Promise.withResolvers<number>();
  let begun = false;
  const stop = (code: number): void => {
    if (begun) return;
    begun = true;
    const deadline = setTimeout(() => {
      host.say(`The stop took too long. Unfinished: ${lifecycle.unfinished.join(', ')}.\n`);
      host.exit(EXIT.failed);
    }, hardDeadlineMs(settings));
    void (async () => {
      try {
        await before(code);
      } catch (error) {
        logger.error('Ending the work failed', { error: String(error) });
      }
      const report = await lifecycle.stop();
      clearTimeout(deadline);
      disconnect();
      const open = [...report.unfinished, ...report.failed];
      if (open.length > 0) host.say(`Not everything stopped cleanly: ${open.join(', ')}.\n`);
      ended.resolve(open.length > 0 ? EXIT.failed : code);
    })();
  };
  const disconnect = connectSignals({
    process: host.process,
    logger,
    begin: stop,
    unfinished: () => lifecycle.unfinished,
    exit: (code) => host.exit(code),
    say: (text) => host.say(`${text}\n`),
  });
  return { lifecycle, stop, ended: ended.promise };
}

/** Composes everything in this process. */
export function start(host: Host, prepared: Prepared, session: Session, serve: boolean): Promise<Composed> {
  return compose({
    settings: prepared.settings,
    surroundings: prepared.surroundings,
    lifecycle: session.lifecycle,
    resources: resourcesOf(host.entry),
    version: host.version,
    variables: prepared.loaded.variables,
    exit: { process: host.process, ownership: host.shutdownOwnership },
    agents: createAgents,
    live: prepared.live,
    serve,
  });
}
