// The house rules that no linter knows: who may import whom, exact pins, no blocking calls in serving code, bounded file sizes.
import { glob, readFile } from 'node:fs/promises';
import { join } from 'node:path';

const root = join(import.meta.dirname, '..');

/** package → what its product code may import of ours. Tests may also import testkit and scripted. */
const mayImport: Readonly<Record<string, readonly string[]>> = {
  protocol: [],
  database: ['protocol'],
  sandbox: ['protocol'],
  scripted: ['protocol'],
  runtime: ['protocol', 'database'],
  agent: ['protocol', 'sandbox'],
  channels: ['protocol'],
  gateway: ['protocol', 'database', 'sandbox', 'runtime', 'agent', 'channels', 'scripted'],
  client: ['protocol', 'gateway'],
  web: ['protocol'],
  testkit: ['protocol', 'scripted'],
  simulator: ['protocol', 'database', 'sandbox', 'runtime', 'agent', 'channels', 'gateway', 'scripted', 'testkit'],
};
const forTests = ['testkit', 'scripted'];
const isTest = (file: string) =>
  /\.(test|contract|examples|fixture)\.tsx?$|(^|\/)(fixture|test-support|testing)(\.ts|\/)/.test(file);

/** Files whose synchronous calls happen before serving, in a worker, or in a short-lived command; with the reason. */
const maySync: readonly { readonly file: RegExp; readonly why: string }[] = [
  { file: /packages\/testkit\//, why: 'test tools' },
  { file: /packages\/simulator\//, why: 'a command-line program' },
  { file: /worker(-[a-z]+)?\.ts$/, why: 'runs in a worker' },
];

const problems: string[] = [];
const report = (file: string, line: number, text: string) => problems.push(`${file}:${line}: ${text}`);

const files: string[] = [];
for await (const file of glob('packages/*/src/**/*.{ts,tsx}', { cwd: root })) files.push(file);
files.sort();

for (const file of files) {
  const name = file.split('/')[1] ?? '';
  const text = await readFile(join(root, file), 'utf8');
  const lines = text.split('\n');
  const allowed = new Set([
    ...(mayImport[name] ?? []),
    ...(isTest(file) ? [...forTests, ...(mayImport[name] ?? []), 'database', 'protocol'] : []),
  ]);
  lines.forEach((line, index) => {
    for (const match of line.matchAll(/(?:from|import)\s*\(?\s*['"]@reindeer\/([a-z]+)(\/[^'"]*)?['"]/g)) {
      const target = match[1] ?? '';
      if (target !== name && !allowed.has(target))
        report(file, index + 1, `${name} may not import ${target} (see AGENTS.md, "Who may import whom")`);
      if (match[2] !== undefined) report(file, index + 1, `import @reindeer/${target} by its name, not ${match[2]}`);
    }
    if (/from\s+['"](\.\.\/)+(\.\.\/)*packages\//.test(line) || /from\s+['"]\.\.\/\.\.\/\.\.\/[a-z]+\/src/.test(line)) {
      report(file, index + 1, 'import another package by its name');
    }
    const code = line.replace(/\/\/.*$/, '').replace(/^\s*\*.*$/, '');
    if (
      !isTest(file) &&
      /\b(readFile|writeFile|stat|lstat|exists|mkdir|rm|readdir|rename|unlink|open|access|realpath|copyFile|exec|execFile|spawn|gzip|gunzip|inflate|deflate|pbkdf2|scrypt)Sync\s*\(/.test(
        code,
      )
    ) {
      if (!maySync.some((one) => one.file.test(file)))
        report(file, index + 1, 'a synchronous call blocks the event loop; use the asynchronous one');
    }
    if (/\b(TODO|FIXME|XXX)\b/.test(line))
      report(file, index + 1, 'finish it or file it; no notes to self in the code');
    if (/\b(describe|it|test)\.only\(/.test(line)) report(file, index + 1, 'a focused test hides all others');
    if (/\b(describe|it|test)\.skip\(/.test(line))
      report(file, index + 1, 'skip inside the test, with the reason: ctx.skip("why")');
  });
}

// Exact pins everywhere, and only packages that are declared.
for await (const file of glob('{package.json,packages/*/package.json}', { cwd: root })) {
  const manifest: Record<string, Record<string, string> | undefined> = JSON.parse(
    await readFile(join(root, file), 'utf8'),
  );
  for (const group of ['dependencies', 'devDependencies', 'optionalDependencies']) {
    for (const [name, version] of Object.entries(manifest[group] ?? {})) {
      if (!/^\d+\.\d+\.\d+(-[\w.]+)?$/.test(version))
        report(file, 1, `${name} must be pinned exactly, not "${version}"`);
    }
  }
}
const lock: { packages: Record<string, { dev?: boolean; link?: boolean; optional?: boolean; devOptional?: boolean }> } =
  JSON.parse(await readFile(join(root, 'package-lock.json'), 'utf8'));
const production = Object.entries(lock.packages).filter(
  ([path, entry]) => path.startsWith('node_modules/') && !entry.dev && !entry.link && !entry.devOptional,
);
if (production.length > 250)
  report(
    'package-lock.json',
    1,
    `${production.length} production packages; at most 250 (make a part optional, or do without)`,
  );

for (const problem of problems) process.stdout.write(`${problem}\n`);
process.stdout.write(
  `${files.length} files, ${production.length} production packages: ${problems.length === 0 ? 'all house rules hold' : `${problems.length} problems`}\n`,
);
process.exitCode = problems.length === 0 ? 0 : 1;
