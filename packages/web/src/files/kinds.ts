/** How a file of the thread is shown. Nothing of it ever runs: active content is text, or a frame without any rights. */
export type FileKind =
  | 'markdown'
  | 'text'
  | 'table'
  | 'page'
  | 'paper'
  | 'skill'
  | 'image'
  | 'audio'
  | 'video'
  | 'none';

const BY_ENDING: ReadonlyMap<string, FileKind> = new Map<string, FileKind>(
  (
    [
      ['markdown', 'md markdown'],
      ['page', 'html htm xhtml'],
      ['image', 'png jpg jpeg gif webp avif bmp ico svg'],
      ['audio', 'mp3 wav ogg m4a flac'],
      ['video', 'mp4 webm mov'],
      ['table', 'csv tsv'],
      ['paper', 'pdf'],
      ['skill', 'skill'],
      [
        'text',
        'txt log json jsonl yaml yml toml ini cfg conf env xml css js mjs cjs ts tsx jsx py rb go rs c h cpp hpp cs java kt swift sh bash zsh sql r tex diff patch gitignore dockerfile makefile lua pl php',
      ],
    ] as const
  ).flatMap(([kind, endings]) => endings.split(' ').map((ending) => [ending, kind] as const)),
);

/** The media types under which images and sounds are shown; the server's word for a type is not taken. */
const MEDIA: ReadonlyMap<string, string> = new Map(
  Object.entries({
    png: 'image/png',
    jpg: 'image/jpeg',
    jpeg: 'image/jpeg',
    gif: 'image/gif',
    webp: 'image/webp',
    avif: 'image/avif',
    bmp: 'image/bmp',
    ico: 'image/x-icon',
    // Inside an img element nothing of an SVG runs.
    svg: 'image/svg+xml',
    mp3: 'audio/mpeg',
    wav: 'audio/wav',
    ogg: 'audio/ogg',
    m4a: 'audio/mp4',
    flac: 'audio/flac',
    mp4: 'video/mp4',
    webm: 'video/webm',
    mov: 'video/quicktime',
    pdf: 'application/pdf',
  }),
);

export function fileName(path: string): string {
  return path.split('/').at(-1) ?? path;
}

function ending(path: string): string {
  const name = fileName(path).toLowerCase();
  return name.includes('.') ? (name.split('.').at(-1) ?? '') : name;
}

export function fileKind(path: string): FileKind {
  return BY_ENDING.get(ending(path)) ?? 'none';
}

export function mediaType(path: string): string {
  return MEDIA.get(ending(path)) ?? 'application/octet-stream';
}

/** Bytes without NUL that are valid UTF-8 are text, whatever the name says. The last character may be cut. */
export function decodeText(bytes: Uint8Array): string | null {
  if (bytes.includes(0)) return null;
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes, { stream: true });
  } catch {
    return null;
  }
}

/** Is this the address of a file of the thread, as the agent speaks of it? */
export function threadFile(address: string): string | null {
  let path: string;
  try {
    path = decodeURIComponent(address.replace(/^(?:sandbox:|file:\/\/)/, '').replace(/[?#].*$/, ''));
  } catch {
    return null;
  }
  if (!/^\/mnt\/user-data\/(?:workspace|uploads|outputs)\/./.test(path)) return null;
  return path.split('/').includes('..') ? null : path;
}
