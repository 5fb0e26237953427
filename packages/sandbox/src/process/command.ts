import { ReindeerError } from '@reindeer/protocol';

/** Linux takes at most 128 KiB per argument; the command is one. */
const MAX_COMMAND_BYTES = 120_000;

/** Checks a command before anything is started; throws `bad_request`. */
export function checkCommand(command: string): void {
  if (command.trim() === '')
    throw new ReindeerError('bad_request', 'The command is empty.', { detail: { field: 'command' } });
  if (command.includes('\0')) {
    throw new ReindeerError('bad_request', 'The command holds a NUL character.', { detail: { field: 'command' } });
  }
  if (Buffer.byteLength(command) > MAX_COMMAND_BYTES) {
    throw new ReindeerError(
      'too_large',
      `The command is longer than ${MAX_COMMAND_BYTES} bytes; write it to a script file first and run that.`,
      { detail: { field: 'command' } },
    );
  }
}
