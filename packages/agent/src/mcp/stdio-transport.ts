import { type ChildProcess, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { type JSONRPCMessage, JSONRPCMessageSchema } from '@modelcontextprotocol/sdk/types.js';
import type { ProcessGuard } from '@reindeer/sandbox';

export interface StdioOptions {
  readonly command: string;
  readonly args: readonly string[];
  /** All of the server's environment: nothing is inherited beside it. */
  readonly env: Readonly<Record<string, string>>;
  readonly cwd: string;
  /** Ends it with this process, also when that is killed. */
  readonly guard: ProcessGuard;
  /** Longest message in bytes. Default 16 MiB. */
  readonly maxMessageBytes?: number;
  /** Messages that answer nothing, between two that do. Default 10,000. */
  readonly maxUnasked?: number;
  /** Milliseconds for each of: leaving by itself, by SIGTERM, by SIGKILL. Default 500. */
  readonly stepMs?: number;
}

const MAX_BAD_LINES = 1_000;

/**
 * A server that is a process, one message per line. Unlike the SDK's own transport it bounds what the server may send, gives it no more
 * environment than it was configured with, and ends everything that it has started: it runs in a process group of its own.
 *
 * States: `new` → (`start`) `running` → `closed`, when the process ends, floods, or `close` is called.
 */
export class StdioTransport implements Transport {
  onclose?: () => void;
  onerror?: (error: Error) => void;
  onmessage?: (message: JSONRPCMessage) => void;
  readonly #options: Required<StdioOptions>;
  #process: ChildProcess | null = null;
  #release: () => void = () => {};
  readonly #id = randomUUID();
  #exited: Promise<void> = Promise.resolve();
  #pending: Buffer[] = [];
  #pendingBytes = 0;
  #unasked = 0;
  #badLines = 0;
  #refusal: string | null = null;
  #closing: Promise<void> | null = null;
  #over = false;

  constructor(options: StdioOptions) {
    this.#options = { maxMessageBytes: 16 * 1024 * 1024, maxUnasked: 10_000, stepMs: 500, ...options };
  }

  /** Why it was given up; null = it was not. Our own words: what a server writes may hold its secrets. */
  get refusal(): string | null {
    return this.#refusal;
  }

  get pid(): number | undefined {
    return this.#process?.pid;
  }

  async start(): Promise<void> {
    const { command, args, env, cwd, guard } = this.#options;
    const child = spawn(command, [...args], {
      cwd,
      env: { ...env, ...guard.environment(this.#id) },
      stdio: ['pipe', 'pipe', 'pipe'],
      detached: process.platform !== 'win32',
      shell: false,
      windowsHide: true,
    });
    this.#process = child;
    this.#release = guard.hold(child.pid);
    this.#exited = new Promise((resolve) => {
      child.once('exit', () => resolve());
      child.once('error', () => resolve());
    });
    child.stdin?.on('error', (error) => this.onerror?.(error));
    child.stdout?.on('data', (chunk: Buffer) => this.#read(chunk));
    child.stdout?.on('error', (error) => this.onerror?.(error));
    // Read, so that it does not wait for a reader, and thrown away.
    child.stderr?.resume();
    child.stderr?.on('error', () => {});
    child.once('exit', () => {
      // What it left behind is in its group. Now and never later: its number may soon be that of somebody else's group.
      this.#kill('SIGKILL');
      this.#release();
      this.#finish();
    });
    await new Promise<void>((resolve, reject) => {
      child.once('spawn', resolve);
      child.once('error', (error) => reject(error));
    });
  }

  async send(message: JSONRPCMessage): Promise<void> {
    const input = this.#process?.stdin;
    if (input == null || this.#over || !input.writable) throw new Error('the server has ended');
    await new Promise<void>((resolve, reject) => {
      input.write(`${JSON.stringify(message)}\n`, (error) => (error == null ? resolve() : reject(error)));
    });
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    const child = this.#process;
    if (child === null) return this.#finish();
    child.stdin?.end();
    await this.#within();
    for (const signal of ['SIGTERM', 'SIGKILL'] as const) {
      if (child.exitCode !== null || child.signalCode !== null) break;
      this.#kill(signal);
      await this.#within();
    }
    for (const stream of [child.stdin, child.stdout, child.stderr]) stream?.destroy();
    child.unref();
    // A browser, say, that a server has put into a group of its own.
    await this.#options.guard.endMarked(this.#id).catch(() => {});
    this.#finish();
  }

  async #within(): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const bound = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, this.#options.stepMs);
    });
    await Promise.race([this.#exited, bound]);
    clearTimeout(timer);
  }

  #kill(signal: NodeJS.Signals): void {
    const child = this.#process;
    if (child?.pid === undefined) return;
    try {
      if (process.platform === 'win32') child.kill(signal);
      else process.kill(-child.pid, signal);
    } catch {
      // Nothing of the group is left.
    }
  }

  #finish(): void {
    if (this.#over) return;
    this.#over = true;
    this.#pending = [];
    this.onclose?.();
  }

  #read(chunk: Buffer): void {
    let rest = chunk;
    for (let end = rest.indexOf(10); end !== -1 && !this.#over; end = rest.indexOf(10)) {
      const line = Buffer.concat([...this.#pending, rest.subarray(0, end)]);
      this.#pending = [];
      this.#pendingBytes = 0;
      rest = rest.subarray(end + 1);
      this.#line(line);
    }
    if (this.#over) return;
    this.#pending.push(rest);
    this.#pendingBytes += rest.length;
    if (this.#pendingBytes > this.#options.maxMessageBytes)
      this.#refuse(`sent a message of more than ${this.#options.maxMessageBytes} bytes`);
  }

  #line(line: Buffer): void {
    if (line.length > this.#options.maxMessageBytes) {
      this.#refuse(`sent a message of more than ${this.#options.maxMessageBytes} bytes`);
      return;
    }
    const text = line.toString('utf8').trim();
    if (text === '') return;
    let message: JSONRPCMessage;
    try {
      message = JSONRPCMessageSchema.parse(JSON.parse(text));
    } catch {
      // Servers print their log to the wrong place now and then; not for ever.
      this.#badLines += 1;
      if (this.#badLines > MAX_BAD_LINES) this.#refuse('writes text that is no message');
      return;
    }
    this.#unasked = 'method' in message ? this.#unasked + 1 : 0;
    if (this.#unasked > this.#options.maxUnasked) this.#refuse('sends messages that nobody asked for, without an end');
    else this.onmessage?.(message);
  }

  #refuse(why: string): void {
    this.#refusal = `the server ${why}`;
    this.onerror?.(new Error(this.#refusal));
    // Closed for its callers at once; its process ends meanwhile.
    const closing = this.close();
    this.#finish();
    closing.catch(() => {});
  }
}
