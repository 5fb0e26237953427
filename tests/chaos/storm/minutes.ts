import { postgresMissing, redisMissing } from '@reindeer/testkit';
import { type StormResult, storm } from './storm.ts';

/** Longest storm on one cluster, in seconds; a longer time is several, without and with Redis in turn. */
const LONGEST_S = 90;

const say = (text: string) => process.stdout.write(`${text}\n`);

/** Storms for so many minutes; says what they survived, and on failure the seed and the history. Answers the exit code. */
export async function stormMinutes(options: {
  readonly minutes: number;
  readonly seed: number;
  readonly json: boolean;
}): Promise<number> {
  const missing = await postgresMissing();
  if (missing !== null) {
    process.stderr.write(`A storm needs a Postgres to restart: ${missing}\n`);
    return 2;
  }
  const noRedis = await redisMissing();
  if (noRedis !== null) process.stderr.write(`All storms are without Redis: ${noRedis}\n`);
  const seconds = options.minutes * 60;
  const storms = Math.max(2, Math.ceil(seconds / LONGEST_S));
  const results: StormResult[] = [];
  for (let n = 0; n < storms; n += 1) {
    const withRedis = n % 2 === 1 && noRedis === null;
    const seed = options.seed + n;
    const note = (text: string) => process.stderr.write(`${text}\n`);
    if (!options.json) note(`storm ${n + 1} of ${storms}, ${withRedis ? 'with' : 'without'} Redis, seed ${seed}`);
    const result = await storm({
      seed,
      seconds: seconds / storms,
      withRedis,
      ...(options.json ? {} : { note: (text) => note(`  ${text}`) }),
    });
    results.push(result);
    if (!options.json) tell(result, seed);
  }
  const faults = results.reduce((sum, result) => sum + faultsOf(result).length, 0);
  const sum = (pick: (result: StormResult) => number) => results.reduce((total, result) => total + pick(result), 0);
  const total = {
    minutes: options.minutes,
    seed: options.seed,
    lost: sum(({ lost }) => lost.length),
    doubled: sum(({ doubled }) => doubled.length),
    stuck: sum(({ stuck }) => stuck.length),
    wrong: sum(({ wrong }) => wrong.length),
    kills: sum(({ disturbances }) => disturbances.kills),
    graceful_stops: sum(({ disturbances }) => disturbances.terms),
    pauses: sum(({ disturbances }) => disturbances.pauses),
    short_pauses: sum(({ disturbances }) => disturbances.hiccups),
    terminated_sessions: sum(({ disturbances }) => disturbances.terminatedSessions),
    postgres_restarts: sum(({ disturbances }) => disturbances.postgresRestarts),
    redis_restarts: sum(({ disturbances }) => disturbances.redisRestarts),
    runs: sum(({ runs }) => Object.values(runs).reduce((a, b) => a + b, 0)),
  };
  if (options.json) say(JSON.stringify({ ...total, storms: results }));
  else
    say(
      `${total.lost} lost, ${total.doubled} doubled, ${total.stuck} stuck, ${total.wrong} otherwise wrong, in ${total.runs} runs. ` +
        `Survived: ${total.kills} kills -9, ${total.graceful_stops} graceful stops, ${total.pauses} pauses past the lease and ` +
        `${total.short_pauses} short ones, ${total.terminated_sessions} ended sessions, ${total.postgres_restarts} restarts of Postgres, ` +
        `${total.redis_restarts} of Redis (seed ${options.seed}).`,
    );
  return faults === 0 ? 0 : 1;
}

const faultsOf = ({ lost, doubled, stuck, wrong }: StormResult) => [
  ...lost.map((text) => `lost: ${text}`),
  ...doubled.map((text) => `doubled: ${text}`),
  ...stuck.map((text) => `stuck: ${text}`),
  ...wrong.map((text) => `wrong: ${text}`),
];

function tell(result: StormResult, seed: number): void {
  const { clients, runs, offending } = result;
  for (const fault of faultsOf(result)) say(`  ✗ ${fault}`);
  if (offending.length > 0) say(`The first thread with a fault, of seed ${seed}:\n${offending.join('\n')}`);
  const by = Object.entries(runs).map(([status, count]) => `${count} ${status}`);
  say(
    `  ${by.join(', ')}; ${clients.requests} requests, ${clients.repeats} repeated, ${clients.refused} refused, ${clients.cancels} cancels, ` +
      `${clients.joins} joins, ${clients.streams} streams taken up again ${clients.resumes} times; ` +
      `${result.finishedTools} tools finished, ${result.unknownTools} unknown; ${result.seconds} s`,
  );
}
