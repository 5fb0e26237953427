/**
 * A filter for the system calls of a command, as a program for the kernel (classic BPF, `seccomp(2)`).
 *
 * It closes what namespaces leave open: making further namespaces (inside one a command could mount memory file systems without
 * a size and so pass every limit), kernel keyrings (shared with the host), VM sockets (which no network namespace holds), and
 * interfaces that ordinary programs never need and that are known for kernel faults. Everything else stays allowed.
 */

type Architecture = 'x64' | 'arm64';

/** Number of each call named below: x64, arm64 (from the kernel's tables; from 424 on all agree). */
const NUMBERS = {
  clone: [56, 220],
  clone3: [435, 435],
  unshare: [272, 97],
  socket: [41, 198],
  ioctl: [16, 29],
  mount: [165, 40],
  umount2: [166, 39],
  pivot_root: [155, 41],
  setns: [308, 268],
  open_tree: [428, 428],
  move_mount: [429, 429],
  fsopen: [430, 430],
  fsconfig: [431, 431],
  fsmount: [432, 432],
  fspick: [433, 433],
  mount_setattr: [442, 442],
  bpf: [321, 280],
  perf_event_open: [298, 241],
  userfaultfd: [323, 282],
  add_key: [248, 217],
  request_key: [249, 218],
  keyctl: [250, 219],
  io_uring_setup: [425, 425],
  io_uring_enter: [426, 426],
  io_uring_register: [427, 427],
  kexec_load: [246, 104],
  kexec_file_load: [320, 294],
  init_module: [175, 105],
  finit_module: [313, 273],
  delete_module: [176, 106],
  open_by_handle_at: [304, 265],
  reboot: [169, 142],
  swapon: [167, 224],
  swapoff: [168, 225],
  acct: [163, 89],
  quotactl: [179, 60],
  quotactl_fd: [443, 443],
} as const satisfies Record<string, readonly [number, number]>;

type CallName = keyof typeof NUMBERS;

/** Refused with "operation not permitted". */
const FORBIDDEN: readonly CallName[] = [
  'mount',
  'umount2',
  'pivot_root',
  'setns',
  'open_tree',
  'move_mount',
  'fsopen',
  'fsconfig',
  'fsmount',
  'fspick',
  'mount_setattr',
  'bpf',
  'perf_event_open',
  'userfaultfd',
  'add_key',
  'request_key',
  'keyctl',
  'kexec_load',
  'kexec_file_load',
  'init_module',
  'finit_module',
  'delete_module',
  'open_by_handle_at',
  'reboot',
  'swapon',
  'swapoff',
  'acct',
  'quotactl',
  'quotactl_fd',
];
/** Answered as if the kernel did not know them, so that programs fall back: `clone3` hides its flags in memory that a filter cannot read. */
const UNKNOWN: readonly CallName[] = ['clone3', 'io_uring_setup', 'io_uring_enter', 'io_uring_register'];

const EPERM = 1;
const ENOSYS = 38;
const EAFNOSUPPORT = 97;
const AUDIT_ARCHITECTURE: Record<Architecture, number> = { x64: 0xc000_003e, arm64: 0xc000_00b7 };
/** CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET. */
const NEW_NAMESPACES = 0x7e02_0000;
const AF_VSOCK = 40;
/** Typing into the terminal of somebody else. */
const TIOCSTI = 0x5412;
const TIOCLINUX = 0x541c;
/** Calls of the x32 kind carry this bit. */
const X32 = 0x4000_0000;

/** Offsets in `struct seccomp_data`; the lower half of an argument lies first on these machines. */
const NUMBER = 0;
const ARCHITECTURE = 4;
const argument = (index: number) => 16 + 8 * index;

interface Instruction {
  readonly code: number;
  readonly jumpTrue: number;
  readonly jumpFalse: number;
  readonly value: number;
}

const load = (offset: number): Instruction => ({ code: 0x20, jumpTrue: 0, jumpFalse: 0, value: offset });
const answer = (value: number): Instruction => ({ code: 0x06, jumpTrue: 0, jumpFalse: 0, value });
const refuse = (error: number): Instruction => answer(0x0005_0000 | error);
const ALLOW = answer(0x7fff_0000);
/** Skips the next `count` instructions unless the loaded value equals, is at least, or shares a bit with `value`. */
const unlessEqual = (value: number, count: number): Instruction => ({
  code: 0x15,
  jumpTrue: 0,
  jumpFalse: count,
  value,
});
const unlessAtLeast = (value: number, count: number): Instruction => ({
  code: 0x35,
  jumpTrue: 0,
  jumpFalse: count,
  value,
});
const unlessAnyBit = (value: number, count: number): Instruction => ({
  code: 0x45,
  jumpTrue: 0,
  jumpFalse: count,
  value,
});

/** The filter for this kind of processor, or null where its call numbers are not known here. */
export function systemCallFilter(processor: string): Buffer | null {
  if (processor !== 'x64' && processor !== 'arm64') return null;
  const number = (name: CallName) => NUMBERS[name][processor === 'x64' ? 0 : 1];
  const program: Instruction[] = [
    load(ARCHITECTURE),
    // Calls of another kind (32-bit programs) have other numbers: none is let through.
    { code: 0x15, jumpTrue: 1, jumpFalse: 0, value: AUDIT_ARCHITECTURE[processor] },
    refuse(ENOSYS),
    load(NUMBER),
    ...(processor === 'x64' ? [unlessAtLeast(X32, 1), refuse(ENOSYS)] : []),
    ...FORBIDDEN.flatMap((name) => [unlessEqual(number(name), 1), refuse(EPERM)]),
    ...UNKNOWN.flatMap((name) => [unlessEqual(number(name), 1), refuse(ENOSYS)]),
    ...(['clone', 'unshare'] as const).flatMap((name) => [
      unlessEqual(number(name), 4),
      load(argument(0)),
      unlessAnyBit(NEW_NAMESPACES, 1),
      refuse(EPERM),
      ALLOW,
    ]),
    ...[unlessEqual(number('socket'), 4), load(argument(0)), unlessEqual(AF_VSOCK, 1), refuse(EAFNOSUPPORT), ALLOW],
    unlessEqual(number('ioctl'), 6),
    load(argument(1)),
    ...[unlessEqual(TIOCSTI, 1), refuse(EPERM), unlessEqual(TIOCLINUX, 1), refuse(EPERM)],
    ALLOW,
    ALLOW,
  ];
  const bytes = Buffer.alloc(program.length * 8);
  for (const [index, { code, jumpTrue, jumpFalse, value }] of program.entries()) {
    bytes.writeUInt16LE(code, index * 8);
    bytes.writeUInt8(jumpTrue, index * 8 + 2);
    bytes.writeUInt8(jumpFalse, index * 8 + 3);
    bytes.writeUInt32LE(value, index * 8 + 4);
  }
  return bytes;
}
