import { type Logger, ReindeerError, type SandboxFiles, VIRTUAL_FOLDERS, VIRTUAL_ROOT } from '@reindeer/protocol';

const FILES = 2_000;
const BYTES = 512 * 1024 * 1024;
const DEPTH = 16;

export type CloneMode = 'current_thread_best_effort' | 'not_found' | 'failed';

/**
 * Copies the regular files of one thread to another. Links, special files and what cannot be read stay behind; past 2,000 files or
 * 512 MiB nothing more is copied. The agent works on either copy without touching the other.
 */
export async function copyWorkspace(from: SandboxFiles, to: SandboxFiles, logger: Logger): Promise<CloneMode> {
  let files = 0;
  let bytes = 0;
  let failed = 0;
  for (const folder of VIRTUAL_FOLDERS) {
    const root = `${VIRTUAL_ROOT}/${folder}`;
    const listed = await from
      .list(root, { depth: DEPTH, limit: FILES * 2, ignore: ['node_modules', '.venv', '__pycache__'] })
      .catch((error: unknown) => {
        if (!ReindeerError.is(error) || error.code !== 'not_found') failed += 1;
        return { entries: [] };
      });
    for (const { path, kind, size } of listed.entries) {
      if (kind !== 'file') continue;
      if (files >= FILES || bytes + size > BYTES) break;
      try {
        const { stream } = await from.openRead(path);
        const copied = await to.writeStream(path, stream, { maxBytes: BYTES, overwrite: true });
        files += 1;
        bytes += copied.size;
      } catch (error) {
        failed += 1;
        logger.debug('a file was not copied to a branch', { error: String(error) });
      }
    }
  }
  if (files > 0) return 'current_thread_best_effort';
  return failed > 0 ? 'failed' : 'not_found';
}
