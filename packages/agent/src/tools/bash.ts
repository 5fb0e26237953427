import type { StructuredToolInterface } from '@langchain/core/tools';
import { type ExecResult, ReindeerError } from '@reindeer/protocol';
import { z } from 'zod';
import { defineTool, failed } from './define.ts';
import { type Hide, withoutMiddle } from './text.ts';

export interface BashSettings {
  /** Milliseconds after which a command and everything it started is ended. */
  readonly timeoutMs: number;
  /** Longest output in characters, marker included; the middle is left out. */
  readonly maxOutputCharacters: number;
  readonly pathStyle: 'virtual' | 'relative';
  readonly secrets: readonly string[];
}

const MAX_COMMAND = 100_000;

/** Runs a command in the thread's sandbox (TOOL-2). Not repeatable: nobody knows what a command does. */
export function bashTool(settings: BashSettings): StructuredToolInterface {
  const seconds = Math.round(settings.timeoutMs / 1_000);
  const place =
    settings.pathStyle === 'virtual'
      ? 'The command starts in /mnt/user-data/workspace.'
      : 'The command starts in the workspace folder; use relative paths.';
  return defineTool({
    name: 'bash',
    description: `Runs a bash command in the sandbox of this conversation and answers its output (stdout and stderr together) and, if it is not 0, the exit code. ${place} Each call is a new shell: working directory and variables do not carry over, files do. Processes that you leave in the background end with the call. A command is ended after ${seconds} s; output beyond ${settings.maxOutputCharacters} characters loses its middle, so write long output to a file.`,
    schema: z.object({
      description: z.string().describe('In a few words: why you run this command.'),
      command: z.string().min(1).max(MAX_COMMAND).describe('The bash command.'),
    }),
    repeatable: false,
    secrets: settings.secrets,
    async run({ command }, { sandbox, signal, scope, state, hider }) {
      if (command.includes('\0')) return failed('the command contains a NUL character.');
      const box = await sandbox();
      if (!box.canExecute) return failed('commands cannot be run on this machine; use the file tools.');
      const env = await scope.access?.bind({ messages: [], ...state }, !scope.delegated, (event) =>
        scope.attempt.emit(event),
      );
      const result = await box.exec({
        command,
        timeoutMs: settings.timeoutMs,
        ...(env === undefined || Object.keys(env).length === 0 ? {} : { env }),
        ...(signal === undefined ? {} : { signal }),
      });
      if (result.ended === 'aborted')
        throw new ReindeerError('aborted', 'The command was ended because the run was stopped.');
      const ending = endingOf(result, seconds);
      const hide = await hider();
      const output = withoutMiddle(
        result.output.trimEnd(),
        settings.maxOutputCharacters - ending.length - 1,
        result.truncatedBytes === 0 ? hide : beside(hide),
      );
      const text = output === '' ? ending || '(no output)' : `${output}${ending === '' ? '' : `\n${ending}`}`;
      return result.ended === 'exit' ? text : failed(text);
    },
  });
}

const DROPPED = /(\n\[… \d+ bytes of output were dropped here …\]\n)/;

/** Where the sandbox has dropped output, a secret may have been cut through. */
function beside(hide: Hide): Hide {
  return (text, cut = {}) => {
    const parts = text.split(DROPPED);
    return parts
      .map((part, at) =>
        at % 2 === 1
          ? part
          : hide(part, { start: at > 0 || cut.start === true, end: at < parts.length - 1 || cut.end === true }),
      )
      .join('');
  };
}

function endingOf(result: ExecResult, seconds: number): string {
  switch (result.ended) {
    case 'timeout':
      return `[The command was ended after ${seconds} s, with everything it had started. Run long work in smaller steps.]`;
    case 'limit':
      return `[The command was ended: it reached the ${result.limit ?? 'resource'} limit of the sandbox.]`;
    case 'aborted':
      return '[The command was ended because the run was stopped.]';
    case 'exit':
      return result.exitCode === 0 ? '' : `[exit code ${result.exitCode ?? 'unknown, ended by a signal'}]`;
  }
}
