import { threadFile } from '../files/kinds.ts';

/** What a link in the agent's text leads to. Text of a model is not trusted: it can carry what a web page told it to say. */
export type LinkTarget =
  | { readonly kind: 'web'; readonly address: string }
  | { readonly kind: 'file'; readonly path: string }
  | { readonly kind: 'none' };

const WEB = new Set(['http:', 'https:', 'mailto:']);

/** `javascript:`, `data:` and the like lead nowhere; so do addresses inside the page. */
export function linkTarget(address: string | undefined): LinkTarget {
  if (address === undefined || address === '') return { kind: 'none' };
  const path = threadFile(address);
  if (path !== null) return { kind: 'file', path };
  if (!URL.canParse(address)) return { kind: 'none' };
  const url = new URL(address);
  return WEB.has(url.protocol) ? { kind: 'web', address: url.href } : { kind: 'none' };
}
