/** The pages beside the chats. */
export const PAGES = ['schedules', 'batches', 'memory', 'agents', 'skills', 'tools', 'settings'] as const;
export type PageName = (typeof PAGES)[number];

/** Where in the page the user is. */
export type Place =
  | { readonly at: 'chat'; readonly threadId: string }
  | { readonly at: 'new'; readonly agent: string | null; readonly bootstrap: boolean }
  | { readonly at: PageName };

export const NEW_CHAT: Place = { at: 'new', agent: null, bootstrap: false };

/** `/chats/<id>` is that chat, `/agents/<name>/new` a new chat with that agent, `/memory` and the like a page, everything else a new chat. */
export function placeOf(path: string): Place {
  const threadId = threadInPath(path);
  if (threadId !== null) return { at: 'chat', threadId };
  const talk = /^\/agents\/([A-Za-z0-9-]{1,64})\/(new|make)\/?$/.exec(path);
  if (talk?.[1] !== undefined) return { at: 'new', agent: talk[1].toLowerCase(), bootstrap: talk[2] === 'make' };
  const page = PAGES.find((name) => path === `/${name}` || path === `/${name}/`);
  return page === undefined ? NEW_CHAT : { at: page };
}

export function pathOf(place: Place): string {
  switch (place.at) {
    case 'chat':
      return `/chats/${place.threadId}`;
    case 'new':
      return place.agent === null ? '/' : `/agents/${place.agent}/${place.bootstrap ? 'make' : 'new'}`;
    default:
      return `/${place.at}`;
  }
}

function threadInPath(path: string): string | null {
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
