import { ToolMessage } from '@langchain/core/messages';
import type { StructuredToolInterface } from '@langchain/core/tools';
import { Command } from '@langchain/langgraph';
import { ReindeerError, VIRTUAL_ROOT } from '@reindeer/protocol';
import { z } from 'zod';
import { defineTool, type ToolContext } from './define.ts';
import { shownPath, virtualPath } from './paths.ts';

const OUTPUTS = `${VIRTUAL_ROOT}/outputs/`;
const MAX_FILES = 50;

/** Shows finished files to the user (TOOL-4): all of them, or none when one is not a file in outputs. Repeatable: the list is a set. */
export function presentFilesTool(pathStyle: 'virtual' | 'relative'): StructuredToolInterface {
  return defineTool({
    name: 'present_files',
    description: `Shows finished files to the user, who can open and download them. Only files in ${shownPath(`${OUTPUTS}`, pathStyle)} can be shown; this is the only way in which the user gets a file.`,
    schema: z.object({
      filepaths: z.array(z.string()).min(1).max(MAX_FILES).describe('Paths of the files.'),
    }),
    repeatable: true,
    async run({ filepaths }, context) {
      const paths: string[] = [];
      for (const path of filepaths) paths.push(await checked(path, context));
      return new Command({
        update: {
          artifacts: paths,
          messages: [
            new ToolMessage({
              tool_call_id: context.callId,
              name: 'present_files',
              content: `The user can now open: ${paths.map((path) => shownPath(path, pathStyle)).join(', ')}`,
            }),
          ],
        },
      });
    },
  });
}

async function checked(path: string, { sandbox }: ToolContext): Promise<string> {
  const target = virtualPath(path);
  if (!target.startsWith(OUTPUTS))
    throw new ReindeerError(
      'path_refused',
      `${path} is not in the outputs folder. Nothing was presented. Move it there first.`,
    );
  const box = await sandbox();
  const info = await box.files.stat(target);
  if (info === null)
    throw new ReindeerError('not_found', `${path} does not exist. Nothing was presented. Check the name with ls.`);
  if (info.kind !== 'file')
    throw new ReindeerError('path_refused', `${path} is not a regular file (${info.kind}). Nothing was presented.`);
  return target;
}
