import type { ExecRequest, ExecResult, SandboxClient, SandboxFiles } from '@reindeer/protocol';
import type { SandboxTable } from './table.ts';

/** A client whose commands count as use of the sandbox, however long they take. */
export class CountedClient implements SandboxClient {
  readonly id: string;
  readonly #client: SandboxClient;
  readonly #table: SandboxTable;
  #closing: Promise<void> | null = null;

  constructor(id: string, client: SandboxClient, table: SandboxTable) {
    this.id = id;
    this.#client = client;
    this.#table = table;
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
    this.#table.apply(this.id, { type: 'command-began', now: this.#table.now });
    try {
      return await this.#client.exec(request);
    } finally {
      this.#table.apply(this.id, { type: 'command-ended', now: this.#table.now });
    }
  }

  close(): Promise<void> {
    this.#closing ??= this.#client.close();
    return this.#closing;
  }
}
