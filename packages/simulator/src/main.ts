import { type ChildProcess, spawn } from 'node:child_process';
import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';
import type { MutantReport, SeedReport } from './frame/play.ts';
import { huntMutant, playSeeds } from './frame/play.ts';
import type { World } from './frame/world.ts';
import { WORLDS } from './worlds.ts';

const NAMES = WORLDS.map(({ name }) => name);

const USAGE = `Plays the product in simulated worlds, seed by seed.

  npm run simulate -- [--world NAME] [--seeds N] [--seed S] [--seconds T] [--mutants] [--mutant NAME] [--json]

  --world    ${NAMES.join(', ')}, or all (default: runs)
  --seeds    how many seeds (default: 1000), beginning with --seed or 1; per mutant at most as many
  --seconds  no more seeds of the product after this time, per world; mutants are hunted all the same
  --seed     alone: plays this one seed and prints everything that happened
  --mutants  also plays the product with one guard removed at a time; each must be found out
  --mutant   with --seed: plays that seed of this mutant and prints everything; else hunts for this one alone
  --json     one JSON object per world instead of text

Exit code 1 when a seed fails or a mutant is not found.
`;

/** Seeds between two lines of progress. */
const PROGRESS = 1_000;
/** Seeds of one process. */
const PIECE = 5_000;

interface Wish {
  readonly first: number;
  readonly seeds: number;
  readonly seconds: number | null;
  readonly mutants: boolean;
  readonly mutant: string | undefined;
  readonly json: boolean;
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      world: { type: 'string', default: 'runs' },
      seeds: { type: 'string' },
      seed: { type: 'string' },
      seconds: { type: 'string' },
      mutants: { type: 'boolean', default: false },
      mutant: { type: 'string' },
      json: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) {
    process.stdout.write(USAGE);
    return 0;
  }
  const worlds = WORLDS.filter(({ name }) => values.world === 'all' || values.world === name);
  if (worlds.length === 0)
    return refuse(`There is no world "${values.world}"; choose one of: ${NAMES.join(', ')}, all.`);
  const first = whole(values.seed ?? '1');
  const seeds = whole(values.seeds ?? (values.seed === undefined ? '1000' : '1'));
  const seconds = values.seconds === undefined ? null : whole(values.seconds);
  if (first === null || seeds === null || seeds === 0) return refuse('--seed and --seeds take whole numbers.');
  if (values.seconds !== undefined && !seconds) return refuse('--seconds takes a whole number above 0.');
  const { mutants, mutant, json } = values;
  if (mutant !== undefined && !worlds.some((world) => world.mutants.some(({ name }) => name === mutant)))
    return refuse(
      `There is no mutant "${mutant}"; choose one of: ${worlds.flatMap((world) => world.mutants.map(({ name }) => name)).join(', ')}.`,
    );

  if (worlds.length > 1 && mutant === undefined) return playApart(worlds);
  let code = 0;
  for (const world of worlds) {
    const wish = { first, seeds, seconds, mutants, mutant, json };
    const single = seeds === 1 && !mutants && !json;
    if (!(single ? await showSeed(world, wish) : await playWorld(world, wish))) code = 1;
  }
  return code;
}

/** Each world in a process of its own with the same wishes, as many at a time as there are cores. Reports stay whole. */
async function playApart(worlds: readonly World[]): Promise<number> {
  const waiting = [...worlds];
  const playing = new Set<ChildProcess>();
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const)
    process.once(signal, () => {
      for (const child of playing) child.kill('SIGKILL');
      process.exit(130);
    });
  let code = 0;
  const lane = async (): Promise<void> => {
    for (let world = waiting.shift(); world !== undefined; world = waiting.shift()) {
      // The last `--world` counts.
      const words = [...process.argv.slice(2), '--world', world.name];
      const child = spawn(process.execPath, [import.meta.filename, ...words], { stdio: ['ignore', 'pipe', 'inherit'] });
      playing.add(child);
      let text = '';
      child.stdout.setEncoding('utf8').on('data', (piece: string) => {
        text += piece;
      });
      const ended = await new Promise<number>((resolve, reject) => {
        child.once('error', reject);
        child.once('close', (value) => resolve(value ?? 1));
      });
      playing.delete(child);
      process.stdout.write(text);
      code = Math.max(code, ended);
    }
  };
  await Promise.all(Array.from({ length: Math.min(availableParallelism(), worlds.length) }, lane));
  return code;
}

/** Prints everything that happens in one seed. */
async function showSeed(world: World, { first, mutant: wanted }: Wish): Promise<boolean> {
  const mutant = world.mutants.find(({ name }) => name === wanted);
  const { violation, trace } = await world.play(first, { trace: true, ...(mutant && { mutant }) });
  process.stdout.write(`${trace.join('\n')}\n\nseed ${first}: ${violation?.message ?? 'nothing was broken'}\n`);
  return violation === null;
}

async function playWorld(world: World, wish: Wish): Promise<boolean> {
  const { first, seeds, seconds, json } = wish;
  const began = performance.now();
  const say = (text: string): void => void (json ? null : process.stderr.write(`${text}\n`));
  const tell = progress(seeds, (done) => say(`${done} of ${seeds} seeds of the world "${world.name}"`));
  const count = wish.mutant === undefined ? seeds : 0;
  const late = (): boolean => seconds !== null && performance.now() - began > seconds * 1_000;
  const until = (): boolean => {
    tell();
    return late();
  };
  const report =
    count <= PIECE
      ? await playSeeds(world, first, count, { until })
      : await playPieces(world, first, count, { late, say });
  const milliseconds = (performance.now() - began) / Math.max(1, report.seeds);
  const mutants: MutantReport[] = [];
  for (const mutant of world.mutants) {
    if (!(wish.mutants || wish.mutant === mutant.name)) continue;
    const found = await huntMutant(world, mutant, first, seeds);
    mutants.push(found);
    say(
      found.found
        ? `mutant ${found.name}: seed ${found.seed}, ${found.message}`
        : `mutant ${found.name}: NOT FOUND in ${seeds} seeds`,
    );
  }
  if (json)
    process.stdout.write(
      `${JSON.stringify({
        world: world.name,
        seeds: report.seeds,
        failing: report.failing,
        firstSeed: report.findings[0]?.seed ?? null,
        findings: report.findings,
        figures: report.figures,
        millisecondsPerSeed: Number(milliseconds.toFixed(2)),
        mutants,
      })}\n`,
    );
  else {
    const figures = Object.entries(report.figures).map(([name, value]) => `${value} ${name}`);
    process.stdout.write(
      `${report.seeds} seeds of the world "${world.name}": ${report.failing} failing` +
        ` (${[...figures, `${milliseconds.toFixed(1)} ms per seed`].join(', ')})\n`,
    );
    for (const { seed, message } of report.findings) process.stdout.write(`seed ${seed}: ${message}\n`);
    if (report.failing > 0)
      process.stdout.write(
        `all that happened: npm run simulate -- --world ${world.name} --seed ${report.findings[0]?.seed}\n`,
      );
    if (mutants.length > 0)
      process.stdout.write(`${mutants.filter(({ found }) => found).length} of ${mutants.length} mutants found\n`);
  }
  return report.failing === 0 && mutants.every((mutant) => mutant.found);
}

/**
 * Plays many seeds in processes of their own, one after the other. Node keeps every composite abort signal that somebody listens to until it fires, and the
 * signals of a simulated process that crashed never do: a few hundred kilobytes per seed would stay.
 */
async function playPieces(
  world: World,
  first: number,
  count: number,
  { late, say }: { late(): boolean; say(text: string): void },
): Promise<SeedReport> {
  let sum: SeedReport = { seeds: 0, failing: 0, findings: [], figures: {} };
  for (let done = 0; done < count && !late(); done += PIECE) {
    const seeds = Math.min(PIECE, count - done);
    const words = ['--world', world.name, '--seed', String(first + done), '--seeds', String(seeds), '--json'];
    const child = spawn(process.execPath, [import.meta.filename, ...words], { stdio: ['ignore', 'pipe', 'inherit'] });
    let text = '';
    child.stdout.setEncoding('utf8').on('data', (piece: string) => {
      text += piece;
    });
    await new Promise<void>((resolve, reject) => {
      child.once('error', reject);
      child.once('close', () => resolve());
    });
    const piece = JSON.parse(text) as SeedReport;
    const figures: Record<string, number> = { ...sum.figures };
    for (const [name, value] of Object.entries(piece.figures)) figures[name] = (figures[name] ?? 0) + value;
    sum = {
      seeds: sum.seeds + piece.seeds,
      failing: sum.failing + piece.failing,
      findings: [...sum.findings, ...piece.findings],
      figures,
    };
    say(`${sum.seeds} of ${count} seeds of the world "${world.name}"`);
  }
  return sum;
}

/** Says now and then how far the seeds are. */
function progress(seeds: number, say: (done: number) => void): () => void {
  let done = 0;
  return () => {
    if (done > 0 && done % PROGRESS === 0 && done < seeds) say(done);
    done += 1;
  };
}

function whole(text: string): number | null {
  return /^\d{1,9}$/.test(text) ? Number(text) : null;
}

function refuse(message: string): number {
  process.stderr.write(`${message}\n\n${USAGE}`);
  return 2;
}

process.exitCode = await main();
