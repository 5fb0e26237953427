import { ReindeerError } from '@reindeer/protocol';
import { expect, test } from 'vitest';
import type { JsonAnswer } from '../http/ask.ts';
import type { ContainerInfo } from './description.ts';
import { memoryOf } from './usage.ts';

const container = (id: string): ContainerInfo => ({ id, containerId: `c-${id}` }) as ContainerInfo;

test('memory is what a container uses without its file cache, in both versions of cgroups; what cannot be asked is left out', async () => {
  const answers: Record<string, JsonAnswer> = {
    'c-two': { status: 200, body: { memory_stats: { usage: 500, stats: { inactive_file: 200 } } } },
    'c-one': { status: 200, body: { memory_stats: { usage: 500, stats: { total_inactive_file: 100 } } } },
    'c-bare': { status: 200, body: { memory_stats: { usage: 7 } } },
    'c-ended': { status: 200, body: { memory_stats: {} } },
    'c-gone': { status: 404, body: { message: 'no such container' } },
  };
  const asked: string[] = [];
  const engine = {
    ask: async ({ path }: { path: string }) => {
      asked.push(path);
      const answer = answers[path.split('/')[2] ?? ''];
      if (answer === undefined) throw new ReindeerError('sandbox_unavailable', 'no engine', { retryable: true });
      return answer;
    },
  };
  const ids = ['two', 'one', 'bare', 'ended', 'gone', 'down'];
  const found = await memoryOf(engine, ids.map(container));
  expect(Object.fromEntries(found)).toEqual({ two: 300, one: 400, bare: 7 });
  expect(asked[0]).toBe('/containers/c-two/stats?stream=false&one-shot=true');
});
