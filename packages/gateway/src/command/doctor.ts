import { createServer } from 'node:net';
import { openPostgres, openSqlite } from '@reindeer/database';
import { ReindeerError } from '@reindeer/protocol';
import { systemSurroundings } from '@reindeer/runtime';
import {
  createContainerProvider,
  createRemoteProvider,
  createSandboxProvider,
  MemoryOwnershipStore,
} from '@reindeer/sandbox';
import { loadConfig } from '../config/load.ts';
import { DEMO_USE } from '../config/models.ts';
import { resolveSettings, type Settings } from '../config/settings.ts';
import type { Variables } from '../config/substitute.ts';
import { ownSandboxes } from '../own-parts.ts';
import { resourcesOf } from '../resources.ts';
import { containerSettings, provisionerOf, sandboxSettings } from '../sandbox-settings.ts';
import type { Command } from './arguments.ts';
import { EXIT, type Host } from './host.ts';

/** One line of the report. `fix` is one command or one change that solves it. */
export interface Finding {
  readonly name: string;
  readonly state: 'ok' | 'warn' | 'fail';
  readonly text: string;
  readonly fix?: string;
}

const MARK = { ok: '✓', warn: '!', fail: '✗' } as const;

/** `reindeer doctor`: looks at everything that a start needs, and changes nothing but an absent data folder. Answers the exit code. */
export async function doctor(host: Host, command: Extract<Command, { name: 'doctor' }>): Promise<number> {
  const findings = await examine(host, command);
  if (command.json)
    await host.print(`${JSON.stringify({ ok: findings.every(({ state }) => state !== 'fail'), findings })}\n`);
  else
    for (const { name, state, text, fix } of findings)
      await host.print(
        `${MARK[state]} ${name.padEnd(14)} ${text}\n${fix === undefined ? '' : `${' '.repeat(17)}→ ${fix}\n`}`,
      );
  return findings.some(({ state }) => state === 'fail') ? EXIT.failed : EXIT.done;
}

async function examine(host: Host, command: Extract<Command, { name: 'doctor' }>): Promise<Finding[]> {
  const findings: Finding[] = [nodeFinding(host.nodeVersion)];
  let settings: Settings;
  let variables: Variables;
  try {
    const loaded = await loadConfig({ path: command.config, cwd: host.cwd, environment: host.environment });
    settings = resolveSettings(loaded, command);
    variables = loaded.variables;
    findings.push({ name: 'configuration', state: 'ok', text: loaded.file ?? 'no config.yaml: defaults' });
    for (const text of [...loaded.warnings, ...settings.warnings])
      findings.push({ name: 'configuration', state: 'warn', text });
  } catch (error) {
    findings.push({
      name: 'configuration',
      state: 'fail',
      text: messageOf(error),
      fix: 'correct the named lines, then run reindeer doctor again',
    });
    return findings;
  }
  findings.push(await dataFinding(host, settings));
  findings.push(await portFinding(settings));
  findings.push(...(await runningFindings(settings)));
  findings.push(...modelFindings(settings));
  findings.push(...(await sandboxFindings(settings, variables)));
  return findings;
}

const messageOf = (error: unknown) => (error instanceof Error ? error.message : String(error));

function nodeFinding(version: string): Finding {
  const major = Number(version.replace(/^v/, '').split('.')[0]);
  if (major >= 24) return { name: 'node', state: 'ok', text: version };
  return {
    name: 'node',
    state: 'fail',
    text: `${version} is too old: Reindeer needs Node 24.`,
    fix: 'npm start (it brings Node 24 for this project alone)',
  };
}

async function databaseFinding({ postgres, home }: Settings & { readonly postgres: object }): Promise<Finding> {
  const name = 'database';
  try {
    const { url } = postgres;
    const stores = await openPostgres({ url, folder: home, connections: 1, surroundings: systemSurroundings() });
    await stores.close();
    return { name, state: 'ok', text: `Postgres at ${new URL(url).host}, files in ${home}` };
  } catch (error) {
    const fix = 'database.postgres_url in config.yaml';
    return { name, state: 'fail', text: error instanceof Error ? error.message : String(error), fix };
  }
}

async function dataFinding(host: Host, settings: Settings): Promise<Finding> {
  if (settings.postgres !== null) return databaseFinding({ ...settings, postgres: settings.postgres });
  const name = 'data folder';
  const { databaseWorker } = resourcesOf(host.entry);
  try {
    const stores = await openSqlite({
      folder: settings.databaseFolder,
      surroundings: systemSurroundings(),
      ...(databaseWorker === undefined ? {} : { workerUrl: databaseWorker }),
    });
    await stores.close();
    return { name, state: 'ok', text: settings.home };
  } catch (error) {
    if (ReindeerError.is(error) && error.code === 'data_folder_locked') {
      const pid = error.detail?.pid;
      return {
        name,
        state: 'ok',
        text: `${settings.home}, in use by a running Reindeer${pid === undefined ? '' : ` (process ${String(pid)})`}`,
      };
    }
    const tooNew = ReindeerError.is(error) && error.code === 'data_too_new';
    return {
      name,
      state: 'fail',
      text: messageOf(error),
      fix: tooNew
        ? 'npm update, or set REINDEER_HOME to another folder'
        : `mkdir -p ${settings.home} && chown -R "$USER" ${settings.home}, or set REINDEER_HOME to a folder that you can write`,
    };
  }
}

async function portFinding({ server }: Settings): Promise<Finding> {
  const name = 'port';
  const code = await tryPort(server.host, server.port);
  if (code === null) return { name, state: 'ok', text: `${server.host}:${server.port} is free` };
  if (code === 'EADDRINUSE' && (await healthOf(server)) !== null)
    return { name, state: 'ok', text: `${server.host}:${server.port}: Reindeer is running there` };
  return {
    name,
    state: 'fail',
    text:
      code === 'EADDRINUSE'
        ? `${server.host}:${server.port} is taken by another program.`
        : `${server.host}:${server.port} cannot be opened (${code}).`,
    fix: `reindeer serve --port ${server.port === 0 ? 0 : server.port + 1}`,
  };
}

function tryPort(host: string, port: number): Promise<string | null> {
  return new Promise((resolve) => {
    const probe = createServer();
    probe.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
    probe.listen({ host, port, exclusive: true }, () => probe.close(() => resolve(null)));
  });
}

/** What a running server says of itself; null = none answers there, or something else. */
async function healthOf({ host, port }: Settings['server']): Promise<Health | null> {
  try {
    const answer = await fetch(`http://${host.includes(':') ? `[${host}]` : host}:${port}/health`, {
      signal: AbortSignal.timeout(2_000),
    });
    const health = (await answer.json()) as Health;
    return health.service === 'reindeer-gateway' ? health : null;
  } catch {
    return null;
  }
}

interface Health {
  readonly service?: string;
  readonly configuration?: { readonly status?: string; readonly restart?: readonly string[] };
}

/** Does the running server use the configuration that was read here? */
async function runningFindings({ server }: Settings): Promise<Finding[]> {
  const configuration = server.port === 0 ? undefined : (await healthOf(server))?.configuration;
  const name = 'running server';
  if (configuration?.status === 'faulty')
    return [
      {
        name,
        state: 'warn',
        text: 'It found a fault in the changed configuration and goes on with the earlier one.',
        fix: 'GET /api/config names line and key',
      },
    ];
  const restart = configuration?.restart ?? [];
  if (restart.length === 0) return [];
  return [{ name, state: 'warn', text: `These changes wait for a restart: ${restart.join(', ')}.`, fix: 'restart it' }];
}

function modelFindings({ models }: Settings): Finding[] {
  if (models.every((model) => model.use === DEMO_USE))
    return [
      {
        name: 'models',
        state: 'warn',
        text: 'No model is configured: the demo model answers. It is scripted, not a real AI.',
        fix: 'put OPENAI_API_KEY=… or ANTHROPIC_API_KEY=… into .env, or add models to config.yaml',
      },
    ];
  return [
    { name: 'models', state: 'ok', text: models.map((model) => `${model.name} (${model.use ?? 'openai'})`).join(', ') },
  ];
}

async function sandboxFindings(settings: Settings, environment: Variables): Promise<Finding[]> {
  const name = 'sandbox';
  const surroundings = systemSurroundings();
  try {
    const parts = { home: settings.home, surroundings, environment };
    // Containers are only asked about: nothing is adopted, and what others run is not stopped.
    const common = () => ({
      ...parts,
      settings: containerSettings(settings),
      ownership: new MemoryOwnershipStore({ ownerId: 'doctor', clock: surroundings.clock, ttlMs: 1_000 }),
    });
    const provisioner = provisionerOf(settings, environment);
    const provider =
      settings.sandbox.provider === 'own'
        ? await ownSandboxes(settings, surroundings)
        : settings.sandbox.provider !== 'container'
          ? await createSandboxProvider({ ...parts, settings: sandboxSettings(settings) })
          : provisioner === null
            ? await createContainerProvider(common())
            : await createRemoteProvider({ ...common(), ...provisioner });
    const report = provider.report();
    await provider.shutdown();
    if (!report.canExecute)
      return [
        {
          name,
          state: 'warn',
          text: `Commands cannot run, only file tools: ${report.reason ?? 'no sandbox'}`,
          ...(report.remedy === undefined ? {} : { fix: report.remedy }),
        },
      ];
    const findings: Finding[] = [
      {
        name,
        state: report.provider === 'local' ? 'warn' : 'ok',
        text: `${report.provider}, network ${report.network}${report.provider === 'local' ? ': commands run as your own user, without isolation' : ''}`,
        ...(report.provider === 'local'
          ? { fix: 'apt-get install bubblewrap, then sandbox.use: bubblewrap in config.yaml' }
          : {}),
      },
    ];
    for (const limit of report.limits) {
      const note = limit.note === undefined ? '' : ` (${limit.note})`;
      findings.push(
        limit.enforcedBy === null
          ? { name: `  ${limit.name}`, state: 'warn', text: `not enforced on this machine${note}` }
          : { name: `  ${limit.name}`, state: 'ok', text: `${limit.value}, by ${limit.enforcedBy}${note}` },
      );
    }
    return findings;
  } catch (error) {
    return [{ name, state: 'fail', text: messageOf(error), fix: 'correct the section sandbox of config.yaml' }];
  }
}
