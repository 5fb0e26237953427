import { execFile, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { access, copyFile, mkdir, mkdtemp, readFile, realpath, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { askEngine } from './api.ts';

const run = promisify(execFile);

export interface ImageSources {
  /** Entry of the server in the sandbox, to be bundled. */
  readonly server: string;
  /** The container's first program. */
  readonly launcher: string;
}

const PROGRAMS = (
  'bash sh cat ls sleep mkdir rm cp mv ln chmod dd head tail wc sort uniq env id whoami seq touch tee tr cut sha256sum stat sync yes ' +
  'true false echo printf date dirname basename readlink realpath mktemp test timeout nohup setsid grep find sed kill'
).split(' ');
const REPOSITORY = 'reindeer-test-sandbox';

/**
 * A small image from files of this machine, without any network: Node, bash, some tools, their libraries, and the server bundled as the
 * build does it. Made once for an engine: its tag is a hash of all that goes in. Answers its name.
 */
export async function buildTestImage(socket: string, sources: ImageSources): Promise<string> {
  const scratch = await mkdtemp(join(tmpdir(), 'reindeer-image-'));
  try {
    const programs = await found(PROGRAMS);
    const libraries = await librariesOf([...programs, process.execPath]);
    const bundle = await bundled(sources.server);
    const launcher = await readFile(sources.launcher, 'utf8');
    const hash = createHash('sha256').update(bundle).update(launcher);
    for (const path of [...programs, ...libraries, process.execPath]) {
      const info = await stat(path);
      hash.update(`${path} ${info.size} ${info.mtimeMs}\n`);
    }
    const tag = hash.digest('hex').slice(0, 16);
    const name = `${REPOSITORY}:${tag}`;
    if ((await askEngine(socket, 'GET', `/images/${name}/json`)).status === 200) return name;
    await writeTree(join(scratch, 'root'), bundle, launcher);
    await imported(socket, tag, scratch, [...programs, ...libraries]);
    return name;
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

async function bundled(entry: string): Promise<string> {
  const { rolldown } = await import('rolldown');
  const bundle = await rolldown({ input: entry, platform: 'node', logLevel: 'warn', treeshake: true });
  const { output } = await bundle.generate({ format: 'esm', codeSplitting: false });
  await bundle.close();
  return output[0].code;
}

async function found(names: readonly string[]): Promise<string[]> {
  const places = ['/usr/bin', '/bin', '/usr/local/bin'];
  const paths = await Promise.all(
    names.map(async (name) => {
      for (const place of places) {
        const path = join(place, name);
        if (
          await access(path).then(
            () => true,
            () => false,
          )
        )
          return join(await realpath(place), name);
      }
      return [];
    }),
  );
  return paths.flat();
}

async function librariesOf(programs: readonly string[]): Promise<string[]> {
  const libraries = new Set<string>();
  for (const program of programs) {
    const { stdout } = await run('ldd', [program]).catch(() => ({ stdout: '' }));
    for (const [path] of stdout.matchAll(/\/\S+/g)) if (!path.endsWith(':')) libraries.add(path);
  }
  return [...libraries];
}

async function writeTree(root: string, bundle: string, launcher: string): Promise<void> {
  for (const folder of ['opt/reindeer', 'tmp', 'etc', 'mnt/user-data', 'run', 'proc', 'sys', 'dev', 'usr/local/bin'])
    await mkdir(join(root, folder), { recursive: true });
  await symlink('usr/bin', join(root, 'bin'));
  await writeFile(join(root, 'opt/reindeer/server.mjs'), bundle);
  await writeFile(join(root, 'opt/reindeer/start.sh'), launcher, { mode: 0o755 });
  await writeFile(join(root, 'etc/passwd'), 'root:x:0:0:root:/:/bin/bash\n');
  await copyFile(process.execPath, join(root, 'usr/local/bin/node'));
}

async function imported(socket: string, tag: string, scratch: string, files: readonly string[]): Promise<void> {
  // Links to files become files; the links of our own tree stay.
  const tar = spawn(
    'bash',
    [
      '-c',
      'tar -C "$1" -cf "$2" . && tar -C / -rhf "$2" --no-recursion -T - && cat "$2"',
      'tar',
      join(scratch, 'root'),
      join(scratch, 'image.tar'),
    ],
    { stdio: ['pipe', 'pipe', 'inherit'] },
  );
  tar.stdin.end(`${files.map((path) => path.slice(1)).join('\n')}\n`);
  const changes = [
    'ENV PATH=/usr/local/bin:/usr/bin:/bin',
    'ENTRYPOINT ["/bin/bash","/opt/reindeer/start.sh"]',
    'LABEL reindeer.sandbox=1',
  ];
  // With its tag in the name: Podman overlooks a tag that is given apart.
  const query = new URLSearchParams({ fromSrc: '-', repo: `${REPOSITORY}:${tag}` });
  for (const change of changes) query.append('changes', change);
  const reply = await askEngine(socket, 'POST', `/images/create?${query}`, tar.stdout);
  if (reply.status !== 200 || reply.text.includes('"error"'))
    throw new Error(`The test image could not be imported: ${reply.text.slice(-400)}`);
}
