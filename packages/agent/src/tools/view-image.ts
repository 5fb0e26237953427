import { ToolMessage } from '@langchain/core/messages';
import type { StructuredToolInterface } from '@langchain/core/tools';
import { Command } from '@langchain/langgraph';
import { ReindeerError, VIRTUAL_ROOT } from '@reindeer/protocol';
import { z } from 'zod';
import { defineTool, failed } from './define.ts';
import { shownPath, virtualPath } from './paths.ts';

export const VIEW_IMAGE = 'view_image';
/** Bytes of one picture: what providers take at most. */
export const MAX_IMAGE = 20 * 1024 * 1024;

/** What the state keeps of a picture that was looked at; its pixels never rest there. */
export interface ViewedImage {
  readonly mime_type: string;
  readonly size: number;
  readonly actual_path: string;
  /** When the file was changed last, in milliseconds; absent in states of earlier versions. */
  readonly modified_at?: number;
}

const TYPES: Readonly<Record<string, string>> = {
  '.jpg': 'image/jpeg',
  '.jpeg': 'image/jpeg',
  '.png': 'image/png',
  '.webp': 'image/webp',
  '.gif': 'image/gif',
};

/** The type that the first bytes say; null for none of those that models see. */
export function imageType(bytes: Uint8Array): string | null {
  const starts = (at: number, ...values: number[]): boolean =>
    values.every((value, index) => bytes[at + index] === value);
  if (starts(0, 0xff, 0xd8, 0xff)) return 'image/jpeg';
  if (starts(0, 0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a)) return 'image/png';
  if (starts(0, 0x47, 0x49, 0x46, 0x38)) return 'image/gif';
  if (starts(0, 0x52, 0x49, 0x46, 0x46) && starts(8, 0x57, 0x45, 0x42, 0x50)) return 'image/webp';
  return null;
}

/** Shows the model a picture of the thread (TOOL-6). Only its place is recorded; the pixels go with the next request alone (MW-23). */
export function viewImageTool(pathStyle: 'virtual' | 'relative'): StructuredToolInterface {
  return defineTool({
    name: VIEW_IMAGE,
    description: `Shows you a picture (${Object.keys(TYPES).join(', ')}; at most ${MAX_IMAGE / 1024 / 1024} MB) from the files of this conversation. You see it with your next step only; write down what matters.`,
    schema: z.object({ image_path: z.string().min(1).max(4_096).describe('The path of the picture.') }),
    repeatable: true,
    async run({ image_path }, { sandbox, callId }) {
      const path = virtualPath(image_path);
      if (!path.startsWith(`${VIRTUAL_ROOT}/`))
        throw new ReindeerError('path_refused', `${image_path} is not among the files of this conversation.`);
      const expected = TYPES[/\.[^./]+$/.exec(path)?.[0].toLowerCase() ?? ''];
      if (expected === undefined)
        return failed(
          `${image_path} is no picture that can be shown: its name must end in ${Object.keys(TYPES).join(', ')}.`,
        );
      const { files } = await sandbox();
      const modifiedAt = (await files.stat(path))?.modifiedAt;
      const bytes = await files.read(path, { maxBytes: MAX_IMAGE });
      const found = imageType(bytes);
      if (found === null) return failed(`${image_path} holds no picture, whatever its name says.`);
      if (found !== expected)
        return failed(`${image_path} is called ${expected}, but holds ${found}. Rename it first.`);
      const image: ViewedImage = {
        mime_type: found,
        size: bytes.length,
        actual_path: path,
        ...(modifiedAt === undefined ? {} : { modified_at: modifiedAt }),
      };
      return new Command({
        update: {
          viewed_images: { [path]: image },
          messages: [
            new ToolMessage({
              content: `You will see ${shownPath(path, pathStyle)} (${found}, ${bytes.length} bytes) with this step.`,
              tool_call_id: callId,
              name: VIEW_IMAGE,
            }),
          ],
        },
      });
    },
  });
}
