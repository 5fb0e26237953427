import { type ThrowawayPostgres, type ThrowawayRedis, throwawayPostgres, throwawayRedis } from '@reindeer/testkit';
import { projectFolder, type RunningServer, scriptedConfig, startServer } from './server.ts';

/** Several instances of the program on one Postgres and one folder, as an operator runs them. */
export interface Cluster {
  readonly postgres: ThrowawayPostgres;
  readonly redis: ThrowawayRedis | null;
  readonly databaseUrl: string;
  readonly folder: string;
  /** Starts one more instance; a name keeps its place over restarts. */
  start(name: string, port?: number): Promise<RunningServer>;
  /** Ends everything that was started here and removes what it left. Idempotent. */
  stop(): Promise<void>;
}

/** @throws where there is no Postgres, or no Redis when it is asked for: ask `postgresMissing` and `redisMissing` before */
export async function cluster(options: {
  readonly openAiUrl: string;
  readonly withRedis?: boolean;
  /** More of the configuration file. */
  readonly config?: string;
}): Promise<Cluster> {
  const postgres = await throwawayPostgres();
  const redis = options.withRedis === true ? await throwawayRedis() : null;
  const databaseUrl = await postgres.createDatabase();
  const bridge = redis === null ? '' : `stream_bridge:\n  type: redis\n  redis_url: ${redis.url}\n`;
  const database = `database:\n  backend: postgres\n  postgres_url: ${databaseUrl}\n  instance_id: $REINDEER_INSTANCE\n`;
  const project = await projectFolder(scriptedConfig(options.openAiUrl, `${database}${bridge}${options.config ?? ''}`));
  const started = new Set<RunningServer>();
  return {
    postgres,
    redis,
    databaseUrl,
    folder: project.folder,
    start: async (name, port = 0) => {
      const server = await startServer(project.folder, { environment: { REINDEER_INSTANCE: name }, port });
      started.add(server);
      void server.process.finished.then(() => started.delete(server));
      return server;
    },
    stop: async () => {
      await Promise.all([...started].map((server) => server.process.end('SIGKILL')));
      await postgres.stop();
      await redis?.stop();
      await project.remove();
    },
  };
}
