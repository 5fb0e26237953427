import { fileURLToPath } from 'node:url';

/** Where things outside the program's own modules are, from source and bundled alike. */
export interface Resources {
  /** Entry of the database's thread; absent = the database package knows its own source. */
  readonly databaseWorker: URL | undefined;
  /** Entry of the thread that reads documents; absent = the agent package knows its own source. */
  readonly documentWorker: URL | undefined;
  /** Folder of the skills that come with Reindeer. */
  readonly skillsFolder: string;
  /** Folder of the built web app. */
  readonly pageFolder: string;
}

/**
 * @param entry `import.meta.url` of the program's entry: `dist/server/main.js` when bundled, with its workers beside it;
 *   `packages/gateway/src/main.ts` from source
 */
export function resourcesOf(entry: string): Resources {
  const bundled = !entry.endsWith('.ts');
  return {
    databaseWorker: bundled ? new URL('./database-worker.js', entry) : undefined,
    documentWorker: bundled ? new URL('./agent-worker.js', entry) : undefined,
    skillsFolder: fileURLToPath(new URL(bundled ? '../../skills/public' : '../../../skills/public', entry)),
    pageFolder: fileURLToPath(new URL(bundled ? '../web' : '../../../dist/web', entry)),
  };
}
