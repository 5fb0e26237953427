import { type OwnershipStore, ReindeerError } from '@reindeer/protocol';
import { afterEach, describe, expect, test } from 'vitest';
import { verifies } from '../verifies.ts';
import type { OwnershipScene } from './ownership-store.ts';

type Trouble = 'fail-before' | 'fail-after' | 'duplicate';

/** The same store behind a network that fails once per operation: before it arrives, after it was done, or by delivering it twice. */
function troubled(store: OwnershipStore, trouble: Trouble): OwnershipStore {
  const due = new Set<string>();
  const lost = () => new ReindeerError('store_unavailable', 'No answer came.', { retryable: true });
  const through = async <T>(name: string, call: () => Promise<T>): Promise<T> => {
    const first = !due.has(name);
    due.add(name);
    if (!first) return call();
    if (trouble === 'fail-before') throw lost();
    const answer = await call();
    if (trouble === 'fail-after') throw lost();
    return trouble === 'duplicate' ? call() : answer;
  };
  return {
    ownerId: store.ownerId,
    seesPeers: store.seesPeers,
    take: (id) => through('take', () => store.take(id)),
    claim: (id, options) => through(options?.forDestroy === true ? 'destroy' : 'claim', () => store.claim(id, options)),
    renew: (id) => through('renew', () => store.renew(id)),
    release: (id) => through('release', () => store.release(id)),
    owner: (id) => through('owner', () => store.owner(id)),
    ...(store.memory === undefined
      ? {}
      : { memory: () => through('memory', () => store.memory?.() ?? Promise.resolve('')) }),
    close: () => store.close(),
  };
}

async function again<T>(call: () => Promise<T>): Promise<T> {
  try {
    return await call();
  } catch (error) {
    if (!ReindeerError.is(error) || error.code !== 'store_unavailable') throw error;
    return call();
  }
}

/** What a caller may rely on who asks again after "cannot tell": every operation of an owner does the same when it is done twice. */
export function ownershipFaultContract(name: string, factory: () => Promise<OwnershipScene>): void {
  describe(`ownership store that loses questions and answers: ${name}`, () => {
    const open: OwnershipScene[] = [];
    afterEach(async () => {
      for (const made of open.splice(0)) await made.close();
    });

    test.each(['fail-before', 'fail-after', 'duplicate'] as const)(
      '%s: asked again, it stands as if it had been asked once',
      verifies('SO-03', 'SO-08', 'SO-13', 'SO-16'),
      async (trouble) => {
        const made = await factory();
        open.push(made);
        const { b } = made;
        const a = troubled(made.a, trouble);
        expect(await again(() => a.take('x'))).toBe(true);
        expect(await b.owner('x')).toBe(a.ownerId);
        expect(await again(() => a.renew('x'))).toBe('renewed');
        expect(await again(() => a.claim('x'))).toBe(true);
        expect(await again(() => a.claim('x', { forDestroy: true }))).toBe(true);
        expect(await b.take('x')).toBe(false);
        expect(await again(() => a.owner('x'))).toBe(a.ownerId);
        await again(() => a.release('x'));
        expect(await b.take('x')).toBe(true);
        // What a peer has taken since is not touched by a release that is repeated.
        await a.release('x');
        expect(await b.owner('x')).toBe(b.ownerId);
      },
    );
  });
}
