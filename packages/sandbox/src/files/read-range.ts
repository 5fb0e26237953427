import type { FileHandle } from 'node:fs/promises';
import { type FileInfo, ReindeerError } from '@reindeer/protocol';

const CHUNK = 128 * 1024;

/**
 * A stream over bytes `start` … `end` (exclusive) of an open file; closes the file at its end, on an error, and when it is
 * cancelled. Throws `range_not_satisfiable` for a range outside the file; `end` is cut to the file's size.
 */
export function readRange(
  file: FileHandle,
  info: FileInfo,
  range: { readonly start: number; readonly end: number } | undefined,
): ReadableStream<Uint8Array> {
  const start = range?.start ?? 0;
  const end = Math.min(range?.end ?? info.size, info.size);
  const whole = Number.isInteger(start) && Number.isInteger(end);
  if (range !== undefined && (!whole || start < 0 || start >= end)) {
    throw new ReindeerError('range_not_satisfiable', `${info.path}: bytes ${start}–${range.end} do not exist`, {
      detail: { path: info.path, size: info.size },
    });
  }
  let position = start;
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        try {
          const chunk = new Uint8Array(Math.min(CHUNK, end - position));
          const { bytesRead } =
            chunk.length === 0 ? { bytesRead: 0 } : await file.read(chunk, 0, chunk.length, position);
          position += bytesRead;
          if (bytesRead > 0) controller.enqueue(chunk.subarray(0, bytesRead));
          if (bytesRead > 0 && position < end) return;
          await file.close();
          // A file that shrank meanwhile must not look complete.
          if (position < end)
            controller.error(new ReindeerError('conflict', `${info.path}: was cut short while it was read`));
          else controller.close();
        } catch (cause) {
          await file.close().catch(() => {});
          controller.error(new ReindeerError('internal', `${info.path}: could not be read`, { cause }));
        }
      },
      cancel: () => file.close(),
    },
    { highWaterMark: 0 },
  );
}
