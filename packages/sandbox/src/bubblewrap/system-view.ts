import { access, constants, lstat, readlink, realpath } from 'node:fs/promises';
import type { SystemView } from './arguments.ts';

/** The programs of the machine. Older systems have real folders where newer ones have links into `/usr`. */
const PROGRAM_FOLDERS = ['/usr', '/bin', '/sbin', '/lib', '/lib32', '/lib64', '/libx32', '/nix/store'];

/** What programs need of `/etc`: libraries, certificates, time, fonts. No accounts, no keys, no configuration of services. */
const SYSTEM_FILES = [
  '/etc/ld.so.cache',
  '/etc/ld.so.conf',
  '/etc/ld.so.conf.d',
  '/etc/alternatives',
  '/etc/ssl/certs',
  '/etc/ssl/openssl.cnf',
  '/etc/ca-certificates',
  '/etc/ca-certificates.conf',
  '/etc/pki/tls/certs',
  '/etc/pki/tls/openssl.cnf',
  '/etc/pki/ca-trust',
  '/etc/crypto-policies',
  '/etc/localtime',
  '/etc/timezone',
  '/etc/mime.types',
  '/etc/magic',
  '/etc/protocols',
  '/etc/services',
  '/etc/fonts',
  '/etc/terminfo',
  '/etc/inputrc',
  '/etc/debian_version',
  '/etc/os-release',
  '/etc/redhat-release',
  '/etc/lsb-release',
  '/etc/python3',
  '/etc/python3.9',
  '/etc/python3.10',
  '/etc/python3.11',
  '/etc/python3.12',
  '/etc/python3.13',
  '/etc/python3.14',
  '/etc/perl',
  '/etc/texmf',
  '/etc/ImageMagick-6',
  '/etc/ImageMagick-7',
  '/etc/libreoffice',
];
/** Only with the host's network. */
const NETWORK_FILES = ['/etc/resolv.conf', '/etc/hosts', '/etc/gai.conf'];

export interface SystemViewInput {
  readonly network: 'none' | 'host';
  /** Real folders that must not show although they lie below a mounted one: the data folder, the program's own folder. */
  readonly hidden: readonly string[];
  readonly sizedTmpfs: boolean;
}

/** Looks once, at start, at what of the machine can be shown to commands. */
export async function findSystemView(input: SystemViewInput): Promise<SystemView> {
  const readOnly: string[] = [];
  const symlinks: (readonly [string, string])[] = [];
  const wanted = [...PROGRAM_FOLDERS, ...SYSTEM_FILES, ...(input.network === 'host' ? NETWORK_FILES : [])];
  for (const path of wanted) {
    const info = await lstat(path).catch(() => null);
    if (info === null) continue;
    if (info.isSymbolicLink() && PROGRAM_FOLDERS.includes(path)) symlinks.push([await readlink(path), path]);
    else if (await readable(path)) readOnly.push(path);
  }
  return { readOnly, symlinks, hidden: await hiddenBelow(input.hidden, readOnly), sizedTmpfs: input.sizedTmpfs };
}

function readable(path: string): Promise<boolean> {
  return access(path, constants.R_OK).then(
    () => true,
    () => false,
  );
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
