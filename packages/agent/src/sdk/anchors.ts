import { ReindeerError } from '@reindeer/protocol';
import type { Middleware } from '../loop/middleware.ts';
import { CLARIFICATION } from '../middleware/clarification.ts';

/** A middleware with its place: right behind another one, right before one, or (without either) just before the questions to the user. */
export interface Placed {
  readonly middleware: Middleware;
  /** Name of the middleware that it stands right behind. */
  readonly after?: string;
  /** Name of the middleware that it stands right before. */
  readonly before?: string;
}

export type ExtraMiddleware = Middleware | Placed;

const isPlaced = (extra: ExtraMiddleware): extra is Placed => 'middleware' in extra;
const refuse = (message: string): never => {
  throw new ReindeerError('configuration', `extraMiddleware: ${message}`);
};

/**
 * The chain with more middleware in it (AG-5). They may be anchored at each other. Questions to the user stay last.
 *
 * @throws ReindeerError `configuration`: two anchors on one, two on the same side of one, an anchor that is nowhere, anchors in a circle
 */
export function withExtras(chain: readonly Middleware[], extras: readonly ExtraMiddleware[]): Middleware[] {
  const placed = extras.map((extra): Placed => (isPlaced(extra) ? extra : { middleware: extra }));
  const sides = new Set<string>();
  for (const { middleware, after, before } of placed) {
    if (after !== undefined && before !== undefined)
      refuse(`"${middleware.name}" has both anchors, after "${after}" and before "${before}". Keep one of them.`);
    const side = after === undefined ? (before === undefined ? null : `before "${before}"`) : `after "${after}"`;
    if (side !== null && sides.has(side)) refuse(`two stand ${side}. Anchor one of them at the other.`);
    if (side !== null) sides.add(side);
  }
  const result = chain.filter(({ name }) => name !== CLARIFICATION);
  const anchorOf = ({ after, before }: Placed): string | undefined => after ?? before;
  result.push(...placed.filter((one) => anchorOf(one) === undefined).map(({ middleware }) => middleware));
  const last = chain.filter(({ name }) => name === CLARIFICATION);
  let open = placed.filter((one) => anchorOf(one) !== undefined);
  while (open.length > 0) {
    const left = open.filter((one) => {
      const at = result.findIndex(({ name }) => name === anchorOf(one));
      // Before the last one of all is the end of the others.
      const end = one.before === CLARIFICATION && last.length > 0;
      if (at < 0 && !end) return true;
      result.splice(end ? result.length : one.after === undefined ? at : at + 1, 0, one.middleware);
      return false;
    });
    if (left.length === open.length) unresolved(left, [...result, ...last]);
    open = left;
  }
  return [...result, ...last];
}

function unresolved(left: readonly Placed[], there: readonly Middleware[]): never {
  const names = left.map(({ middleware }) => middleware.name);
  const lost = left.find(({ after, before }) => !names.includes(after ?? before ?? ''));
  const known = there.map(({ name }) => name).join(', ');
  if (lost === undefined) return refuse(`these are anchored at each other in a circle: ${names.join(', ')}.`);
  if (lost.after === CLARIFICATION)
    return refuse(`"${lost.middleware.name}" cannot stand after "${CLARIFICATION}", which is always last.`);
  return refuse(
    `"${lost.middleware.name}" is anchored at "${lost.after ?? lost.before}", which is not in the chain. There are: ${known}.`,
  );
}
