import { ReindeerError } from '@reindeer/protocol';
import { ReindeerClient } from './client.ts';
import { Connection } from './connection.ts';
import type { RunOptions } from './options.ts';

export interface ConnectOptions extends RunOptions {
  /** Address of the server, e.g. `http://127.0.0.1:2026`. */
  readonly url: string;
  /** Absent = the server needs none. */
  readonly token?: string | undefined;
  /** For whom to ask; needs `internalToken`. Absent = the user that the server has by itself. */
  readonly userId?: string | undefined;
  /** The server's `server.internal_token`. */
  readonly internalToken?: string | undefined;
}

/** A client of a server that runs elsewhere. Nothing is asked before its first use. @throws ReindeerError `bad_request` for what is no address */
export function connectClient({ url, token, userId, internalToken, ...defaults }: ConnectOptions): ReindeerClient {
  if (userId !== undefined && internalToken === undefined)
    throw new ReindeerError('bad_request', 'userId needs internalToken: only who has it may ask for somebody else.');
  const owner = userId === undefined || internalToken === undefined ? undefined : { userId, internalToken };
  return new ReindeerClient(new Connection({ url, token: token ?? null, owner }), defaults, async () => {});
}
