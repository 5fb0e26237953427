import { createHash } from 'node:crypto';
import { lstat, mkdir, readdir, readFile, readlink, realpath, rename, symlink, writeFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import type { Random } from '@reindeer/protocol';
import { INSIDE_UID, PRIVATE_GID, type SystemView } from './arguments.ts';

/** The programs of the machine. Older systems have real folders where newer ones have links into `/usr`. */
const PROGRAM_FOLDERS = ['/usr', '/bin', '/sbin', '/lib', '/lib32', '/lib64', '/libx32', '/nix/store'];

/**
 * What programs need of `/etc`: libraries, certificates, time, fonts. No accounts, no keys, no configuration of services. Every mount
 * makes the start of each command slower (twenty of them double it), so small things are copied once into a folder of ours that is
 * mounted as a whole, and only what is large or changes is mounted from the machine.
 */
const MOUNTED = [
  'ld.so.cache',
  'alternatives',
  'ssl/certs',
  'fonts',
  'pki/ca-trust',
  'pki/tls/certs',
  'crypto-policies',
];
const COPIED = [
  'ld.so.conf',
  'ld.so.conf.d',
  'ssl/openssl.cnf',
  'pki/tls/openssl.cnf',
  'localtime',
  'timezone',
  'mime.types',
  'magic',
  'protocols',
  'services',
  'terminfo',
  'inputrc',
  'debian_version',
  'os-release',
  'redhat-release',
  'lsb-release',
  'perl',
  'texmf',
  'libreoffice',
];
/** More to copy, by the beginning of the name: `python3.11`, `ImageMagick-6`. */
const COPIED_BEGINNINGS = ['python3', 'ImageMagick-', 'java-'];
/** Only with the host's network; mounted, because they change when a laptop changes its network. */
const NETWORK_FILES = ['resolv.conf', 'hosts', 'gai.conf'];
const MAX_COPIED_BYTES = 512 * 1024;
const MAX_COPIED_FILES = 300;
const MAX_COPIED_DEPTH = 4;

export interface SystemViewInput {
  readonly network: 'none' | 'host';
  /** Real folders that must not show although they lie below a mounted one: the data folder, the program's own folder. */
  readonly hidden: readonly string[];
  /** A folder of ours; the copy of `/etc` is made in it, under a name that stays the same on this machine. */
  readonly folder: string;
  readonly random: Random;
}

/** Looks once, at start, at what of the machine can be shown to commands. */
export async function findSystemView(input: SystemViewInput): Promise<Omit<SystemView, 'sizedTmpfs'>> {
  const programs: string[] = [];
  const symlinks: (readonly [string, string])[] = [];
  await Promise.all(
    PROGRAM_FOLDERS.map(async (path) => {
      const info = await lstat(path).catch(() => null);
      if (info?.isSymbolicLink() === true) symlinks.push([await readlink(path), path]);
      else if (info !== null) programs.push(path);
    }),
  );
  const key = createHash('sha256')
    .update(`${hostname()}\n${input.network}\n${process.getuid?.() ?? ''}`)
    .digest('hex');
  const etc = `${input.folder}/etc-${key.slice(0, 12)}`;
  const mounted = await new EtcCopy(etc, input.random).make(input.network);
  return {
    etc,
    readOnly: [...programs.sort(), ...mounted],
    symlinks: symlinks.sort(),
    hidden: await hiddenBelow(input.hidden, programs),
  };
}

/** Makes the folder that commands see as `/etc`. Files are put in place by renaming: a command may be reading them. */
class EtcCopy {
  readonly #folder: string;
  readonly #random: Random;
  #copied = 0;

  constructor(folder: string, random: Random) {
    this.#folder = folder;
    this.#random = random;
  }

  /** Returns what has to be mounted from the machine on top. */
  async make(network: 'none' | 'host'): Promise<string[]> {
    await mkdir(this.#folder, { recursive: true, mode: 0o755 });
    const own = {
      passwd: passwdFile(INSIDE_UID, INSIDE_UID),
      group: `root:x:0:\nagent:x:${INSIDE_UID}:\nsandbox:x:${PRIVATE_GID}:\nnogroup:x:65534:\n`,
      'nsswitch.conf': 'passwd: files\ngroup: files\nhosts: files dns\n',
      hosts: '127.0.0.1 localhost sandbox\n::1 localhost\n',
    };
    await Promise.all(Object.entries(own).map(([name, text]) => this.#put(name, text, 0o644)));
    const names = await readdir('/etc').catch(() => []);
    const more = names.filter((name) => COPIED_BEGINNINGS.some((beginning) => name.startsWith(beginning)));
    await Promise.all([...COPIED, ...more].map((name) => this.#copy(name, 0)));
    const wanted = [...MOUNTED, ...(network === 'host' ? NETWORK_FILES : [])];
    const mounted = await Promise.all(wanted.map((name) => this.#makePoint(name)));
    return mounted.filter((path) => path !== null);
  }

  /** Makes the empty file or folder on which the machine's own is mounted; null when the machine has none. */
  async #makePoint(name: string): Promise<string | null> {
    const path = `/etc/${name}`;
    const real = await realpath(path).catch(() => null);
    const info = real === null ? null : await lstat(real).catch(() => null);
    if (info === null) return null;
    if (info.isDirectory()) await mkdir(`${this.#folder}/${name}`, { recursive: true, mode: 0o755 });
    else if (info.isFile()) await this.#put(name, '', 0o644);
    else return null;
    return path;
  }

  /** Copies a small file or folder; what is absent, unreadable, special or too large is left out. */
  async #copy(name: string, depth: number): Promise<void> {
    const source = `/etc/${name}`;
    const info = await lstat(source).catch(() => null);
    if (info === null || depth > MAX_COPIED_DEPTH || this.#copied >= MAX_COPIED_FILES) return;
    this.#copied += 1;
    if (info.isDirectory()) {
      await mkdir(`${this.#folder}/${name}`, { recursive: true, mode: 0o755 });
      const names = await readdir(source).catch(() => []);
      await Promise.all(names.map((child) => this.#copy(`${name}/${child}`, depth + 1)));
      return;
    }
    if (info.isSymbolicLink() && depth > 0) {
      const temporary = `${this.#folder}/.${this.#random.uuid()}`;
      await symlink(await readlink(source), temporary);
      await rename(temporary, `${this.#folder}/${name}`);
      return;
    }
    const real = await realpath(source).catch(() => null);
    const file = real === null ? null : await lstat(real).catch(() => null);
    if (real === null || file === null || !file.isFile() || file.size > MAX_COPIED_BYTES) return;
    const bytes = await readFile(real).catch(() => null);
    if (bytes !== null) await this.#put(name, bytes, 0o644);
  }

  async #put(name: string, data: string | Uint8Array, mode: number): Promise<void> {
    const target = `${this.#folder}/${name}`;
    const slash = name.lastIndexOf('/');
    if (slash > 0) await mkdir(`${this.#folder}/${name.slice(0, slash)}`, { recursive: true, mode: 0o755 });
    const temporary = `${this.#folder}/.${this.#random.uuid()}`;
    await writeFile(temporary, data, { mode });
    await rename(temporary, target);
  }
}

/** The accounts that a command sees. */
export function passwdFile(uid: number, gid: number): string {
  return `root:x:0:0:root:/nonexistent:/usr/sbin/nologin\nagent:x:${uid}:${gid}:agent:/mnt/user-data/workspace:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n`;
}

/** The folders to cover: those below a mounted one that hold nothing which programs need. */
export async function hiddenBelow(hidden: readonly string[], readOnly: readonly string[]): Promise<string[]> {
  const needed = [
    '/usr/bin',
    '/usr/sbin',
    '/usr/lib',
    '/usr/lib64',
    '/usr/local/bin',
    '/usr/local/lib',
    '/usr/share',
    ...readOnly,
  ];
  const covered = new Set<string>();
  for (const folder of hidden) {
    const real = await realpath(folder).catch(() => null);
    if (real === null || !readOnly.some((path) => real.startsWith(`${path}/`))) continue;
    if (needed.some((path) => path === real || path.startsWith(`${real}/`))) continue;
    covered.add(real);
  }
  // A folder below another one that is covered already does not exist any more.
  return [...covered].filter((path) => ![...covered].some((other) => path.startsWith(`${other}/`))).sort();
}
