// The product's parts in this process, over a fresh SQLite folder, with the bench's model and one extra tool.
import { mkdtemp, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createLeadAgent, createModelRegistry, defineTool } from '@reindeer/agent';
import { openSqlite, type SqliteStores } from '@reindeer/database';
import { EMPTY_REQUEST, type GraphFactory, NO_LOG, type RunRequest } from '@reindeer/protocol';
import { createRuntime, type Runtime, systemSurroundings } from '@reindeer/runtime';
import { createSandboxProvider } from '@reindeer/sandbox';
import { z } from 'zod';
import { type StepModel, TOOL_RESULT } from './model.ts';

export interface Product {
  readonly runtime: Runtime;
  readonly stores: SqliteStores;
  readonly graphs: ReadonlyMap<string, GraphFactory>;
  /** Stops everything. @returns the size of the closed database file in bytes */
  close(): Promise<number>;
}

export async function openProduct(model: StepModel): Promise<Product> {
  const surroundings = systemSurroundings({ logger: NO_LOG });
  const home = await mkdtemp(join(tmpdir(), 'reindeer-bench-'));
  const stores = await openSqlite({ folder: join(home, 'data'), surroundings });
  const sandboxes = await createSandboxProvider({ home, surroundings, environment: process.env });
  const models = createModelRegistry({
    entries: [{ name: 'bench', use: 'bench', model: 'bench' }],
    environment: {},
    logger: NO_LOG,
    factories: { bench: () => model },
  });
  const probe = defineTool({
    name: 'probe',
    description: 'Looks.',
    schema: z.object({ description: z.string(), n: z.number() }),
    repeatable: false,
    run: async () => TOOL_RESULT,
  });
  const agent = createLeadAgent({ models, tools: [probe], sandboxes, surroundings });
  const graphs = new Map([[agent.assistantId, agent]]);
  const runtime = createRuntime({ stores, graphs, surroundings, settings: { instanceId: stores.identity.instanceId } });
  await runtime.start();
  return {
    runtime,
    stores,
    graphs,
    close: async () => {
      await runtime.stop();
      await sandboxes.shutdown();
      await stores.close();
      const { size } = await stat(join(home, 'data', 'reindeer.db'));
      await rm(home, { recursive: true, force: true });
      return size;
    },
  };
}

export const requestOf = (content: unknown): RunRequest => ({
  ...EMPTY_REQUEST,
  input: { messages: [{ role: 'user', content }] } as RunRequest['input'],
  config: { recursion_limit: 1000 },
  streamModes: ['values'],
});

/** Runs one turn to its end. @throws when it does not succeed */
export async function turn(product: Product, threadId: string, content: unknown): Promise<void> {
  const admitted = await product.runtime.runs.create({
    threadId,
    userId: 'default',
    assistantId: 'lead_agent',
    request: requestOf(content),
    metadata: {},
    multitaskStrategy: 'reject',
    onDisconnect: 'continue',
    crashPolicy: null,
    createThread: true,
    idempotencyKey: null,
  });
  if (admitted.outcome !== 'admitted') throw new Error(`not admitted: ${admitted.outcome}`);
  const run = await product.runtime.runs.join({ runId: admitted.run.runId, threadId, userId: 'default' });
  if (run?.status !== 'success') throw new Error(`the run ended as ${run?.status}: ${run?.error}`);
}
