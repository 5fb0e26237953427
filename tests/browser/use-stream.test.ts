import { join } from 'node:path';
import { verifies } from '@reindeer/testkit';
import type { Browser, Page } from 'playwright-core';
import { rolldown } from 'rolldown';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { projectFolder, type RunningServer, startServer } from '../support/server.ts';
import { findBrowser, launch } from './browser.ts';

const executable = await findBrowser();
if (executable === null) process.stderr.write('No Chromium on this machine: the test of useStream is skipped.\n');

async function bundle(): Promise<string> {
  const build = await rolldown({
    input: join(import.meta.dirname, 'use-stream.fixture.tsx'),
    platform: 'browser',
    logLevel: 'silent',
    transform: { jsx: 'react-jsx', define: { 'process.env.NODE_ENV': '"production"' } },
  });
  const { output } = await build.generate({ format: 'iife', name: 'probe' });
  await build.close();
  return output[0].code;
}

/** Somebody's own page with the official React hook, on the origin of the server. */
describe.skipIf(executable === null)('useStream', () => {
  let browser: Browser;
  let project: Awaited<ReturnType<typeof projectFolder>>;
  let server: RunningServer;
  let page: Page;
  const asked: string[] = [];

  beforeAll(async () => {
    const script = await bundle();
    browser = await launch(executable ?? '');
    project = await projectFolder();
    server = await startServer(project.folder);
    page = await browser.newPage();
    page.setDefaultTimeout(20_000);
    await page.route('**/probe*', (route) =>
      route.request().url().endsWith('/probe.js')
        ? route.fulfill({ contentType: 'text/javascript', body: script })
        : route.fulfill({
            contentType: 'text/html',
            body: '<!doctype html><body><script src="/probe.js" defer></script>',
          }),
    );
    page.on('request', (request) => {
      const { pathname } = new URL(request.url());
      if (pathname.startsWith('/api/'))
        asked.push(`${request.method()} ${pathname.replace(/[0-9a-f]{8}-[0-9a-f-]{27}/g, 'ID')}`);
    });
  });
  afterAll(async () => {
    await browser?.close();
    await server?.process.end();
    await project?.remove();
  });

  const submit = async (text: string) => {
    await page.getByLabel('Text').fill(text);
    await page.getByRole('button', { name: 'Submit' }).click();
  };
  const idle = () => page.locator('[data-loading=false]').waitFor();
  const messages = () =>
    page
      .locator('li')
      .evaluateAll((items) => items.map((item) => `${(item as HTMLElement).dataset.type}: ${item.textContent}`));
  const trouble = () => page.getByRole('alert').textContent();

  test(
    'starts a thread and reads nothing of it first, reattaches after a reload, and stops',
    verifies('API-07'),
    async () => {
      await page.goto(`${server.url}/probe`);
      await submit('tell a story');
      await page.getByText('takes step 2 through').waitFor();
      const started = asked.indexOf('POST /api/threads/ID/runs/stream');
      expect(asked.slice(0, started)).toEqual(['POST /api/threads']);

      await page.reload();
      await page.locator('[data-loading=true]').waitFor();
      await page.getByText('takes step 40 through').waitFor();
      await idle();
      expect(await trouble()).toBe('');
      const [question, story, ...more] = await messages();
      expect(more).toEqual([]);
      expect(question).toBe('human: tell a story');
      expect(story?.match(/takes step \d+ /g)).toHaveLength(40);

      await submit('tell a story');
      await page.getByText('takes step 2 through').nth(1).waitFor();
      await page.getByRole('button', { name: 'Stop' }).click();
      await idle();
      expect(asked.at(-1)).toMatch(/\/history$|\/cancel$/);
      expect(asked.filter((line) => line.endsWith('/runs/ID/cancel'))).toHaveLength(1);
      const threadId = new URL(page.url()).searchParams.get('thread') ?? '';
      await expect
        .poll(async () => (await server.client.runs.list(threadId)).map((run) => run.status), { timeout: 20_000 })
        .toEqual(['interrupted', 'success']);
      await submit('run: echo usable');
      await page.getByText('usable').first().waitFor();
      await idle();
      expect(await trouble()).toBe('');
    },
  );
});
