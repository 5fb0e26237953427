/**
 * Ids as bytes: a UUID takes 16 bytes instead of 36, and bytes sort as the texts do (LangGraph's ids grow with time). Other
 * texts stand behind two bytes that no time-ordered UUID begins with.
 */
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;
const OTHER = Buffer.from([0xff, 0x00]);

export function idToBytes(id: string): Uint8Array {
  if (UUID.test(id) && !id.startsWith('ff00')) return Buffer.from(id.replaceAll('-', ''), 'hex');
  return Buffer.concat([OTHER, Buffer.from(id, 'utf8')]);
}

export function idFromBytes(bytes: Uint8Array): string {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (buffer[0] === 0xff && buffer[1] === 0x00) return buffer.toString('utf8', 2);
  const hex = buffer.toString('hex');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}
