import { randomUUID } from 'node:crypto';
import { readFile, rm } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import type { Clock } from '@reindeer/protocol';
import { VIRTUAL_ROOT } from '@reindeer/protocol';
import { PipePool } from '../process/pipes.ts';
import { CommandRunner } from './commands.ts';
import { digest } from './http.ts';
import { ownsContainer } from './leftovers.ts';
import { createSandboxServer } from './server.ts';

/**
 * The program in the container. Variables: `REINDEER_SECRET_FILE` (read once, then removed, so that no command finds it) or
 * `REINDEER_SECRET_SHA256` (its hash, where no file can be handed in: of no use to a command), `REINDEER_SOCKET` (a unix socket) or
 * `REINDEER_PORT`.
 */

const LAUNCHER = '/opt/reindeer/start.sh';
/** What the commands need not know. */
const OWN = ['REINDEER_SECRET_FILE', 'REINDEER_SECRET_SHA256', 'REINDEER_SOCKET', 'REINDEER_PORT'];

const clock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  sleep: (milliseconds, signal) => delay(milliseconds, undefined, signal === undefined ? {} : { signal }),
};

const home = `${VIRTUAL_ROOT}/workspace`;
const inherited = Object.entries(process.env).flatMap(([name, value]) =>
  value === undefined || OWN.includes(name) ? [] : [[name, value] as const],
);
const environment: Record<string, string> = {
  LANG: 'C.UTF-8',
  TERM: 'dumb',
  USER: 'agent',
  LOGNAME: 'agent',
  SHELL: '/bin/bash',
  TMPDIR: '/tmp',
  ...Object.fromEntries(inherited),
  HOME: home,
};

async function secretHash(): Promise<Buffer> {
  const given = process.env.REINDEER_SECRET_SHA256;
  if (given !== undefined && /^[0-9a-f]{64}$/.test(given)) return Buffer.from(given, 'hex');
  const file = process.env.REINDEER_SECRET_FILE ?? '/run/reindeer/secret';
  const secret = (await readFile(file, 'utf8').catch(() => '')).trim();
  if (secret.length < 32) {
    process.stderr.write(`No secret of at least 32 characters in ${file}: nobody could be let in.\n`);
    process.exit(2);
  }
  await rm(file, { force: true });
  return digest(secret);
}

const expected = await secretHash();
const pipes = new PipePool(`/tmp/.pipes-${process.pid}`);
const runner = new CommandRunner({
  clock,
  uuid: randomUUID,
  pipes,
  environment,
  ownsContainer: await ownsContainer(LAUNCHER),
});
await pipes.warmUp();
const server = createSandboxServer({ secretHash: expected, runner, clock, uuid: randomUUID, version: '1.9.3', home });
const socket = process.env.REINDEER_SOCKET;
if (socket !== undefined) server.listen(socket);
else server.listen(Number(process.env.REINDEER_PORT ?? '8080'), '0.0.0.0');

const stop = () => {
  server.close();
  server.closeAllConnections();
  const over = () => process.exit(0);
  pipes.close().then(over, over);
};
process.once('SIGTERM', stop);
process.once('SIGINT', stop);
