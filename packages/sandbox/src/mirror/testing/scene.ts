import { randomUUID } from 'node:crypto';
import { mkdir } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import { realClock, realSurroundings } from '@reindeer/testkit';
import { onTestFinished } from 'vitest';
import { ServerTransport } from '../../container/transport.ts';
import { makeThreadFolders } from '../../folders.ts';
import { PipePool } from '../../process/pipes.ts';
import { CommandRunner } from '../../server/commands.ts';
import { digest } from '../../server/http.ts';
import { createSandboxServer } from '../../server/server.ts';
import { temporaryHome, temporaryThread } from '../../test-support.ts';
import { MirrorClient } from '../client.ts';
import { FolderMirror } from '../mirror.ts';
import { threadTree } from '../thread-tree.ts';

const SECRET = 'a secret of at least thirty-two characters';

/** A thread here, and a real server with folders of its own there. */
export async function mirrorScene(options: { readonly maxBytes?: number; readonly maxEntries?: number } = {}) {
  const { paths, toolFiles, files } = await temporaryThread();
  await makeThreadFolders(paths, null);
  const there = await temporaryHome();
  const folders = new Map(['workspace', 'uploads', 'outputs', 'skills'].map((name) => [name, `${there}/${name}`]));
  for (const folder of folders.values()) await mkdir(folder);
  const pipes = new PipePool(`${there}/pipes`);
  const runner = new CommandRunner({
    clock: realClock,
    uuid: randomUUID,
    pipes,
    environment: {},
    ownsContainer: false,
  });
  const server = createSandboxServer({
    secretHash: digest(SECRET),
    runner,
    clock: realClock,
    uuid: randomUUID,
    version: '0',
    home: there,
    folders,
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  const transport = new ServerTransport({ kind: 'url', url }, SECRET, {});
  onTestFinished(async () => {
    await transport.close();
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
    await pipes.close();
  });
  const client = new MirrorClient(transport, realClock);
  const tree = () => threadTree(paths, realSurroundings().random);
  const newMirror = () => new FolderMirror(tree(), options.maxBytes ?? 1024 ** 3, options.maxEntries);
  return {
    here: paths.folders,
    skills: paths.skills,
    there,
    client,
    transport,
    mirror: newMirror(),
    newMirror,
    toolFiles,
    files,
    server,
  };
}
