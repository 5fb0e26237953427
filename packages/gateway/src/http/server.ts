import type { Server } from 'node:http';
import { serve } from '@hono/node-server';
import { ReindeerError } from '@reindeer/protocol';
import { createApp } from './app.ts';
import type { HttpParts } from './parts.ts';

const IDLE_CHECK_MS = 50;

export interface HttpServer {
  readonly host: string;
  readonly port: number;
  /** Ends idle connections at once, waits for the others up to `graceMs`, then cuts them. Idempotent. */
  close(graceMs: number): Promise<void>;
}

/**
 * Starts listening. Resolves when the port is open.
 *
 * @param port 0 = any free one
 * @throws ReindeerError `configuration` when the address cannot be had; the message says what to do
 */
export async function listen(parts: HttpParts, host: string, port: number): Promise<HttpServer> {
  const app = createApp(parts);
  const server = serve({
    fetch: app.fetch,
    hostname: host,
    port,
    serverOptions: {
      // Time for the head of a request; bodies may take longer (uploads over slow lines), streams of answers have no limit.
      headersTimeout: 20_000,
      requestTimeout: 600_000,
      keepAliveTimeout: 65_000,
      maxHeaderSize: 32 * 1024,
    },
  }) as Server;
  await new Promise<void>((resolve, reject) => {
    server.once('listening', resolve);
    server.once('error', (error: NodeJS.ErrnoException) => reject(listenError(error, host, port)));
  });
  const address = server.address();
  const actual = typeof address === 'object' && address !== null ? address.port : port;
  let closing: Promise<void> | null = null;
  return {
    host,
    port: actual,
    close: (graceMs) => {
      closing ??= closeServer(server, graceMs);
      return closing;
    },
  };
}

function listenError(error: NodeJS.ErrnoException, host: string, port: number): ReindeerError {
  const where = `${host}:${port}`;
  const message =
    error.code === 'EADDRINUSE'
      ? `Port ${port} on ${host} is taken by another program. Stop it, or choose another port with --port (0 = any free one).`
      : error.code === 'EACCES'
        ? `Opening ${where} is not permitted. Choose a port from 1024 on with --port.`
        : error.code === 'EADDRNOTAVAIL' || error.code === 'ENOTFOUND'
          ? `This machine has no address ${host}. Use --host 127.0.0.1, or an address of this machine.`
          : `Listening on ${where} failed: ${error.code ?? error.message}. Choose another --host or --port.`;
  return new ReindeerError('configuration', message, { cause: error });
}

async function closeServer(server: Server, graceMs: number): Promise<void> {
  if (!server.listening) return;
  const closed = new Promise<void>((resolve) => server.close(() => resolve()));
  // Connections that become idle after the close stay open for their keep-alive time, unless somebody looks again.
  const idle = setInterval(() => server.closeIdleConnections(), IDLE_CHECK_MS);
  const timer = setTimeout(() => server.closeAllConnections(), graceMs);
  await closed;
  clearInterval(idle);
  clearTimeout(timer);
}
