import type { BaseCheckpointSaver } from '@langchain/langgraph-checkpoint';
import { openMemory, openSqlite } from '@reindeer/database';
import type { CheckpointStore, Fact, FactBody, Fence, Stores } from '@reindeer/protocol';
import { Scene, type TestSurroundings, testSurroundings } from '@reindeer/testkit';
import { afterAll, beforeAll } from 'vitest';
import { ReindeerSaver } from './saver.ts';

/** For the tests of this folder: one database per file, a thread per test. */
export class SaverScene extends Scene {
  readonly surroundings: TestSurroundings = testSurroundings();
  #threads = 0;

  thread(): string {
    this.#threads += 1;
    return `thread-${this.#threads}`;
  }

  /** A saver as an attempt has it. */
  saver(
    threadId: string,
    fence: Fence | null,
    part: { store?: CheckpointStore; taskName?: (taskId: string) => string | undefined } = {},
  ): ReindeerSaver {
    return new ReindeerSaver({ store: this.a.checkpoints, fence, threadId, surroundings: this.surroundings, ...part });
  }

  async facts(threadId: string): Promise<readonly Fact[]> {
    const page = await this.a.log.read({ threadId, runId: null, afterSeq: 0, limit: 10_000, maxBytes: 1e9 });
    return page.facts;
  }

  async bodies<K extends FactBody['kind']>(threadId: string, kind: K): Promise<Extract<FactBody, { kind: K }>[]> {
    const bodies = (await this.facts(threadId)).map(({ body }) => body);
    return bodies.filter((body): body is Extract<FactBody, { kind: K }> => body.kind === kind);
  }

  /** Ids of the message facts, removals with a minus, in order. */
  async messageLine(threadId: string): Promise<string> {
    return (await this.facts(threadId))
      .flatMap(({ body }) => {
        if (body.kind === 'message')
          return ['id' in body.message ? `${body.ns.replace(/:.*/, '/')}${body.message.id}` : '?'];
        return body.kind === 'message-removed' ? [`-${body.messageId}`] : [];
      })
      .join(' ');
  }
}

/** LangGraph's types ask for a saver of numeric versions. */
export const asCheckpointer = (saver: ReindeerSaver): BaseCheckpointSaver => saver as unknown as BaseCheckpointSaver;

/** Call in a describe; answers the scene inside tests. */
export function saverScene(kind: 'sqlite' | 'memory'): () => SaverScene {
  let scene: SaverScene;
  beforeAll(async () => {
    const surroundings = testSurroundings();
    const stores: Stores =
      kind === 'sqlite' ? await openSqlite({ folder: ':memory:', surroundings }) : openMemory({ surroundings });
    scene = new SaverScene({ a: stores, b: stores, close: () => stores.close() });
  });
  afterAll(() => scene.a.close());
  return () => scene;
}
