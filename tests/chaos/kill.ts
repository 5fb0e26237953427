import { startScriptedProvider } from '@reindeer/scripted';
import { projectFolder, scriptedConfig, startServer } from '../support/server.ts';
import { chaosRound, chaosScript, seeded } from './round.ts';

/**
 * Kills a real server again and again at random moments of a run, and checks after each restart that nothing is lost or doubled. Answers
 * the exit code.
 */
export async function killRounds({
  rounds,
  seed,
  json,
}: {
  readonly rounds: number;
  readonly seed: number;
  readonly json: boolean;
}): Promise<number> {
  const provider = await startScriptedProvider({ script: chaosScript });
  const project = await projectFolder(scriptedConfig(provider.openAiUrl));
  const random = seeded(seed);
  const begun = performance.now();
  const total = { rounds: 0, kills: 0, failing: 0, finishedTools: 0, unknownTools: 0 };
  const problems: string[] = [];
  let server = await startServer(project.folder);
  // The newest one stands here at any time, so that none outlives this program.
  const restart = async () => {
    server = await startServer(project.folder);
    return server;
  };
  try {
    for (let number = 1; number <= rounds; number += 1) {
      const result = await chaosRound(server, number, { random, restart });
      total.rounds += 1;
      total.kills += result.kills;
      total.finishedTools += result.finishedTools;
      total.unknownTools += result.unknownTools;
      if (result.problems.length > 0) total.failing += 1;
      for (const problem of result.problems) problems.push(`round ${number}: ${problem}`);
      if (!json && (number % 10 === 0 || result.problems.length > 0))
        process.stderr.write(
          `${result.problems.map((problem) => `  ${problem}\n`).join('')}${number} of ${rounds}: ${total.kills} kills, ${total.failing} rounds with problems\n`,
        );
    }
  } catch (error) {
    // The server's own words belong to the fault.
    process.stderr.write(server.process.stderr);
    throw error;
  } finally {
    await server.process.end();
    await provider.close();
    await project.remove();
  }
  const refused = provider.requests().filter((request) => (request.status ?? 0) >= 400).length;
  if (refused > 0) problems.push(`the provider refused ${refused} requests as invalid`);
  const seconds = Math.round((performance.now() - begun) / 1000);
  if (json) process.stdout.write(`${JSON.stringify({ ...total, seed, seconds, problems })}\n`);
  else {
    for (const problem of problems) process.stdout.write(`✗ ${problem}\n`);
    process.stdout.write(
      `${total.rounds} rounds, ${total.kills} kills -9 (seed ${seed}, ${seconds} s): ${total.failing} rounds with a lost or doubled message, tool or end; ` +
        `${total.finishedTools} tools finished once, ${total.unknownTools} cut tools reported as unknown.\n`,
    );
  }
  return problems.length === 0 ? 0 : 1;
}
