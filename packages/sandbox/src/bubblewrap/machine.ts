import { access, constants, readdir, readFile } from 'node:fs/promises';

/** Absolute path of a program in a `PATH`, or null. */
export async function findProgram(name: string, searchPath: string): Promise<string | null> {
  for (const folder of searchPath.split(':')) {
    if (!folder.startsWith('/')) continue;
    const path = `${folder}/${name}`;
    const usable = await access(path, constants.X_OK).then(
      () => true,
      () => false,
    );
    if (usable) return path;
  }
  return null;
}

/** The one command that installs a package here. */
export async function installCommand(name: 'bubblewrap' | 'bash', osRelease?: string): Promise<string> {
  const text = osRelease ?? (await readFile('/etc/os-release', 'utf8').catch(() => ''));
  const ids = [...text.matchAll(/^(?:ID|ID_LIKE)="?([^"\n]*)"?$/gm)].flatMap((match) => (match[1] ?? '').split(' '));
  const is = (...names: string[]) => names.some((id) => ids.includes(id));
  const sudo = process.getuid?.() === 0 ? '' : 'sudo ';
  if (is('fedora', 'rhel', 'centos')) return `${sudo}dnf install ${name}`;
  if (is('arch')) return `${sudo}pacman -S ${name}`;
  if (is('alpine')) return `${sudo}apk add bubblewrap bash coreutils util-linux`;
  if (is('suse', 'opensuse')) return `${sudo}zypper install ${name}`;
  return `${sudo}apt-get install ${name}`;
}

/** Why the kernel refuses sandboxes here, and the command that allows them. */
export async function explainRefusal(output: string): Promise<{ readonly reason: string; readonly remedy: string }> {
  const setting = async (name: string) =>
    (await readFile(`/proc/sys/${name.replaceAll('.', '/')}`, 'utf8').catch(() => '')).trim();
  const sudo = process.getuid?.() === 0 ? '' : 'sudo ';
  if ((await setting('kernel.apparmor_restrict_unprivileged_userns')) === '1') {
    return {
      reason: 'AppArmor refuses user namespaces to ordinary programs.',
      remedy: `${sudo}sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`,
    };
  }
  if ((await setting('kernel.unprivileged_userns_clone')) === '0') {
    return {
      reason: 'The kernel refuses user namespaces.',
      remedy: `${sudo}sysctl -w kernel.unprivileged_userns_clone=1`,
    };
  }
  if ((await setting('user.max_user_namespaces')) === '0') {
    return {
      reason: 'The kernel allows no user namespaces.',
      remedy: `${sudo}sysctl -w user.max_user_namespaces=10000`,
    };
  }
  const line = output.split('\n').find((candidate) => candidate.startsWith('bwrap:')) ?? 'it gave no reason';
  return {
    reason: `bubblewrap is installed but cannot make a sandbox here (${line.slice(0, 200)}).`,
    remedy:
      'If this is a container, start it with `--security-opt seccomp=unconfined --security-opt apparmor=unconfined --cap-add SYS_ADMIN`; otherwise run Reindeer as an ordinary user on the host.',
  };
}

const CLOSE_ON_EXEC = 0o2000000;

/**
 * Descriptors beyond stdin, stdout and stderr that this process was given by whoever started it and that its children would get as well.
 * All that it opens itself is closed in children by the system.
 */
export async function findInherited(): Promise<number[]> {
  const names = await readdir('/proc/self/fdinfo').catch(() => []);
  const inherited: number[] = [];
  for (const name of names) {
    const text = await readFile(`/proc/self/fdinfo/${name}`, 'utf8').catch(() => '');
    const flags = /^flags:\s*([0-7]+)$/m.exec(text)?.[1];
    if (Number(name) > 2 && flags !== undefined && (Number.parseInt(flags, 8) & CLOSE_ON_EXEC) === 0)
      inherited.push(Number(name));
  }
  return inherited;
}
