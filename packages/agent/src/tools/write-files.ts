import type { StructuredToolInterface } from '@langchain/core/tools';
import { z } from 'zod';
import { defineTool, failed } from './define.ts';
import { virtualPath } from './paths.ts';

export interface WriteSettings {
  /** Longest content of one call in bytes; 0 = no limit. */
  readonly maxBytes: number;
}

const MAX_EDIT_BYTES = 20 * 1024 * 1024;
const shared = {
  description: z.string().describe('In a few words: why you change this file.'),
  path: z.string().describe('Path of the file, in workspace or outputs.'),
};

/** Writes a text file (TOOL-3). Not repeatable: a second append would double the text. */
export function writeFileTool(settings: WriteSettings): StructuredToolInterface {
  const limit =
    settings.maxBytes === 0
      ? ''
      : ` At most ${settings.maxBytes} bytes a call: write longer files in parts, the later ones with append=true.`;
  return defineTool({
    name: 'write_file',
    description: `Writes a text file, with its folders, and replaces what was there unless append is true.${limit}`,
    schema: z.object({
      ...shared,
      content: z.string().describe('The text.'),
      append: z.boolean().optional().describe('Add to the end of the file instead of replacing it.'),
    }),
    repeatable: false,
    async run({ path, content, append }, { sandbox, scope }) {
      const bytes = Buffer.byteLength(content);
      // Appending is the way past the limit, so it has none (SL-21).
      if (append !== true && settings.maxBytes > 0 && bytes > settings.maxBytes)
        return failed(
          `the content has ${bytes} bytes, more than the ${settings.maxBytes} of one call. Nothing was written. Write the first part, then the others with append=true.`,
        );
      const target = virtualPath(path);
      const box = await sandbox();
      await scope.serialise(target, () => box.files.write(target, content, { append: append ?? false }));
      return 'OK';
    },
  });
}

/** Replaces text in a file (TOOL-3): once, and only when the text is unique, or everywhere on request. */
export function strReplaceTool(): StructuredToolInterface {
  return defineTool({
    name: 'str_replace',
    description:
      'Replaces text in a file. old_str must stand in the file exactly once, with the same white space; give more lines around it to make it unique, or set replace_all.',
    schema: z.object({
      ...shared,
      old_str: z.string().describe('The text to replace, exactly as it stands in the file.'),
      new_str: z.string().describe('The new text.'),
      replace_all: z.boolean().optional().describe('Replace every occurrence.'),
    }),
    repeatable: false,
    async run({ path, old_str, new_str, replace_all }, { sandbox, scope }) {
      const target = virtualPath(path);
      const box = await sandbox();
      return scope.serialise(target, async () => {
        const bytes = await box.files.read(target, { maxBytes: MAX_EDIT_BYTES });
        const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
        if (old_str === '')
          return text === '' ? 'OK' : failed('old_str is empty. Give the text that should be replaced.');
        const count = text.split(old_str).length - 1;
        if (count === 0)
          return failed(
            `old_str does not stand in ${path}. Read the file and copy the text exactly, with its white space.`,
          );
        if (count > 1 && replace_all !== true)
          return failed(
            `old_str stands ${count} times in ${path}. Nothing was changed. Give more text around it so that it is unique, or set replace_all.`,
          );
        // A function, because a replacement text may contain `$&`.
        await box.files.write(
          target,
          replace_all === true ? text.replaceAll(old_str, () => new_str) : text.replace(old_str, () => new_str),
        );
        return 'OK';
      });
    },
  });
}
