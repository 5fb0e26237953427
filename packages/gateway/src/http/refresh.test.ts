import { verifies } from '@reindeer/testkit';
import { afterEach, expect, test } from 'vitest';
import { type Fixture, startFixture } from '../testing/http-fixture.ts';
import type { ModelView } from './parts.ts';

let open: Fixture | null = null;
afterEach(async () => {
  await open?.close();
  open = null;
});

const view = (name: string): ModelView => ({
  name,
  model: name,
  display_name: name,
  description: '',
  supports_thinking: false,
  supports_reasoning_effort: false,
  supports_vision: false,
  demo: false,
});

test('requests are judged by the models of now; reads of threads look at nothing', verifies('GW-27'), async () => {
  const models = [view('old')];
  let looks = 0;
  open = await startFixture({
    models,
    limits: {
      defaultRecursionLimit: 100,
      maxRecursionLimit: 100,
      get models() {
        return models.map(({ name }) => name);
      },
    },
    refresh: async () => {
      looks += 1;
      models.splice(0, 1, view('new'));
    },
  });
  const base = `http://127.0.0.1:${open.port}/api`;
  const post = async (path: string, body: object) => {
    const answer = await fetch(`${base}${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    return { status: answer.status, json: (await answer.json()) as { thread_id?: string; detail?: string } };
  };
  await (await fetch(`${base}/threads/00000000-0000-4000-8000-000000000001`)).text();
  expect(looks).toBe(0);
  expect(await (await fetch(`${base}/models`)).json()).toMatchObject({ models: [{ name: 'new' }] });
  expect(looks).toBe(1);
  models.splice(0, 1, view('old'));
  const { json } = await post('/threads', {});
  models.splice(0, 1, view('old'));
  const run = (name: string) =>
    post(`/threads/${json.thread_id}/runs`, {
      assistant_id: 'lead_agent',
      input: { messages: [{ role: 'user', content: 'hi' }] },
      context: { model_name: name },
    });
  expect((await run('new')).status).toBe(200);
  expect(await run('old')).toMatchObject({ status: 400, json: { detail: expect.stringContaining('Configured: new') } });
});
