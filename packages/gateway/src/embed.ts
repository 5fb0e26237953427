import { type Logger, ReindeerError } from '@reindeer/protocol';
import { systemSurroundings } from '@reindeer/runtime';
import { createAgents } from './agents.ts';
import { compose } from './compose.ts';
import { type LoadedConfig, loadConfig } from './config/load.ts';
import { liveSettings } from './config/reload.ts';
import { resolveSettings, type Settings } from './config/settings.ts';
import type { Variables } from './config/substitute.ts';
import { Lifecycle } from './life/lifecycle.ts';
import { resourcesOf } from './resources.ts';
import { VERSION } from './version.ts';

export interface EmbedOptions {
  /** The project folder: `config.yaml`, `.env` and the data folder are looked for in it. */
  readonly folder: string;
  /** A configuration file that must exist; absent = as `reindeer serve` finds one. */
  readonly configPath?: string | undefined;
  readonly environment: Variables;
  readonly logger: Logger;
  /** `import.meta.url` of a module in the `src` folder of a package of ours: what is not code is found from there. */
  readonly entry: string;
}

export interface EmbeddedServer {
  /** `http://127.0.0.1:40123`, without a slash at the end. */
  readonly url: string;
  /** Whoever holds it may use the server, also for one of its users. Nobody else is told. */
  readonly token: string;
  /** Stops everything, as `reindeer serve` does on SIGTERM. All calls share one stop. @throws ReindeerError naming what did not end */
  close(): Promise<void>;
}

const HOST = '127.0.0.1';

/**
 * Reindeer inside of somebody else's program: the same server as `reindeer serve`, on a free port of the loopback and with a token of its own, so
 * that its contracts are those of HTTP. The program keeps its signals and its exit: nothing listens to the process here, and sandboxes go when the
 * program closes it.
 *
 * @throws ReindeerError `configuration`, `data_folder_locked` and what else a start can fail with; nothing stays behind then
 */
export async function embed({ logger, ...options }: EmbedOptions): Promise<EmbeddedServer> {
  const load = () =>
    loadConfig({
      path: options.configPath,
      pathName: 'configPath',
      cwd: options.folder,
      environment: options.environment,
    });
  const token = Buffer.from(crypto.getRandomValues(new Uint8Array(32))).toString('base64url');
  const resolve = (loaded: LoadedConfig): Settings => {
    const settings = resolveSettings(loaded, { host: HOST, port: 0 });
    // No token, host or origin of a configuration that may also be served lets anybody in here.
    const own = { token, internalToken: token, allowedHosts: [], allowedOrigins: [] };
    return { ...settings, server: { ...settings.server, ...own } };
  };
  const loaded = await load();
  const settings = resolve(loaded);
  for (const warning of loaded.warnings) logger.warn(warning);
  const surroundings = systemSurroundings({ logger });
  const lifecycle = new Lifecycle({ clock: surroundings.clock, logger });
  try {
    const { server } = await compose({
      settings,
      surroundings,
      lifecycle,
      resources: resourcesOf(options.entry),
      version: VERSION,
      variables: loaded.variables,
      agents: createAgents,
      live: liveSettings({ loaded, load, resolve, logger }),
      serve: true,
    });
    if (server === null) throw new ReindeerError('internal', 'The server did not open its port.');
    return { url: `http://${HOST}:${server.port}`, token, close: () => stopAll(lifecycle) };
  } catch (error) {
    await lifecycle.stop();
    throw error;
  }
}

async function stopAll(lifecycle: Lifecycle): Promise<void> {
  const { unfinished, failed } = await lifecycle.stop();
  const open = [...unfinished, ...failed];
  if (open.length > 0)
    throw new ReindeerError('internal', `Not everything stopped cleanly: ${open.join(', ')}. The log says why.`);
}
