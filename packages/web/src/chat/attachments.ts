import type { UploadLimits } from '../api/api.ts';
import { type Say, sizeText } from '../words/words.ts';

/** What of a choice of files is taken, in order, and a sentence for each one that is not. */
export function takeFiles(
  present: readonly File[],
  chosen: readonly File[],
  limits: UploadLimits,
  say: Say,
): { readonly taken: readonly File[]; readonly refused: readonly string[] } {
  const taken: File[] = [];
  const refused: string[] = [];
  let total = present.reduce((sum, file) => sum + file.size, 0);
  for (const file of chosen) {
    // Folders come as files without a type and without a readable size.
    if (file.size === 0 && file.type === '' && !file.name.includes('.'))
      refused.push(say('upload.empty', { name: file.name }));
    else if (present.length + taken.length >= limits.maxFiles)
      refused.push(say('upload.tooMany', { count: limits.maxFiles, name: file.name }));
    else if (file.size > limits.maxFileSize)
      refused.push(say('upload.tooLarge', { name: file.name, size: sizeText(limits.maxFileSize) }));
    else if (total + file.size > limits.maxTotalSize)
      refused.push(say('upload.totalTooLarge', { name: file.name, size: sizeText(limits.maxTotalSize) }));
    else {
      taken.push(file);
      total += file.size;
    }
  }
  return { taken, refused };
}
