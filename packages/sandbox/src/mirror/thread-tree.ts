import type { Random } from '@reindeer/protocol';
import { Staging } from '../files/staging.ts';
import type { ThreadPaths } from '../folders.ts';
import { Tree } from './tree.ts';

/** The carried folders of a thread, as the gateway keeps them. */
export function threadTree(paths: ThreadPaths, random: Random): Tree {
  const staging = new Staging(paths.staging, random);
  const { workspace, outputs, uploads } = paths.folders;
  return new Tree({
    folders: new Map([
      ['workspace', workspace],
      ['outputs', outputs],
      ['uploads', uploads],
      ['skills', paths.skills],
    ]),
    place: (folder, name, mode, fill) =>
      staging.place(folder, name, { mode, overwrite: true, owner: folder.owner }, fill),
    commands: false,
  });
}
