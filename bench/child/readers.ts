// Many readers of one stream. Arguments: product|floor URL CLIENTS. Prints frames and bytes that arrived, summed over all readers.
import { request } from 'node:http';

const [kind, url = '', clients] = process.argv.slice(2);
const json = async (path: string, body: unknown) => {
  const response = await fetch(`${url}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
  return response.json();
};

let path = '/stream';
if (kind === 'product') {
  const run = await json('/api/threads/fan/runs', {
    assistant_id: 'lead_agent',
    input: { messages: [{ role: 'user', content: 'hello' }] },
    stream_mode: ['messages-tuple'],
    if_not_exists: 'create',
    on_disconnect: 'continue',
    // The run waits here until every reader is attached.
    metadata: {},
  });
  path = `/api/threads/fan/runs/${run.run_id}/stream?stream_mode=messages-tuple`;
}

let frames = 0;
let bytes = 0;
let attached = 0;
const all = Promise.withResolvers<void>();
const readers = Array.from(
  { length: Number(clients) },
  () =>
    new Promise<void>((resolve, reject) => {
      const get = request(`${url}${path}`, (response) => {
        attached += 1;
        if (attached === Number(clients)) all.resolve();
        response.on('data', (chunk: Buffer) => {
          bytes += chunk.length;
          for (let at = chunk.indexOf('\n\n'); at !== -1; at = chunk.indexOf('\n\n', at + 2)) frames += 1;
        });
        response.once('end', resolve);
        response.once('error', reject);
      });
      get.once('error', reject);
      get.end();
    }),
);
await all.promise;
if (kind === 'floor') await fetch(`${url}/go`);
await Promise.all(readers);
process.stdout.write(`${JSON.stringify({ frames, bytes })}\n`);
process.exit(0);
