import { readFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { dirname, resolve } from 'node:path';
import { ReindeerError } from '@reindeer/protocol';
import { systemSurroundings } from '@reindeer/runtime';
import { DEFAULT_PROVISIONER_PORT, openProvisioner } from '@reindeer/sandbox';
import { parse } from 'yaml';
import { createLogger } from '../log.ts';
import type { Command } from './arguments.ts';
import { EXIT, type Host } from './host.ts';

/** What a removal or a start that is under way gets when the service is told to end. */
const DRAIN_MS = 20_000;

/** `reindeer provisioner`: serves until it is told to end. */
export async function provisioner(host: Host, command: Extract<Command, { name: 'provisioner' }>): Promise<number> {
  const logger = createLogger({ level: 'info', pretty: host.interactive, write: (text) => host.say(text) });
  const service = await openProvisioner({
    environment: host.environment,
    kubeconfig: await kubeconfigOf(host),
    host: command.host ?? '127.0.0.1',
    port: command.port ?? DEFAULT_PROVISIONER_PORT,
    surroundings: systemSurroundings({ logger }),
    version: host.version,
  });
  const told = Promise.withResolvers<void>();
  const end = () => told.resolve();
  const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'];
  for (const signal of signals) host.process.on(signal, end);
  try {
    host.say(`The provisioner listens on http://${service.host}:${service.port}, for namespace ${service.namespace}\n`);
    await told.promise;
  } finally {
    for (const signal of signals) host.process.off(signal, end);
    await service.close(DRAIN_MS);
  }
  return EXIT.done;
}

async function kubeconfigOf({ environment, cwd }: Host): Promise<{ document: unknown; folder: string } | null> {
  const given = environment.KUBECONFIG_PATH ?? environment.KUBECONFIG;
  if (given === undefined || given === '') return null;
  const file = resolve(cwd, given.replace(/^~(?=\/)/, environment.HOME ?? homedir()));
  try {
    return { document: parse(await readFile(file, 'utf8')), folder: dirname(file) };
  } catch (cause) {
    throw new ReindeerError('configuration', `The kubeconfig ${file} cannot be read; correct KUBECONFIG_PATH.`, {
      cause,
    });
  }
}
