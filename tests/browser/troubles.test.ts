import { type ScriptedProvider, type ScriptRequest, startScriptedProvider, type Turn } from '@reindeer/scripted';
import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { projectFolder, type RunningServer, scriptedConfig, startServer } from '../support/server.ts';
import { buildPage, findBrowser, launch } from './browser.ts';

const executable = await findBrowser();
if (executable === null) process.stderr.write('No Chromium on this machine: the tests of troubles are skipped.\n');

/** What the user writes decides what the provider does. */
function script({ messages, attempt }: ScriptRequest): Turn {
  const said = messages.filter((message) => message.role === 'user').map((message) => message.text);
  const asked = said.at(-1) ?? '';
  if (asked.includes('refused once')) {
    // The page sends it once more, which makes another conversation.
    return said.length === 1
      ? { fault: { kind: 'status', status: 401, message: 'No such key.' } }
      : { text: 'Better now.' };
  }
  if (asked.includes('busy once')) {
    return attempt === 1 ? { fault: { kind: 'status', status: 503, retryAfter: 3 } } : { text: 'Free again.' };
  }
  if (asked.includes('evil')) {
    return {
      text: '<img src=x onerror="window.broken=1"> [click](javascript:window.broken=2) ![x](https://evil.example/steal)',
    };
  }
  return { text: `Heard ${asked}` };
}

/** The page when something goes wrong, with the real adapters before a scripted provider. */
describe.skipIf(executable === null)('the page in trouble', () => {
  let browser: Browser;
  let provider: ScriptedProvider;
  let project: Awaited<ReturnType<typeof projectFolder>>;
  let server: RunningServer;
  let page: Page;

  beforeAll(async () => {
    await buildPage();
    browser = await launch(executable ?? '');
    provider = await startScriptedProvider({ script });
    const second = `  - name: other\n    display_name: Other model\n    use: openai\n    model: other\n    api_key: not-a-real-key\n    base_url: ${provider.openAiUrl}\n`;
    project = await projectFolder(scriptedConfig(provider.openAiUrl, second));
    server = await startServer(project.folder);
  });
  afterAll(async () => {
    await browser?.close();
    await server?.process.end();
    await provider?.close();
    await project?.remove();
  });
  beforeEach(async () => {
    page = await browser.newPage({ locale: 'en-US' });
    page.setDefaultTimeout(20_000);
  });
  afterEach(async () => {
    await page.close();
  });

  const say = async (text: string) => {
    await page.getByLabel('Message', { exact: true }).fill(text);
    await page.keyboard.press('Enter');
  };
  const idle = () => page.locator('.status.working').waitFor({ state: 'detached' });

  test('a provider that refuses is told plainly, and trying again works', async () => {
    await page.goto(server.url);
    await say('refused once');
    await page.getByText('The model could not be reached').waitFor();
    await idle();
    const again = page.getByRole('button', { name: 'Try again' });
    await again.click();
    await page.locator('.messages').getByText('Better now.').waitFor();
    await idle();
    expect(await page.getByRole('alert').count()).toBe(0);
  });

  test('a provider that is busy is waited for in sight', async () => {
    await page.goto(server.url);
    await say('busy once');
    await page.getByText(/Trying again in \d+ s \(attempt \d of \d\)/).waitFor();
    await page.locator('.messages').getByText('Free again.').waitFor();
  });

  test('what a model says cannot act on the page', async () => {
    const foreign: string[] = [];
    page.on('request', (request) => {
      if (!request.url().startsWith(server.url)) foreign.push(request.url());
    });
    await page.goto(server.url);
    await say('be evil');
    await page.getByText('click', { exact: true }).waitFor();
    await idle();
    await page.getByText('click', { exact: true }).click();
    expect(await page.evaluate(() => 'broken' in globalThis)).toBe(false);
    expect(foreign).toEqual([]);
  });

  test('with several models one is chosen, and stays chosen', async () => {
    await page.goto(server.url);
    await page.getByLabel('Model').selectOption('Other model');
    await say('which one');
    await page.locator('.messages').getByText('Heard which one').waitFor();
    // Next questions are asked of the default model, and may be asked already.
    const body = provider.requests().findLast((request) => request.body.tools !== undefined)?.body;
    expect(body?.model).toBe('other');
    await page.reload();
    expect(await page.getByLabel('Model').inputValue()).toBe('other');
    expect(await page.getByText('not a real AI').count()).toBe(0);
  });

  test('a chat that another window keeps busy is shown at work, and the text stays', async () => {
    const thread = await server.client.threads.create();
    const hold = await server.client.runs.create(thread.thread_id, 'lead_agent', {
      input: { messages: [{ type: 'human', content: 'run by somebody else' }] },
      interruptBefore: '*',
    });
    await server.client.runs.join(thread.thread_id, hold.run_id);
    await page.goto(`${server.url}/chats/${thread.thread_id}`);
    await page.getByText('run by somebody else').waitFor();
    await page.route('**/runs/stream', (route) =>
      route.fulfill({
        status: 409,
        contentType: 'application/json',
        body: '{"detail":"The thread is busy.","code":"conflict"}',
      }),
    );
    await say('my own message');
    await page.getByText('This chat is busy').waitFor();
    expect(await page.getByLabel('Message', { exact: true }).inputValue()).toBe('my own message');
  });

  test('what waits for approval is approved, changed and refused', async () => {
    const thread = await server.client.threads.create();
    const interrupt = {
      id: 'i1',
      value: {
        actionRequests: [
          { name: 'bash', args: { command: 'rm -r build' }, description: 'Removes the build' },
          { name: 'write_file', args: { path: 'a', content: 'old' } },
          { name: 'bash', args: { command: 'reboot' } },
        ],
        reviewConfigs: [
          { actionName: 'bash', allowedDecisions: ['approve', 'edit', 'reject'] },
          { actionName: 'write_file', allowedDecisions: ['approve', 'edit'] },
        ],
      },
    };
    await page.route('**/state', (route) =>
      route.fulfill({
        json: {
          values: { messages: [] },
          next: ['review'],
          tasks: [{ id: 't', name: 'review', interrupts: [interrupt] }],
          interrupts: [interrupt],
        },
      }),
    );
    await page.goto(`${server.url}/chats/${thread.thread_id}`);
    const actions = page.locator('.action');
    await actions.nth(2).waitFor();
    const send = page.getByRole('button', { name: 'Send the decisions' });
    await actions.nth(0).getByRole('button', { name: 'Approve' }).click();
    await actions.nth(1).getByRole('button', { name: 'Change' }).click();
    const editor = actions.nth(1).getByLabel('Arguments as JSON');
    await editor.fill('{"path": ');
    await page.getByText('This is not a JSON object.').waitFor();
    expect(await send.isDisabled()).toBe(true);
    await editor.fill('{"path": "a", "content": "new"}');
    expect(await actions.nth(1).getByRole('button', { name: 'Reject' }).count()).toBe(0);
    await actions.nth(2).getByRole('button', { name: 'Reject' }).click();
    await actions.nth(2).getByLabel('Reason').fill('Not now');
    const request = page.waitForRequest((candidate) => candidate.url().endsWith('/runs/stream'));
    await send.click();
    expect((await request).postDataJSON()).toMatchObject({
      command: {
        resume: {
          decisions: [
            { type: 'approve' },
            { type: 'edit', editedAction: { name: 'write_file', args: { path: 'a', content: 'new' } } },
            { type: 'reject', message: 'Not now' },
          ],
        },
      },
    });
  });

  test('a machine without a sandbox says so and names the remedy', async () => {
    await page.route('**/api/features', (route) =>
      route.fulfill({
        json: {
          sandbox: {
            provider: 'files-only',
            canExecute: false,
            reason: 'bwrap was not found.',
            remedy: 'sudo apt-get install bubblewrap',
            network: 'none',
            limits: [],
          },
        },
      }),
    );
    await page.goto(server.url);
    await page.getByText('Commands cannot run on this machine').waitFor();
    await page.getByText('sudo apt-get install bubblewrap').waitFor();
  });

  test('a chat that does not exist says so', async () => {
    await page.goto(`${server.url}/chats/nobody-knows-this`);
    await page.getByText('This does not exist, or was deleted.').waitFor();
    await page.getByRole('main').getByRole('link', { name: 'New chat' }).click();
    await page.getByRole('heading', { name: 'What shall we do?' }).waitFor();
  });
});
