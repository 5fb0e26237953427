import { verifies } from '@reindeer/testkit';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { projectFolder, type RunningServer, startServer } from '../support/server.ts';
import { buildPage, complaints, findBrowser, launch, namelessControls, overflow } from './browser.ts';

const executable = await findBrowser();
if (executable === null) process.stderr.write('No Chromium on this machine: the tests of the page are skipped.\n');

/** The page in a real browser, before the real program with the demo model. */
describe.skipIf(executable === null)('the page', () => {
  let browser: Browser;
  let project: Awaited<ReturnType<typeof projectFolder>>;
  let server: RunningServer;
  let context: BrowserContext;
  let page: Page;
  let complained: string[];

  beforeAll(async () => {
    await buildPage();
    browser = await launch(executable ?? '');
    project = await projectFolder();
    server = await startServer(project.folder);
  });
  afterAll(async () => {
    await browser?.close();
    await server?.process.end();
    await project?.remove();
  });
  beforeEach(async () => {
    context = await browser.newContext({ viewport: { width: 1200, height: 850 }, locale: 'en-US' });
    page = await context.newPage();
    page.setDefaultTimeout(20_000);
    complained = complaints(page);
    await page.goto(server.url);
  });
  afterEach(async () => {
    await context.close();
    expect(complained).toEqual([]);
  });

  const say = async (text: string) => {
    await page.getByLabel('Message', { exact: true }).fill(text);
    await page.keyboard.press('Enter');
  };
  const idle = () => page.locator('.status.working').waitFor({ state: 'detached' });
  const answer = () => page.locator('.turn.agent').last();
  const answered = async (text: string) => {
    // The answer before it may still be the last one, with nothing at work yet.
    const before = await page.locator('.turn.agent').count();
    await say(text);
    await page.locator('.turn.agent').nth(before).waitFor();
    await idle();
  };

  test(
    'a newcomer sees the demo at work: steps, a file, a title, and that it is no real AI',
    verifies('API-15'),
    async () => {
      await page.getByText('it is scripted and not a real AI').waitFor();
      await page.getByRole('button', { name: 'Write a report about reindeer' }).click();
      // Reasoning stands above what follows from it, from the first moment on.
      await page.waitForFunction(() => {
        const turn = document.querySelector('.turn.agent[aria-busy=true]');
        return turn?.querySelector('.markdown') != null && turn.firstElementChild?.className === 'reasoning';
      });
      await page.getByRole('button', { name: 'Open report.md' }).waitFor();
      await idle();
      const cards = page.locator('details.tool');
      expect(await cards.evaluateAll((list) => list.map((card) => [card.dataset.tool, card.dataset.status]))).toEqual([
        ['bash', 'done'],
        ['write_file', 'done'],
        ['present_files', 'done'],
      ]);
      const first = answer().locator('> *').first();
      expect(await first.getAttribute('class')).toBe('reasoning');
      expect(await first.getAttribute('open')).toBeNull();

      await cards.first().locator('summary').click();
      await page.getByText('/mnt/user-data/workspace').first().waitFor();
      await page.getByRole('button', { name: 'Open report.md' }).click();
      const dialog = page.getByRole('dialog', { name: 'report.md' });
      await dialog.getByRole('heading', { name: 'Report: reindeer' }).waitFor();
      await dialog.getByRole('button', { name: 'Source' }).click();
      await dialog.getByText('# Report: reindeer').waitFor();
      const download = page.waitForEvent('download');
      await dialog.getByRole('button', { name: 'Download' }).click();
      expect((await download).suggestedFilename()).toBe('report.md');
      await page.keyboard.press('Escape');
      await dialog.waitFor({ state: 'detached' });
      await page.getByRole('button', { name: 'Open report.md' }).and(page.locator(':focus')).waitFor();

      expect(await page.title()).toBe('Write a report about reindeer · Reindeer');
      expect(page.url()).toMatch(/\/chats\/[0-9a-f-]{36}$/);
      await page.getByRole('navigation').getByRole('link', { name: 'Write a report about reindeer' }).waitFor();
    },
  );

  test(
    'the first message of a new chat is the first thing that is asked of its thread',
    verifies('API-15'),
    async () => {
      const asked: string[] = [];
      page.on('request', (request) => {
        const path = new URL(request.url()).pathname;
        if (/^\/api\/threads\/[0-9a-f-]{36}/.test(path)) asked.push(path.replace(/[0-9a-f-]{36}/g, 'ID'));
      });
      await answered('hello');
      const started = asked.indexOf('/api/threads/ID/runs/stream');
      expect(started).toBeGreaterThanOrEqual(0);
      expect(asked.slice(0, started).filter((path) => /\/(?:history|state|runs|messages)/.test(path))).toEqual([]);
    },
  );

  test('a reload keeps the history', async () => {
    await answered('run: echo one; echo two');
    // The renderer of markdown is loaded with the first answer.
    const rendered = () => answer().locator('.markdown pre').waitFor();
    await rendered();
    const before = await page.locator('.messages').textContent();
    await page.reload();
    await rendered();
    expect(await page.locator('.messages').textContent()).toBe(before);
  });

  test(
    'of a chat with a thousand turns the newest are drawn, older ones when somebody goes back',
    verifies('API-15'),
    async () => {
      const { thread_id: threadId } = await server.client.threads.create();
      const messages = Array.from({ length: 1_000 }, (_none, n) => [
        { type: 'human', id: `h${n}`, content: `question ${n}` },
        { type: 'ai', id: `a${n}`, content: `answer ${n}` },
      ]).flat();
      await server.client.threads.updateState(threadId, { values: { title: 'A long chat', messages } });
      await page.goto(`${server.url}/chats/${threadId}`);
      const text = (words: string) => page.locator('.messages').getByText(words, { exact: true });
      await text('answer 999').waitFor();
      const drawn = await page.locator('.turn').count();
      expect(drawn).toBeLessThan(100);
      await page.locator('.scroll').evaluate((area) => area.scrollTo({ top: 0 }));
      await expect.poll(() => page.locator('.turn').count()).toBeGreaterThan(drawn);
      const said = await page.locator('.turn.human').allInnerTexts();
      expect(said).toEqual(
        messages.slice(-2 * said.length).flatMap(({ type, content }) => (type === 'human' ? [content] : [])),
      );
      // What was looked at is still in sight.
      expect(await page.locator('.scroll').evaluate((area) => area.scrollTop)).toBeGreaterThan(0);
      await page.getByRole('button', { name: 'New chat', exact: true }).click();
      await page.getByRole('heading', { name: 'What shall we do?' }).waitFor();
      expect(await page.locator('.turn').count()).toBe(0);
    },
  );

  test('a reload in the middle finds the run again, and nothing is lost or doubled', async () => {
    await say('tell a story');
    await page.locator('.messages').getByText('takes step 3 through').waitFor();
    await page.reload();
    await page.locator('.status.working').waitFor();
    // What was written before the reload is there while the rest still comes.
    await page.locator('.messages').getByText('takes step 1 through').waitFor();
    expect(await page.locator('.messages').getByText('takes step 40 through').count()).toBe(0);
    await page.locator('.messages').getByText('takes step 40 through').waitFor();
    await idle();
    expect(await answer().locator('li').count()).toBe(40);
    expect(await page.locator('.turn').count()).toBe(2);
  });

  test('stop says "stopping" until everything has ended, and the chat goes on', async () => {
    await say('run: echo begun; sleep 60');
    await page.locator('details.tool[data-status=running]').waitFor();
    await page.getByRole('button', { name: 'Stop' }).click();
    await page.getByText('Stopped.', { exact: true }).first().waitFor();
    expect(await page.evaluate(() => document.activeElement?.id)).toBe('message');
    // It did begin: nothing may say that it did not.
    const card = page.locator('details.tool');
    expect(await card.getAttribute('data-status')).toBe('no-result');
    await card.locator('summary').click();
    await card.getByText('It may or may not have taken effect.').waitFor();
    await answered('run: echo still here');
    expect(await answer().textContent()).toContain('still here');
  });

  test('what was stopped goes on when it is asked to', async () => {
    await say('tell a story');
    await page.locator('.messages').getByText('takes step 3 through').waitFor();
    await page.getByRole('button', { name: 'Stop' }).click();
    await page.getByRole('button', { name: 'Go on', exact: true }).click();
    await page.locator('.messages').getByText('takes step 40 through').waitFor();
    await idle();
    expect(await page.locator('.turn.human').count()).toBe(1);
    expect(await page.locator('.messages').getByText('takes step 40 through').count()).toBe(1);
  });

  test('a question is answered by a button, by a form, and by typing', async () => {
    await say('ask me');
    await page.getByRole('button', { name: 'Green' }).click();
    await page.locator('.messages').getByText('You answered: Green').waitFor();
    await idle();
    await page.getByText('Answered: Green', { exact: true }).waitFor();
    // The answer was a click: it is no message of its own.
    expect(await page.locator('.turn.human').count()).toBe(1);

    await say('ask me a form');
    await page.getByLabel('Name of the sleigh').waitFor();
    await idle();
    await page.getByRole('button', { name: 'Answer', exact: true }).click();
    await page.getByText('Please fill in the marked fields.').waitFor();
    await page.getByLabel('Name of the sleigh').and(page.locator(':focus')).fill('Northern Star');
    await page.getByRole('combobox', { name: 'Colour' }).selectOption('Blue');
    await page.getByLabel('With bells').check();
    await page.getByRole('button', { name: 'Answer', exact: true }).click();
    await page.locator('.messages').getByText('You answered: Name of the sleigh: Northern Star').waitFor();
    await idle();

    await say('ask me');
    await page.getByRole('button', { name: 'Red' }).waitFor();
    await idle();
    await answered('Violet');
    await page.getByText('Answered: Violet', { exact: true }).waitFor();
  });

  test('files go with a message, and active content is shown without any rights', verifies('SEC-11'), async () => {
    const html =
      '<h1>Hello</h1><script>parent.broken = top.broken = true; document.title = "run"</script><img src=x onerror="parent.broken=true">';
    await page.locator('input[type=file]').setInputFiles([
      { name: 'evil.html', mimeType: 'text/html', buffer: Buffer.from(html) },
      {
        name: 'picture.svg',
        mimeType: 'image/svg+xml',
        buffer: Buffer.from(
          '<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20"><script>parent.broken=true</script><rect width="20" height="20"/></svg>',
        ),
      },
      { name: 'data.bin', mimeType: 'application/octet-stream', buffer: Buffer.from([0, 1, 2, 3]) },
    ]);
    await answered('list files');
    expect(await answer().textContent()).toContain('evil.html');
    const dialog = page.getByRole('dialog');
    await page.locator('.turn.human').getByRole('button', { name: 'Open evil.html' }).click();
    await dialog.frameLocator('iframe').getByRole('heading', { name: 'Hello' }).waitFor();
    expect(await dialog.locator('iframe').getAttribute('sandbox')).toBe('');
    // Chromium itself says that it refused the script; nothing else is said.
    await expect
      .poll(
        () =>
          complained.filter((text) => /sandboxed|Blocked script|Content Security Policy|net::ERR/i.test(text)).length,
      )
      .toBeGreaterThan(0);
    complained.length = 0;
    await page.keyboard.press('Escape');
    await page.getByRole('button', { name: 'Open picture.svg' }).click();
    await dialog.getByRole('img', { name: 'picture.svg' }).waitFor();
    expect(await dialog.getByRole('img').evaluate((image: HTMLImageElement) => image.naturalWidth)).toBe(20);
    await page.keyboard.press('Escape');
    await page.getByRole('button', { name: 'Open data.bin' }).click();
    await dialog.getByText('There is no preview for this kind of file.').waitFor();
    expect(await page.evaluate(() => 'broken' in globalThis)).toBe(false);
  });

  test('chats are listed, opened, renamed and deleted', async () => {
    const list = page.getByRole('navigation');
    await answered('run: echo first');
    await page.getByRole('button', { name: 'New chat', exact: true }).click();
    await answered('run: echo second');
    await list.getByRole('link', { name: 'run: echo second' }).waitFor();
    await list.getByRole('link', { name: 'run: echo first' }).click();
    await page.getByRole('main').getByText('run: echo first').first().waitFor();
    expect(await list.getByRole('link').allInnerTexts()).toEqual(
      expect.arrayContaining(['run: echo second', 'run: echo first']),
    );
    // A title of any length stays in its row, beside the buttons.
    await page.getByRole('button', { name: 'New chat', exact: true }).click();
    await answered(`run: echo ${'long-name '.repeat(8)}`);
    await list.getByRole('link', { name: 'run: echo long-name' }).waitFor();
    expect(await list.evaluate((element) => element.scrollWidth - element.clientWidth)).toBe(0);
    await list.getByRole('link', { name: 'run: echo first' }).click();
    await page.getByRole('heading', { level: 1, name: 'run: echo first' }).waitFor();

    await list.getByRole('button', { name: 'Rename: run: echo first' }).click();
    await page.getByLabel('Title').fill('Renamed chat');
    await page.keyboard.press('Enter');
    await list.getByRole('link', { name: 'Renamed chat' }).waitFor();
    await page.reload();
    await page.getByRole('heading', { level: 1, name: 'Renamed chat' }).waitFor();

    await list.getByRole('button', { name: 'Delete: Renamed chat' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
    await list.getByRole('link', { name: 'Renamed chat' }).waitFor({ state: 'detached' });
    await page.getByRole('heading', { name: 'What shall we do?' }).waitFor();
  });

  test('a server that is killed and started again goes on with the run, and so does the page', async () => {
    await say('run: sleep 2; echo survived');
    await page.locator('details.tool[data-status=running]').waitFor();
    const { port } = server;
    await server.process.end('SIGKILL');
    await page.getByText('The server does not answer').waitFor();
    server = await startServer(project.folder, { words: ['--port', String(port)] });
    await page.getByText('The server does not answer').waitFor({ state: 'detached' });
    await page.locator('details.tool[data-status=unknown]').waitFor();
    await idle();
    expect(await page.locator('.turn').count()).toBe(2);
    await answered('run: echo usable');
    expect(await answer().textContent()).toContain('usable');
    // The browser itself complains about refused connections.
    complained.splice(0, complained.length, ...complained.filter((text) => !text.includes('ERR_')));
  });

  test('where agents cannot be managed it is said how to switch that on', async () => {
    await page.getByRole('link', { name: 'Agents' }).click();
    await page.getByRole('heading', { name: 'Agents cannot be managed here yet' }).waitFor();
    expect(await page.locator('pre').textContent()).toBe('agents_api:\n  enabled: true');
    expect(await page.getByRole('button', { name: 'Fill in a form' }).count()).toBe(0);
  });

  test('speaks Chinese', async () => {
    await page.getByRole('button', { name: 'Switch to Chinese' }).click();
    await page.getByRole('button', { name: '写一份关于驯鹿的报告' }).click();
    await page.getByRole('button', { name: '打开 report.md' }).waitFor();
    expect(await page.locator('html').getAttribute('lang')).toBe('zh-CN');
    await page.reload();
    await page.getByText('演示模型：它按脚本应答').waitFor();
  });

  test('works with the keyboard alone, and every control has a name', async () => {
    await page.locator('#message:focus').waitFor();
    await page.keyboard.type('first line');
    await page.keyboard.press('Shift+Enter');
    await page.keyboard.type('list files');
    expect(await page.getByLabel('Message', { exact: true }).inputValue()).toBe('first line\nlist files');
    await page.keyboard.press('Enter');
    await page.locator('details.tool[data-status=done]').waitFor();
    await idle();
    expect(await page.evaluate(() => document.activeElement?.id)).toBe('message');
    // What was written comes up again.
    await page.keyboard.press('ArrowUp');
    expect(await page.getByLabel('Message', { exact: true }).inputValue()).toBe('first line\nlist files');
    await page.keyboard.press('ArrowDown');
    expect(await page.getByLabel('Message', { exact: true }).inputValue()).toBe('');
    expect(await namelessControls(page)).toEqual([]);
    await expect
      .poll(() => page.locator('[aria-live=polite].only-heard').textContent())
      .toContain('The answer is complete.');
  });

  test('fits small windows', async () => {
    await answered('write a report about reindeer');
    for (const width of [320, 390, 768]) {
      await page.setViewportSize({ width, height: 740 });
      expect(await overflow(page), `at ${width} pixels`).toBe(0);
    }
    await page.setViewportSize({ width: 390, height: 740 });
    const opener = page.getByRole('button', { name: 'Show the chats' });
    await opener.click();
    await page.getByRole('button', { name: 'Hide the chats' }).and(page.locator(':focus')).waitFor();
    await page.keyboard.press('Escape');
    await opener.and(page.locator(':focus')).waitFor();
    await opener.click();
    await page.getByRole('navigation').getByRole('button', { name: 'New chat' }).click();
    await page.getByRole('heading', { name: 'What shall we do?' }).waitFor();
  });
});

describe.skipIf(executable === null)('a server with a token', () => {
  test('the page takes it from the address, keeps it for the tab, and asks for it otherwise', async () => {
    const browser = await launch(executable ?? '');
    const project = await projectFolder('server:\n  token: a-token-of-the-operator\n');
    const server = await startServer(project.folder);
    try {
      const page = await browser.newPage({ locale: 'en-US' });
      page.setDefaultTimeout(20_000);
      await page.goto(`${server.url}/#token=${server.token}`);
      await page.locator('.messages').getByText('What shall we do?').waitFor();
      expect(page.url()).not.toContain('token');
      await page.getByLabel('Message', { exact: true }).fill('write a report about reindeer');
      await page.keyboard.press('Enter');
      // Files come with the token as well.
      await page.getByRole('button', { name: 'Open report.md' }).click();
      await page.getByRole('heading', { name: 'Report: reindeer' }).waitFor();
      await page.reload();
      await page.getByRole('button', { name: 'Open report.md' }).waitFor();

      const stranger = await browser.newPage({ locale: 'en-US' });
      stranger.setDefaultTimeout(20_000);
      await stranger.goto(server.url);
      await stranger.getByLabel('Token').fill('a-wrong-token-of-nobody');
      await stranger.keyboard.press('Enter');
      await stranger.getByText('did not accept this token').waitFor();
      await stranger.getByLabel('Token').fill(server.token ?? '');
      await stranger.keyboard.press('Enter');
      await stranger.locator('.messages').getByText('What shall we do?').waitFor();
    } finally {
      await browser.close();
      await server.process.end();
      await project.remove();
    }
  });
});
