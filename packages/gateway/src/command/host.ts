import { relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { ShutdownOwnership } from '@reindeer/protocol';
import type { ExitProcess } from '@reindeer/sandbox';
import type { Variables } from '../config/substitute.ts';
import type { ProcessEvents } from '../life/signals.ts';

/** The process around the program, passed in so that commands can be tested without one. */
export interface Host {
  readonly environment: Variables;
  readonly cwd: string;
  /** Standard output: results. Resolves when there is room for more. */
  print(text: string): Promise<void>;
  /** Standard error: everything else. */
  say(text: string): void;
  /** Is standard error a terminal? */
  readonly interactive: boolean;
  readonly process: ProcessEvents & ExitProcess;
  /** Who stops the sandboxes when this process is told to end. */
  readonly shutdownOwnership: ShutdownOwnership;
  exit(code: number): void;
  /** `import.meta.url` of the entry. */
  readonly entry: string;
  readonly version: string;
  readonly nodeVersion: string;
}

/** How this program was called, for hints that can be copied: through npm, or by the path of its entry. */
export function calledAs({ environment, cwd, entry }: Host): string {
  if (environment.npm_lifecycle_event === 'reindeer') return 'npm run reindeer --';
  return `node ${relative(cwd, fileURLToPath(entry))}`;
}

/** Exit codes; `run --help` lists them. */
export const EXIT = { done: 0, failed: 1, usage: 2, asks: 3, interrupted: 130 } as const;
