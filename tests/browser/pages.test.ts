import { readFile, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { type Script, type ScriptedProvider, startScriptedProvider, type Turn } from '@reindeer/scripted';
import { zip } from '@reindeer/testkit';
import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { projectFolder, type RunningServer, scriptedConfig, startServer } from '../support/server.ts';
import { buildPage, complaints, findBrowser, launch, namelessControls, overflow } from './browser.ts';

const executable = await findBrowser();
if (executable === null) process.stderr.write('No Chromium on this machine: the tests of the pages are skipped.\n');

const EVERYTHING = createRequire(import.meta.url).resolve('@modelcontextprotocol/server-everything/dist/index.js');
const OUT = '/mnt/user-data/outputs';

/** The newest words of a person decide; a sub-agent's are its prompt. */
const script: Script = ({ messages, tools }): Turn => {
  const at = Math.max(
    messages.findLastIndex((message) => message.role === 'user' && message.written === true),
    messages.findIndex((message) => message.role === 'user'),
  );
  const asked = messages[at]?.text ?? '';
  const results = messages.slice(at + 1).filter((message) => message.role === 'tool');
  const once = (text: string, ...toolCalls: NonNullable<Turn['toolCalls']>): Turn =>
    results.length === 0 ? { toolCalls } : { text };
  // The judge of skills, titles, what is learned: none of them has tools.
  if (tools.length === 0) return { text: '{"decision": "allow", "reason": "harmless"}' };
  const item = /^ITEM (\d)/.exec(asked)?.[1];
  if (item !== undefined)
    return item === '3'
      ? { fault: { kind: 'status', status: 400, message: 'It is poison.' } }
      : { text: `did ${item}` };
  const last = messages.at(-1);
  if (last?.role === 'user' && last.written !== true && last.text.includes('Five items'))
    return { text: 'I heard of the end.' };
  if (asked.startsWith('PART')) return once('It is **42**.', { name: 'bash', args: { command: 'echo counted' } });
  if (asked.includes('delegate'))
    return once('They said 42.', {
      name: 'task',
      args: { description: 'Count', prompt: 'PART: count', subagent_type: 'bash' },
    });
  if (asked.includes('batch'))
    return once('It goes on.', {
      name: 'batch_task',
      args: {
        title: 'Five items',
        items: [1, 2, 3, 4, 5].map((n) => ({ key: `item-${n}`, prompt: `ITEM ${n}` })),
        max_attempts: 1,
      },
    });
  if (asked.includes('table')) {
    const content = 'name,note\nRudolf,"<b>red</b>, very"\n';
    const calls = [
      { name: 'write_file', args: { description: 'd', path: `${OUT}/deer.csv`, content } },
      { name: 'present_files', args: { filepaths: [`${OUT}/deer.csv`] } },
    ];
    const next = calls[results.length];
    return next === undefined ? { text: 'Look.' } : { toolCalls: [next] };
  }
  return { text: `Heard: ${asked.slice(0, 60)}` };
};

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
      scriptedConfig(provider.openAiUrl, 'agents_api: {enabled: true}\nmemory: {enabled: true}\n'),
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
