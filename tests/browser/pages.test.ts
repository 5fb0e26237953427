import { readFile, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { type ScriptedProvider, startScriptedProvider } from '@reindeer/scripted';
import { verifies, zip } from '@reindeer/testkit';
import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { projectFolder, type RunningServer, scriptedConfig, startServer } from '../support/server.ts';
import { buildPage, complaints, findBrowser, launch, namelessControls, overflow } from './browser.ts';
import { script } from './pages-script.ts';

const executable = await findBrowser();
if (executable === null) process.stderr.write('No Chromium on this machine: the tests of the pages are skipped.\n');

const EVERYTHING = createRequire(import.meta.url).resolve('@modelcontextprotocol/server-everything/dist/index.js');
/** Everything beside plain talk, in one running server. */
describe.skipIf(executable === null)('pages and cards', () => {
  let browser: Browser;
  let provider: ScriptedProvider;
  let project: Awaited<ReturnType<typeof projectFolder>>;
  let server: RunningServer;
  let page: Page;
  let complained: string[];

  beforeAll(async () => {
    await buildPage();
    browser = await launch(executable ?? '');
    provider = await startScriptedProvider({ script });
    project = await projectFolder(
      scriptedConfig(
        provider.openAiUrl,
        // The first line belongs to the model.
        '    supports_reasoning_effort: true\n    pricing: {input_per_million: 100, output_per_million: 100}\n' +
          'agents_api: {enabled: true}\nmemory: {enabled: true}\nsuggestions: {enabled: true}\n' +
          'summarization: {keep: {type: messages, value: 2}}\n',
      ),
    );
    await writeFile(
      join(project.folder, 'extensions_config.json'),
      JSON.stringify({
        mcpServers: {
          all: { command: process.execPath, args: [EVERYTHING, 'stdio'], env: { TOKEN: 'a-secret-value' } },
          broken: { command: process.execPath, args: ['-e', 'process.exit(1)'] },
        },
      }),
    );
    server = await startServer(project.folder);
  });
  afterAll(async () => {
    await browser?.close();
    await server?.process.end();
    await provider?.close();
    await project?.remove();
  });
  beforeEach(async () => {
    page = await browser.newPage({ viewport: { width: 1200, height: 850 }, locale: 'en-US' });
    page.setDefaultTimeout(20_000);
    complained = complaints(page);
  });
  afterEach(async () => {
    await page.close();
    expect(complained).toEqual([]);
  });
  const open = (path: string) => page.goto(`${server.url}${path}`);
  const say = async (text: string) => {
    await page.getByLabel('Message', { exact: true }).fill(text);
    await page.keyboard.press('Enter');
  };
  const idle = () => page.locator('.status.working').waitFor({ state: 'detached' });
  const button = (name: string | RegExp) => page.getByRole('button', { name });
  const dialog = () => page.getByRole('dialog');

  test('sub-agents show their steps, also after a reload; a batch moves by itself, and what failed is tried again', async () => {
    await open('/');
    await button('Helpers').click();
    await say('delegate');
    const card = page.locator('details.task');
    await page.locator('details.task[data-status=completed]').waitFor();
    await idle();
    await page.reload();
    await card.locator('> summary').click();
    await card.getByText('echo counted').waitFor();
    await card.locator('strong', { hasText: '42' }).waitFor();

    await say('batch');
    const batch = page.locator('.batch');
    await batch.getByText('5 of 5').waitFor();
    await batch.getByText('done', { exact: true }).waitFor();
    await batch.getByRole('button', { name: '1 failed' }).click();
    await batch.getByText('It is poison.').first().waitFor();
    const saved = page.waitForEvent('download');
    await batch.getByRole('button', { name: 'results.csv' }).click();
    expect((await saved).suggestedFilename()).toBe('results.csv');
    // The run by which the server tells the agent of the end shows up without a reload.
    await page.locator('.messages').getByText('I heard of the end.').waitFor();
    await batch.getByRole('button', { name: /Try again/ }).click();
    const poisoned = () =>
      provider.requests().filter(({ body }) => JSON.stringify((body.messages as unknown[]).at(-1)).includes('ITEM 3'));
    await expect.poll(() => poisoned().length).toBe(2);

    await page.getByRole('link', { name: 'Batches' }).click();
    await page.getByRole('heading', { name: 'Five items' }).waitFor();
    await page.getByRole('link', { name: 'Open the chat' }).click();
    await page.locator('.messages').getByText('It goes on.').waitFor();
  });

  test('a sub-agent that was stopped says so after a reload, too', verifies('API-15'), async () => {
    await open('/');
    await button('Helpers').click();
    await say('delegate for long');
    const card = (status: string) => page.locator(`details.task[data-status=${status}]`);
    await card('running').locator('.tool-hint', { hasText: 'sleep 60' }).waitFor();
    await button('Stop').click();
    await page.locator('.messages').getByText('Stopped.', { exact: true }).waitFor();
    await card('cancelled').waitFor();
    await page.reload();
    await card('cancelled').waitFor();
    expect(await page.locator('details.task').count()).toBe(1);
  });

  test(
    'runs of other clients are read oldest first; one that writes and reads a file is named by its words and offers a next question',
    verifies('API-16'),
    async () => {
      const { thread_id: threadId } = await server.client.threads.create();
      for (const content of ['the first of two', 'the second of two'])
        await server.client.runs.wait(threadId, 'lead_agent', { input: { messages: [{ role: 'user', content }] } });
      await open(`/chats/${threadId}`);
      await page.locator('.messages').getByText('Heard: the second of two').waitFor();
      const shown = page.locator('.turn').locator('.plain, .markdown').first();
      await shown.waitFor();
      expect(
        await page.locator('.turn').evaluateAll((turns) => turns.map((turn) => turn.firstElementChild?.textContent)),
      ).toEqual(['the first of two', 'Heard: the first of two', 'the second of two', 'Heard: the second of two']);

      await page.getByRole('navigation').getByRole('button', { name: 'New chat' }).click();
      for (const option of ['Plan', 'Helpers']) await page.getByRole('button', { name: option, exact: true }).click();
      await say('Please write a note about moss, and then read to me what it says');
      await page.locator('.messages').getByText('The note says: ').waitFor();
      await idle();
      const calls = page.locator('details.tool');
      expect(await calls.evaluateAll((list) => list.map((card) => [card.dataset.tool, card.dataset.status]))).toEqual([
        ['write_file', 'done'],
        ['read_file', 'done'],
      ]);
      expect(await page.locator('.turn.agent').textContent()).toContain('Moss grows in the shade.');
      await page
        .getByRole('heading', { level: 1, name: 'Please write a note about moss, and then read to…', exact: true })
        .waitFor();
      const next = page.getByRole('list', { name: 'Next questions' }).getByRole('button');
      await next.first().waitFor();
      expect(await next.allInnerTexts()).toEqual(['What about moss?']);
    },
  );

  test('a schedule that begins while nothing is at work shows up by itself', async () => {
    const tasks = `${server.url}/api/scheduled-tasks`;
    const post = async (address: string, body: object): Promise<{ readonly id: string }> => {
      const answer = await fetch(address, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(body),
      });
      return (await answer.json()) as { readonly id: string };
    };
    const { id } = await post(tasks, {
      title: 'Evening walk',
      prompt: 'walk',
      timezone: 'UTC',
      schedule_type: 'once',
      schedule_spec: { run_at: new Date(Date.now() + 3_600_000).toISOString() },
    });
    await page.clock.install();
    await open('/schedules');
    await button('History (0)').waitFor();
    await post(`${tasks}/${id}/trigger`, {});
    await page.clock.fastForward(31_000);
    await button('History (1)').waitFor();
    expect(await namelessControls(page)).toEqual([]);
  });

  test('a batch is held, goes on and is called off; what is done is kept', async () => {
    await open('/');
    await button('Helpers').click();
    await say('slow batch');
    const batch = page.locator('.batch');
    await batch.getByRole('button', { name: 'Pause' }).click();
    await batch.getByText('paused', { exact: true }).waitFor();
    await batch.getByRole('button', { name: 'Go on' }).click();
    await batch.getByText('at work', { exact: true }).waitFor();
    await batch.getByRole('button', { name: 'Cancel' }).click();
    await batch.getByText('cancelled', { exact: true }).waitFor();
    const saved = page.waitForEvent('download');
    await batch.getByRole('button', { name: 'results.jsonl' }).click();
    const lines = (await readFile(await (await saved).path(), 'utf8')).trim().split('\n');
    expect(lines).toHaveLength(40);
    expect(JSON.parse(lines[0] ?? '')).toMatchObject({ key: 's0' });
  });

  test('an agent is made by talking about it', async () => {
    await open('/agents');
    await button('Make one by talking').click();
    await dialog().getByLabel('Name').fill('Painter');
    await dialog().getByRole('button', { name: 'Begin' }).click();
    await page.getByText('making painter').waitFor();
    await say('it should paint');
    await page.getByRole('heading', { name: 'The agent “painter” is ready.' }).waitFor();
    await page.getByRole('link', { name: 'Talk to painter' }).click();
    await page.getByText('with painter').waitFor();
    await say('hello');
    await page.locator('.messages').getByText('Heard: hello').waitFor();
    expect(provider.requests().some(({ body }) => JSON.stringify(body).includes('You paint.'))).toBe(true);
  });

  test('pictures are seen at once, skills in a chat are installed, and next questions are asked with a click', async () => {
    await open('/');
    await say('a picture');
    const picture = page.locator('img.thumbnail');
    await picture.waitFor();
    expect(await picture.evaluate((image: HTMLImageElement) => image.naturalWidth)).toBe(1);
    await page.getByRole('list', { name: 'Next questions' }).getByRole('button', { name: 'What about moss?' }).click();
    await page.locator('.messages').getByText('Heard: What about moss?').waitFor();
    await idle();
    await button('Open wave.skill').first().click();
    await dialog().getByText('Wave.', { exact: true }).waitFor();
    await dialog().getByRole('button', { name: 'Install' }).click();
    await dialog().getByText('The skill “wave” is installed and switched on.').waitFor();
    await page.keyboard.press('Escape');
    await button(/tokens$/).click();
    await dialog()
      .getByText(/scripted · \$0\.\d+/)
      .waitFor();
  });

  test('commands after a slash: a goal that is seen and cleared, a summary with what was before it, help', async () => {
    await open('/');
    const field = page.getByLabel('Message', { exact: true });
    await field.fill('/da');
    await page.getByRole('option', { name: /data-analysis/ }).waitFor();
    await field.press('Enter');
    expect(await field.inputValue()).toBe('/data-analysis ');
    await field.fill('/');
    await field.press('ArrowDown');
    const offered = page.getByRole('listbox', { name: 'Commands and skills' }).getByRole('option');
    expect(await offered.and(page.getByRole('option', { selected: true })).textContent()).toContain('/compact');
    await field.press('Escape');
    expect(await offered.count()).toBe(0);
    await say('/help');
    await dialog().getByText('/data-analysis').waitFor();
    await page.keyboard.press('Escape');

    await page.getByLabel('Effort').selectOption('High effort');
    await say('/goal a red picture frame');
    await page.locator('.messages').getByText('Second try.').waitFor();
    await idle();
    const goal = page.locator('.goal');
    await goal.getByText('a red picture frame').first().click();
    await goal.getByText('The colour is missing.').waitFor();
    await goal.getByText('1 of 8 more turns taken').waitFor();
    expect(provider.requests().some(({ body }) => body.reasoning_effort === 'high')).toBe(true);
    // With all that there is to choose, and a list over it.
    await page.setViewportSize({ width: 320, height: 700 });
    await field.fill('/');
    await offered.first().waitFor();
    expect(await overflow(page)).toBe(0);
    expect(await namelessControls(page)).toEqual([]);
    await field.fill('');
    await page.setViewportSize({ width: 1200, height: 850 });
    await page.reload();
    await button('Take the goal away').click();
    await goal.waitFor({ state: 'detached' });

    await say('more words');
    await page.locator('.messages').getByText('Heard: more words').waitFor();
    await idle();
    await say('/compact');
    await page.getByText(/earlier messages were replaced by a summary\.$/).waitFor();
    await page.getByText('Second try.').waitFor({ state: 'detached' });
    await button('Show them').click();
    await page.locator('.messages').getByText('Second try.').waitFor();
    const saved = page.waitForEvent('download');
    await button('Save as Markdown').click();
    const text = await readFile(await (await saved).path(), 'utf8');
    expect(text).toContain('## You\n\na red picture frame\n');
    expect(text).toContain('Second try.');
    expect(text).not.toContain('goal_continuation');
  });

  test('chats are pinned and found, and what was begun is there again', async () => {
    for (const words of ['find the lake', 'something newer']) {
      await open('/');
      await say(words);
      await page.locator('.messages').getByText(`Heard: ${words}`).waitFor();
      await idle();
    }
    const first = () => page.locator('.thread').first();
    await page.locator('.thread', { hasText: 'find the lake' }).hover();
    await button('Pin: find the lake').click();
    await first().getByText('find the lake').waitFor();
    await button('Pin: find the lake').click();
    await first().getByText('something newer').waitFor();

    await page.getByRole('navigation').getByRole('button', { name: 'New chat' }).click();
    await page.getByLabel('Message', { exact: true }).fill('half a thought');
    await page.keyboard.press('Control+k');
    await page.getByRole('combobox', { name: 'Words of a chat, or a page' }).and(page.locator(':focus')).waitFor();
    await page.keyboard.type('lake find');
    await dialog().getByRole('option', { name: 'find the lake' }).waitFor();
    await page.keyboard.press('Enter');
    await page.locator('.messages').getByText('Heard: find the lake').waitFor();
    expect(await page.getByLabel('Message', { exact: true }).inputValue()).toBe('');
    await page.getByRole('navigation').getByRole('button', { name: 'New chat' }).click();
    expect(await page.getByLabel('Message', { exact: true }).inputValue()).toBe('half a thought');

    // What no title says, the messages do.
    await page.keyboard.press('Control+k');
    await page.keyboard.type('heard newer');
    await dialog().getByRole('option').getByText('Heard: something newer').waitFor();
    await page.keyboard.press('Enter');
    await page.locator('.messages').getByText('Heard: something newer').waitFor();
  });

  test('answers are rated, made again, changed and branched; files show what they are', async () => {
    await open('/');
    await say('table');
    await idle();
    await button('Open deer.csv').first().click();
    // What a file says is text, also in a table.
    await dialog().getByRole('cell', { name: '<b>red</b>, very' }).waitFor();
    await page.keyboard.press('Escape');
    await button(/Files changed: 1/).click();
    await dialog().getByText('+name,note').waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('button', { name: 'Files', exact: true }).click();
    await dialog().getByRole('button', { name: 'Open deer.csv' }).waitFor();
    await page.keyboard.press('Escape');

    await say('first words');
    await page.locator('.messages').getByText('Heard: first words').waitFor();
    await idle();
    await button('Good answer').last().click();
    const asked = () =>
      provider.requests().filter(({ body }) => {
        const said = JSON.stringify((body.messages as unknown[]).at(-1));
        return body.tools !== undefined && said.includes('first words');
      });
    expect(asked()).toHaveLength(1);
    await button('Answer again').click();
    await expect.poll(() => asked().length).toBe(2);
    await idle();
    await button('Change this message').click();
    await dialog().getByLabel('Message').fill('other words');
    await dialog().getByRole('button', { name: 'Send' }).click();
    await page.locator('.messages').getByText('Heard: other words').waitFor();
    await idle();
    expect(await page.locator('.turn.human').allInnerTexts()).toEqual(['table', 'other words']);
    await button('Bad answer').last().click();
    await expect.poll(() => button('Bad answer').last().getAttribute('aria-pressed')).toBe('true');
    const before = page.url();
    await button('Go on from here in a new chat').last().click();
    await page.waitForURL((url) => url.href !== before);
    await page.locator('.messages').getByText('Heard: other words').waitFor();
    await page.getByRole('heading', { level: 1, name: /\(branch\)/ }).waitFor();
  });

  test('the memory is added to, searched and forgotten; agents and skills are kept', async () => {
    await open('/memory');
    await button('Add a fact').click();
    await dialog().getByLabel('Fact', { exact: true }).fill('Breeds reindeer in Lapland.');
    await dialog().getByRole('button', { name: 'Save' }).click();
    await page.getByText('Breeds reindeer in Lapland.').waitFor();
    await page.getByLabel('Search facts').fill('Lapland');
    await page.getByText('Breeds reindeer in Lapland.').waitFor();
    await button('Forget: Breeds reindeer in Lapland.').click();
    await dialog().getByText('No sentence of a summary').waitFor();
    await dialog().getByRole('button', { name: 'Forget' }).click();
    await page.getByText('Nothing is remembered yet.').waitFor();

    await button('Add a fact').click();
    await dialog().getByLabel('Fact', { exact: true }).fill('Skis to work.');
    await dialog().getByRole('button', { name: 'Save' }).click();
    await page.getByText('Skis to work.').waitFor();
    const exported = page.waitForEvent('download');
    await button('Export').click();
    const memory = await readFile(await (await exported).path(), 'utf8');
    await button('Forget everything').click();
    await dialog().getByRole('button', { name: 'Forget everything' }).click();
    await page.getByText('Nothing is remembered yet.').waitFor();
    const file = (text: string) => ({ name: 'memory.json', mimeType: 'application/json', buffer: Buffer.from(text) });
    await page.getByLabel('Import').setInputFiles(file('[]'));
    await page.getByText('The file is no exported memory.').waitFor();
    await page.getByLabel('Import').setInputFiles(file(memory));
    await dialog().getByText('The file has 1 facts.').waitFor();
    await dialog().getByRole('button', { name: 'Import' }).click();
    await page.getByText('Skis to work.').waitFor();

    await page.getByRole('link', { name: 'Agents' }).click();
    await button('Fill in a form').click();
    await dialog().getByLabel('Name').fill('Writer');
    await dialog()
      .getByLabel(/^Character/)
      .fill('You write.');
    await dialog().getByRole('button', { name: 'Save' }).click();
    await page.getByRole('link', { name: 'Talk to writer' }).click();
    await say('hello');
    await idle();
    await page.reload();
    await page.getByText('with writer').waitFor();
    expect(provider.requests().some(({ body }) => JSON.stringify(body).includes('You write.'))).toBe(true);

    await page.getByRole('link', { name: 'Skills' }).click();
    await page.getByRole('switch', { name: 'chart is switched on' }).click();
    await expect.poll(() => page.getByRole('switch', { name: 'chart' }).getAttribute('aria-checked')).toBe('false');
    const skill = '---\nname: greeting\ndescription: Greets people.\n---\nSay hello.\n';
    const archive = zip([{ name: 'greeting/SKILL.md', content: skill }]);
    await page
      .locator('input[type=file]')
      .setInputFiles({ name: 'greeting.skill', mimeType: 'application/zip', buffer: Buffer.from(archive) });
    await button('Change: greeting').waitFor();
    // The chat that carried the archive is gone again.
    expect(await server.client.threads.search({ limit: 100 }).then((threads) => threads.length)).toBeGreaterThan(0);
    expect(await page.getByRole('navigation').getByRole('link', { name: 'New chat' }).count()).toBe(0);
    await button('Change: greeting').click();
    const source = dialog().getByLabel('SKILL.md');
    await source.fill(skill.replace('Say hello.', 'Say good day.'));
    await dialog().getByRole('button', { name: 'Save' }).click();
    await dialog().waitFor({ state: 'detached' });
    await button('History: greeting').click();
    await dialog().getByText('changed', { exact: true }).waitFor();
    await dialog().getByRole('button', { name: 'Back to before' }).first().click();
    await dialog().getByText('brought back').waitFor();
    await page.keyboard.press('Escape');
    await button('Change: greeting').click();
    expect(await source.inputValue()).toBe(skill);
  });

  test('MCP servers show how they are; masked secrets stay; every page fits a phone and names its controls', async () => {
    await open('/tools');
    const all = page.locator('.panel', { has: page.getByRole('heading', { name: 'all' }) });
    const broken = page.locator('.panel', { has: page.getByRole('heading', { name: 'broken' }) });
    await all.getByText('works').waitFor();
    await all.getByText('all_echo').waitFor();
    await broken.getByRole('alert').waitFor();
    // One that is added is tried at once, and what is wrong with it is said.
    await button('Add a server').click();
    await dialog().getByLabel('Name', { exact: true }).fill('far');
    await dialog().getByLabel('Kind').selectOption('A web address (HTTP)');
    await dialog().getByLabel('Address').fill(`${provider.url}/mcp`);
    await dialog().getByLabel('Headers').fill('Authorization=Bearer a-secret-value');
    await dialog().getByRole('button', { name: 'Save' }).click();
    const far = page.locator('.panel', { has: page.getByRole('heading', { name: 'far' }) });
    await far.getByRole('alert').waitFor();
    await button('Change: far').click();
    expect(await dialog().getByLabel('Headers').inputValue()).toBe('Authorization=***');
    await dialog().getByLabel('What it is for').fill('Far away.');
    await dialog().getByRole('button', { name: 'Save' }).click();
    await far.getByText('Far away.').waitFor();
    await button('Delete: broken').click();
    await dialog().getByRole('button', { name: 'Delete' }).click();
    await broken.waitFor({ state: 'detached' });
    const stored = await readFile(join(project.folder, 'extensions_config.json'), 'utf8');
    expect(stored).toContain('Bearer a-secret-value');
    expect(stored).not.toContain('***');

    await page.setViewportSize({ width: 320, height: 700 });
    for (const path of ['/batches', '/memory', '/agents', '/skills', '/tools', '/settings']) {
      await open(path);
      await page.locator('.page .note, .page .panel, .page .batch').first().waitFor();
      expect(await overflow(page), path).toBe(0);
      expect(await namelessControls(page), path).toEqual([]);
    }
    await button('Dark').click();
    expect(await page.evaluate(() => getComputedStyle(document.documentElement).colorScheme)).toBe('dark');
  });
});
