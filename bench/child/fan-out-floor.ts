// The floor of the fan-out: node:http, the same frames to every client of a path, nothing else. Arguments: FRAMES BYTES
import { createServer, type ServerResponse } from 'node:http';

const [frames, bytes] = process.argv.slice(2).map(Number);
const readers = new Set<ServerResponse>();
const server = createServer((request, response) => {
  if (request.url === '/go') {
    response.end();
    let sent = 0;
    const frame = () => {
      const text = `id: e-${sent}\nevent: messages\ndata: ${'x'.repeat(bytes ?? 0)}\n\n`;
      for (const reader of readers) reader.write(text);
      sent += 1;
      if (sent < (frames ?? 0)) setTimeout(frame, 5);
      else for (const reader of readers) reader.end('event: end\ndata: null\n\n');
    };
    frame();
    return;
  }
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  response.flushHeaders();
  readers.add(response);
  response.once('close', () => readers.delete(response));
});
process.on('message', () => {
  const { user, system } = process.cpuUsage();
  process.send?.({ cpuMs: (user + system) / 1000, delayP99Ms: 0, rssMiB: process.memoryUsage().rss / 1048576 });
});
server.listen(0, '127.0.0.1', () => {
  const address = server.address();
  process.send?.({ port: typeof address === 'object' && address !== null ? address.port : 0 });
});
