import { execFile } from 'node:child_process';
import { access } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { type Browser, chromium, type Page } from 'playwright-core';

const PLACES = [
  '/usr/bin/chromium',
  '/usr/bin/chromium-browser',
  '/usr/bin/google-chrome',
  '/usr/bin/google-chrome-stable',
];

/** The browser of this machine; null when there is none. */
export async function findBrowser(): Promise<string | null> {
  for (const place of [process.env.CHROMIUM ?? '', ...PLACES]) {
    if (place === '') continue;
    const found = await access(place).then(
      () => true,
      () => false,
    );
    if (found) return place;
  }
  return null;
}

export function launch(executablePath: string): Promise<Browser> {
  // As root, as in most containers, Chromium cannot have a sandbox of its own.
  const asRoot = process.getuid?.() === 0 ? ['--no-sandbox'] : [];
  return chromium.launch({ executablePath, args: [...asRoot, '--disable-gpu', '--disable-dev-shm-usage'] });
}

/**
 * Builds the page as it is now, in a process of its own: a test runner's environment would make it a development build. Where the program
 * is a bundle, the page was built with it.
 */
export async function buildPage(): Promise<void> {
  if (process.env.REINDEER_TEST_ENTRY !== undefined) return;
  const root = join(import.meta.dirname, '../..');
  await promisify(execFile)(
    process.execPath,
    [join(root, 'node_modules/vite/bin/vite.js'), 'build', 'packages/web', '--logLevel', 'error'],
    {
      cwd: root,
      env: { ...process.env, NODE_ENV: 'production' },
    },
  );
}

/** What a page complained about: errors, and everything that its policy refused. */
export function complaints(page: Page): string[] {
  const found: string[] = [];
  page.on('pageerror', (error) => found.push(`error: ${error.message}`));
  page.on('console', (message) => {
    if (message.type() === 'error' || message.type() === 'warning') found.push(`${message.type()}: ${message.text()}`);
  });
  return found;
}

/** Controls without a name that a screen reader could say. */
export function namelessControls(page: Page): Promise<string[]> {
  return page.evaluate(() => {
    const controls = document.querySelectorAll<HTMLElement>(
      'button, a[href], input:not([hidden]), select, textarea, summary, iframe',
    );
    return [...controls]
      .filter((control) => control.checkVisibility() && control.getAttribute('aria-hidden') !== 'true')
      .filter((control) => {
        const labelled = control.getAttribute('aria-labelledby');
        const name =
          control.getAttribute('aria-label') ??
          (labelled === null ? null : document.getElementById(labelled)?.textContent) ??
          ('labels' in control ? (control as HTMLInputElement).labels?.[0]?.textContent : null) ??
          control.title;
        return `${name ?? ''}${control.textContent}`.trim() === '';
      })
      .map((control) => control.outerHTML.slice(0, 200));
  });
}

/** By how many pixels the page is wider than its window. */
export function overflow(page: Page): Promise<number> {
  return page.evaluate(() => {
    const root = document.documentElement;
    const widest = Math.max(
      ...[...document.querySelectorAll('main *')].map((element) => element.getBoundingClientRect().right),
    );
    return Math.max(root.scrollWidth - root.clientWidth, Math.ceil(widest - root.clientWidth));
  });
}
