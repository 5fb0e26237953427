import type { Cluster } from '../../support/cluster.ts';
import type { RunningServer } from '../../support/server.ts';

export type InstanceState = 'starting' | 'up' | 'paused' | 'down';

/** One place in the cluster: always the same name and, from its first start on, the same address; one process after another. */
export class Instance {
  readonly name: string;
  readonly #cluster: Cluster;
  #port = 0;
  #server: RunningServer | null = null;
  state: InstanceState = 'down';
  /** What was said by processes that ended when nobody asked them to, or did not start. */
  readonly unexpected: string[] = [];

  constructor(cluster: Cluster, name: string) {
    this.#cluster = cluster;
    this.name = name;
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  async start(): Promise<void> {
    this.state = 'starting';
    try {
      const server = await this.#cluster.start(this.name, this.#port);
      this.#server = server;
      this.#port = server.port;
      this.state = 'up';
      void server.process.finished.then(({ code, signal }) => {
        if (this.#server !== server) return;
        const last = server.process.stderr.slice(-2_000);
        this.unexpected.push(`${this.name} ended by itself (${code ?? signal}): ${last}`);
        this.#server = null;
        this.state = 'down';
      });
    } catch (error) {
      this.state = 'down';
      throw error;
    }
  }

  /** Starts it again, as a supervisor does, for at most a minute: what it needs may be away itself. */
  async restart(): Promise<void> {
    const deadline = performance.now() + 60_000;
    for (;;) {
      try {
        return await this.start();
      } catch (error) {
        if (performance.now() < deadline) continue;
        this.unexpected.push(`${this.name} does not start: ${String(error).slice(-6_000)}`);
        return;
      }
    }
  }

  async end(signal: 'SIGKILL' | 'SIGTERM'): Promise<void> {
    const server = this.#server;
    this.#server = null;
    this.state = 'down';
    await server?.process.end(signal);
  }

  pause(): void {
    this.state = 'paused';
    this.#server?.process.child.kill('SIGSTOP');
  }

  resume(): void {
    this.#server?.process.child.kill('SIGCONT');
    if (this.state === 'paused') this.state = 'up';
  }

  /** The newest words of the process that runs. */
  get log(): string {
    return this.#server?.process.stderr ?? '';
  }
}
