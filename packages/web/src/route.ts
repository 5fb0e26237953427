/** `/chats/<id>` is that chat, everything else a new one. */
export function threadInPath(path: string): string | null {
  return /^\/chats\/([A-Za-z0-9_-]{1,64})\/?$/.exec(path)?.[1] ?? null;
}

/** A UUID also where `crypto.randomUUID` is missing: on plain http from another machine. */
export function newUuid(source: Crypto): string {
  if (typeof source.randomUUID === 'function') return source.randomUUID();
  const bytes = source.getRandomValues(new Uint8Array(16));
  bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x40;
  bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80;
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}
