import { parseArgs } from 'node:util';
import type { MutantReport } from './run.ts';
import { huntMutant, playSeeds, WORLDS } from './run.ts';

const USAGE = `Plays the product in a simulated world, seed by seed.

  npm run simulate -- [--world runs] [--seeds N] [--seed S] [--mutants] [--json]

  --world    which world (default: runs)
  --seeds    how many seeds (default: 1000), beginning with --seed or 1; per mutant at most as many
  --seed     alone: plays this one seed and prints everything that happened
  --mutants  also plays the product with one guard removed at a time; each must be found out
  --json     one JSON object instead of text

Exit code 1 when a seed fails or a mutant is not found.
`;

/** Seeds between two lines of progress. */
const PROGRESS = 1_000;

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      world: { type: 'string', default: 'runs' },
      seeds: { type: 'string' },
      seed: { type: 'string' },
      mutants: { type: 'boolean', default: false },
      json: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) {
    process.stdout.write(USAGE);
    return 0;
  }
  const world = WORLDS[values.world];
  if (world === undefined)
    return refuse(`There is no world "${values.world}"; choose one of: ${Object.keys(WORLDS).join(', ')}.`);
  const first = whole(values.seed ?? '1');
  const seeds = whole(values.seeds ?? (values.seed === undefined ? '1000' : '1'));
  if (first === null || seeds === null || seeds === 0) return refuse('--seed and --seeds take whole numbers.');

  if (seeds === 1 && !values.mutants && !values.json) {
    const { violation, trace } = await world.play(first, { trace: true });
    process.stdout.write(`${trace.join('\n')}\n\nseed ${first}: ${violation?.message ?? 'nothing was broken'}\n`);
    return violation === null ? 0 : 1;
  }

  const began = performance.now();
  const say = (text: string): void => void (values.json ? null : process.stderr.write(`${text}\n`));
  const report = await playSeeds(world.play, first, seeds, {
    until: progress(first, seeds, (done) => say(`${done} of ${seeds} seeds`)),
  });
  const milliseconds = (performance.now() - began) / report.seeds;
  const mutants: MutantReport[] = [];
  for (const mutant of values.mutants ? world.mutants : []) {
    const found = await huntMutant(world.play, mutant, first, seeds);
    mutants.push(found);
    say(
      found.found
        ? `mutant ${found.name}: seed ${found.seed}, ${found.message}`
        : `mutant ${found.name}: NOT FOUND in ${seeds} seeds`,
    );
  }
  if (values.json)
    process.stdout.write(
      `${JSON.stringify({
        world: values.world,
        seeds: report.seeds,
        failing: report.failing,
        firstSeed: report.findings[0]?.seed ?? null,
        findings: report.findings,
        millisecondsPerSeed: Number(milliseconds.toFixed(2)),
        mutants,
      })}\n`,
    );
  else {
    const { events, runs, effects, crashes } = report;
    process.stdout.write(
      `${report.seeds} seeds of the world "${values.world}": ${report.failing} failing` +
        ` (${runs} runs, ${effects} tool effects, ${crashes} crashes, ${events} events; ${milliseconds.toFixed(1)} ms per seed)\n`,
    );
    for (const { seed, message } of report.findings) process.stdout.write(`seed ${seed}: ${message}\n`);
    if (report.failing > 0)
      process.stdout.write(`all that happened: npm run simulate -- --seed ${report.findings[0]?.seed}\n`);
  }
  return report.failing === 0 && mutants.every((mutant) => mutant.found) ? 0 : 1;
}

/** Never stops the seeds; says now and then how far they are. */
function progress(first: number, seeds: number, say: (done: number) => void): () => boolean {
  let done = 0;
  return () => {
    if (done > 0 && done % PROGRESS === 0 && first + done < first + seeds) say(done);
    done += 1;
    return false;
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
