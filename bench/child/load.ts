// Load from its own process. Arguments: URL CLIENTS RUNS [PREFIX]. Prints runs per second and the time to the first token of each run.
import { randomUUID } from 'node:crypto';
import { performance } from 'node:perf_hooks';

const [url = '', clients, runs, prefix = '/api'] = process.argv.slice(2);
const first: number[] = [];

async function run(thread: string): Promise<void> {
  const begun = performance.now();
  const response = await fetch(`${url}${prefix}/threads/${thread}/runs/stream`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({
      assistant_id: 'lead_agent',
      input: { messages: [{ role: 'user', content: 'hello' }] },
      stream_mode: ['messages-tuple', 'values'],
      if_not_exists: 'create',
      on_disconnect: 'continue',
    }),
  });
  if (!response.ok || response.body === null) throw new Error(`${response.status} ${await response.text()}`);
  const decoder = new TextDecoder();
  let seen = '';
  let token = false;
  for await (const chunk of response.body) {
    seen = (token ? seen.slice(-200) : seen) + decoder.decode(chunk, { stream: true });
    if (!token && /event: messages\n?/.test(seen)) {
      token = true;
      first.push(performance.now() - begun);
    }
  }
  // Other servers just end, with the newest values.
  if (!(prefix === '/api' ? /event: end\b/ : /event: values\b/).test(seen))
    throw new Error(`the stream ended early: ${seen.slice(-300)}`);
}

let next = 0;
const total = Number(runs);
const begun = performance.now();
await Promise.all(
  Array.from({ length: Number(clients) }, async () => {
    while (next < total) {
      next += 1;
      await run(randomUUID());
    }
  }),
);
const seconds = (performance.now() - begun) / 1000;
first.sort((a, b) => a - b);
process.stdout.write(
  `${JSON.stringify({ runsPerSecond: total / seconds, firstP50: first[Math.floor(first.length / 2)], firstP99: first[Math.floor(first.length * 0.99)] })}\n`,
);
