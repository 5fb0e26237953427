import { resolve } from 'node:path';
import type { Logger } from '@reindeer/protocol';
import { ReindeerClient } from './client.ts';
import { Connection } from './connection.ts';
import type { RunOptions } from './options.ts';

export interface OpenOptions extends RunOptions {
  /** The project folder, with `config.yaml`, `.env` and the data folder; default: the working folder. */
  readonly folder?: string | undefined;
  /** Another configuration file; it must exist. */
  readonly configPath?: string | undefined;
  /** Variables that the configuration and the sandbox use; default: those of the process. */
  readonly environment?: Readonly<Record<string, string | undefined>> | undefined;
  /** For whom to ask; absent = the user that Reindeer has by itself. */
  readonly userId?: string | undefined;
  /** What Reindeer has to say; default: warnings and errors go to standard error. */
  readonly logger?: Logger | undefined;
}

/**
 * Starts Reindeer inside of this process and answers its client. Nobody else can use it: it listens on the loopback alone, on a free port, and wants
 * a token that is made here. The program keeps its own handling of signals and of its end, so it has to call `close()`: nothing of Reindeer keeps the
 * process alive after that.
 *
 * @throws ReindeerError `configuration`; `data_folder_locked` when another process, or another client of this one, has the folder
 */
export async function openClient(options: OpenOptions = {}): Promise<ReindeerClient> {
  const { folder, configPath, environment = process.env, userId, logger, ...defaults } = options;
  // Loaded only here: a client of a server elsewhere needs none of it.
  const { createLogger, embed } = await import('@reindeer/gateway');
  const write = (line: string): void => void process.stderr.write(line);
  const server = await embed({
    folder: resolve(folder ?? '.'),
    configPath,
    // A folder that the program names is that folder, whatever the shell says.
    environment: folder === undefined ? environment : { ...environment, REINDEER_PROJECT_ROOT: undefined },
    logger: logger ?? createLogger({ level: 'warn', pretty: process.stderr.isTTY === true, write }),
    entry: import.meta.url,
  });
  const { url, token } = server;
  const owner = userId === undefined ? undefined : { userId, internalToken: token };
  return new ReindeerClient(new Connection({ url, token, owner }), defaults, () => server.close());
}
