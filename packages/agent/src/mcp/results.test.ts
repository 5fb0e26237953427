import type { SandboxFiles } from '@reindeer/protocol';
import { expect, test } from 'vitest';
import { mapResult } from './results.ts';

test('the ending of a kept file is one of ours, whatever kind a server names', async () => {
  const paths: string[] = [];
  const files = {
    writeStream: async (path: string) => {
      paths.push(path);
    },
  } as unknown as SandboxFiles;
  const image = (mimeType: string) => ({ type: 'image' as const, data: 'AAAA', mimeType });
  const content = [image('image/png'), image('constructor'), image('text/x-odd')];
  await mapResult({ content }, 'look', async () => files);
  const folder = '/mnt/user-data/workspace/mcp';
  expect(paths).toEqual([`${folder}/look-1.png`, `${folder}/look-2.bin`, `${folder}/look-3.bin`]);
});
