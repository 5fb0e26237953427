// Installs Debian packages where that is allowed (root on Debian), and says the one command where it is not.
import { existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { run, say } from './toolchain.mjs';

const programs = {
  bubblewrap: ['bwrap'],
  'redis-server': ['redis-server'],
  chromium: ['chromium', 'chromium-browser', 'google-chrome'],
  'docker.io': ['dockerd'],
};

function onPath(name) {
  return [...(process.env.PATH ?? '').split(delimiter), '/usr/sbin', '/usr/local/sbin'].some((folder) =>
    existsSync(join(folder, name)),
  );
}

/** @param {string[]} packages Debian package names. @returns those that are still missing */
export async function ensureSystem(packages) {
  const missing = packages.filter((name) => !programs[name].some(onPath));
  if (missing.length === 0) return [];
  const may = process.platform === 'linux' && process.getuid?.() === 0 && existsSync('/usr/bin/apt-get');
  if (may) {
    say(`· installing ${missing.join(', ')} from Debian (once) …`);
    const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
    const install = () => run('apt-get', ['install', '-y', '--no-install-recommends', ...missing], { env });
    let result = await install();
    if (result.code !== 0) {
      await run('apt-get', ['update'], { env });
      result = await install();
    }
    if (result.code !== 0) {
      say(`  could not install them: ${result.output.trim().split('\n').at(-1) ?? ''}`);
    }
  }
  const still = missing.filter((name) => !programs[name].some(onPath));
  if (still.length > 0 && !may)
    say(`· not installed: ${still.join(', ')}. To add: sudo apt-get install ${still.join(' ')}`);
  return still;
}
