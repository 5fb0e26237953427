import {
  type ExecRequest,
  type ExecResult,
  ReindeerError,
  type SandboxClient,
  type SandboxFiles,
} from '@reindeer/protocol';
import type { SandboxTable } from './table.ts';

/**
 * A client whose commands count as use of the sandbox, however long they take. One that cannot reach its sandbox says so, before its
 * caller hears of it: the next acquire is not given a dead one.
 */
export class CountedClient implements SandboxClient {
  readonly id: string;
  readonly #client: SandboxClient;
  readonly #table: SandboxTable;
  readonly #unreachable: () => Promise<void>;
  #closing: Promise<void> | null = null;

  /** @param unreachable looks whether the sandbox is dead, and lets go of it if so; never rejects */
  constructor(id: string, client: SandboxClient, table: SandboxTable, unreachable: () => Promise<void>) {
    this.id = id;
    this.#client = client;
    this.#table = table;
    this.#unreachable = unreachable;
  }

  get canExecute(): boolean {
    return this.#client.canExecute;
  }

  get pathStyle(): 'virtual' | 'relative' {
    return this.#client.pathStyle;
  }

  get files(): SandboxFiles {
    return this.#client.files;
  }

  async exec(request: ExecRequest): Promise<ExecResult> {
    let failed = false;
    this.#table.apply(this.id, { type: 'command-began', now: this.#table.now });
    try {
      return await this.#client.exec(request);
    } catch (error) {
      if (ReindeerError.is(error) && error.code === 'sandbox_unavailable') failed = true;
      throw error;
    } finally {
      this.#table.apply(this.id, { type: 'command-ended', now: this.#table.now });
      if (failed) await this.#unreachable();
    }
  }

  close(): Promise<void> {
    this.#closing ??= this.#client.close();
    return this.#closing;
  }
}
