import { SKILLS_ROOT, VIRTUAL_ROOT } from '@reindeer/protocol';
import type { CommandLimits } from './limits.ts';

/**
 * How a command loses the rights of the server's user.
 * `private-uid`: we are root; bubblewrap sets up the mounts as root and a user id of the thread's own takes over inside, so that
 * even the kernel's view of files and process counts is separate. `user-namespace`: we are an ordinary user.
 */
export type Identity =
  | { readonly kind: 'private-uid'; readonly uid: number }
  | { readonly kind: 'user-namespace'; readonly disableNested: boolean };

export const INSIDE_UID = 1000;
/** Group of all private user ids. It opens nothing: the folders of a thread are closed to groups. */
export const PRIVATE_GID = 1_879_048_190;

/** The real folders of one thread that a command sees. */
export interface ThreadFolders {
  readonly workspace: string;
  readonly uploads: string;
  readonly outputs: string;
  /** The thread's own `/tmp`; kept between its commands and part of its disk quota. */
  readonly temporary: string;
  /** Names the thread's private user id; exists only where there is one. */
  readonly passwd: string;
}

/** What of the machine is shown inside, as found at start. */
export interface SystemView {
  /** Folder mounted as `/etc`, made by us. */
  readonly etc: string;
  /** Real folders and files mounted read-only at the same path. */
  readonly readOnly: readonly string[];
  /** `[target, path]`: `usr/bin` at `/bin`. */
  readonly symlinks: readonly (readonly [string, string])[];
  /** Folders covered by an empty one. */
  readonly hidden: readonly string[];
  /** Does this bubblewrap know `--size` and `--perms`? */
  readonly sizedTmpfs: boolean;
}

export interface BubblewrapCommand {
  readonly identity: Identity;
  readonly folders: ThreadFolders;
  /** The user's skills. */
  readonly skills: string;
  readonly system: SystemView;
  readonly network: 'none' | 'host';
  readonly limits: CommandLimits;
  /** Are process counts limited by `ulimit` as well? Only where a probe showed that it counts this sandbox alone. */
  readonly limitProcesses: boolean;
  readonly cwd: string;
  readonly environment: Readonly<Record<string, string>>;
  readonly command: string;
  /** Descriptors that the server itself inherited and would pass on. */
  readonly inheritedDescriptors: readonly number[];
  /** Wait on this descriptor before the command starts. */
  readonly blockDescriptor: number | null;
  readonly statusDescriptor: number;
  /** The filter for system calls is read from this descriptor. */
  readonly filterDescriptor: number | null;
}

const SHARED_MEMORY_BYTES = 64 * 1024 * 1024;

/** The clean environment of every command. */
export function baseEnvironment(): Record<string, string> {
  return {
    PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
    HOME: `${VIRTUAL_ROOT}/workspace`,
    LANG: 'C.UTF-8',
    TMPDIR: '/tmp',
    SHELL: '/bin/bash',
    USER: 'agent',
    LOGNAME: 'agent',
    TERM: 'dumb',
  };
}

/**
 * Everything that bubblewrap is told, to be handed over by `--args` (so that no value shows in the machine's process list).
 * The order counts: later mounts lie on top of earlier ones; the read-only remounts come last.
 */
export function bubblewrapArguments(input: BubblewrapCommand): string[] {
  const { folders, system } = input;
  const shared = system.sizedTmpfs
    ? ['--perms', '1777', '--size', String(SHARED_MEMORY_BYTES), '--tmpfs', '/dev/shm']
    : ['--bind', folders.temporary, '/dev/shm'];
  const privateUid = input.identity.kind === 'private-uid';
  return [
    ...namespaces(input),
    // Parents that bubblewrap makes by itself are closed to everybody but root.
    ...parentsOf([...PARENTS, ...system.readOnly.filter((path) => !path.startsWith('/etc/'))]).flatMap((path) => [
      '--dir',
      path,
    ]),
    ...['--ro-bind', system.etc, '/etc'],
    ...(privateUid ? ['--ro-bind', folders.passwd, '/etc/passwd'] : []),
    ...system.readOnly.flatMap((path) => ['--ro-bind', path, path]),
    ...system.symlinks.flatMap(([target, path]) => ['--symlink', target, path]),
    ...system.hidden.flatMap((path) => ['--tmpfs', path, '--remount-ro', path]),
    ...['--proc', '/proc', '--dev', '/dev', ...shared, '--dir', '/run'],
    ...['--bind', folders.temporary, '/tmp', '--symlink', '../tmp', '/var/tmp'],
    ...['--bind', folders.workspace, `${VIRTUAL_ROOT}/workspace`],
    ...['--ro-bind', folders.uploads, `${VIRTUAL_ROOT}/uploads`],
    ...['--bind', folders.outputs, `${VIRTUAL_ROOT}/outputs`],
    ...['--ro-bind', input.skills, SKILLS_ROOT],
    // Root and /dev are memory file systems without a size: writable, they would be a way around every limit. Under a private user
    // id they belong to somebody else already.
    ...(privateUid ? [] : ['--remount-ro', '/dev', '--remount-ro', '/']),
    // Not the working folder: while root without capabilities is still in charge it may not enter the thread's folders.
    ...['--chdir', '/'],
    ...Object.entries(input.environment).flatMap(([name, value]) => ['--setenv', name, value]),
    ...['--json-status-fd', String(input.statusDescriptor)],
    ...(input.filterDescriptor === null ? [] : ['--seccomp', String(input.filterDescriptor)]),
    ...(input.blockDescriptor === null ? [] : ['--block-fd', String(input.blockDescriptor)]),
  ];
}

const PARENTS = ['/var/tmp', `${VIRTUAL_ROOT}/workspace`, SKILLS_ROOT];

/** All folders above these paths, outermost first. */
function parentsOf(paths: readonly string[]): string[] {
  const parents = new Set<string>();
  for (const path of paths) {
    for (let at = path.lastIndexOf('/'); at > 0; at = path.lastIndexOf('/', at - 1)) parents.add(path.slice(0, at));
  }
  return [...parents].sort();
}

function namespaces(input: BubblewrapCommand): string[] {
  const common = ['--unshare-pid', '--unshare-ipc', '--unshare-uts', '--unshare-cgroup-try', '--hostname', 'sandbox'];
  const isolation = [...common, '--die-with-parent', '--new-session', '--cap-drop', 'ALL'];
  if (input.network === 'none') isolation.push('--unshare-net');
  if (input.identity.kind === 'private-uid') {
    // Only until `setpriv` has changed the user id; the change clears them.
    return [...isolation, '--cap-add', 'CAP_SETUID', '--cap-add', 'CAP_SETGID'];
  }
  const id = String(INSIDE_UID);
  isolation.push('--unshare-user', '--uid', id, '--gid', id);
  if (input.identity.disableNested) isolation.push('--disable-userns');
  return isolation;
}

/**
 * The program inside and its arguments: one bash that first sets the limits a process sets for itself, then becomes the command. The
 * command is evaluated after them, so that no text of it, however broken, can keep them from being set.
 */
export function insideCommand(
  input: Pick<BubblewrapCommand, 'identity' | 'limits' | 'limitProcesses' | 'inheritedDescriptors' | 'cwd' | 'command'>,
): string[] {
  const blocks = Math.max(1, Math.floor(input.limits.diskBytes / 1024));
  const prelude = [
    ...input.inheritedDescriptors.map((descriptor) => `exec ${descriptor}>&-`),
    `ulimit -c 0 -f ${blocks}`,
    ...(input.limitProcesses ? [`ulimit -u ${input.limits.processes}`] : []),
    // When the whole machine runs out of memory, the kernel shall choose here first.
    'echo 1000 2>/dev/null >/proc/self/oom_score_adj',
    'cd -- "$2" || exit 126',
    'unset OLDPWD; c=$1; shift $#; eval "unset c; $c"',
  ];
  const shell = ['/bin/bash', '-c', prelude.join('; '), 'bash', input.command, input.cwd];
  if (input.identity.kind !== 'private-uid') return shell;
  const { uid } = input.identity;
  return [
    'setpriv',
    '--reuid',
    String(uid),
    '--regid',
    String(PRIVATE_GID),
    '--clear-groups',
    '--inh-caps=-all',
    '--',
    ...shell,
  ];
}
