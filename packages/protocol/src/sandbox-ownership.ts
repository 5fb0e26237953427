/**
 * Who may stop a running sandbox, across instances. One value per sandbox id: *owned* or *being torn down*, with the
 * owner's id and a time to live. It answers "who reaps this", never "who may use it": `take` may steal from a live peer, `claim` never.
 *
 * absent ──take, claim──▶ own(me) ──claim for destroy──▶ del(me) ──release, expiry──▶ absent
 * own(peer) ──take──▶ own(me)        del(anybody) ──take──▶ refused until released or expired (SO-06)
 */

/** What stands in the store for one sandbox id; null = nothing, or it has expired. */
export type OwnershipValue = { readonly state: 'own' | 'del'; readonly owner: string } | null;

export type OwnershipOperation = 'take' | 'claim' | 'claim-for-destroy' | 'renew' | 'release';

/** `lapsed`: nothing stands there, which is no proof of a peer. `lost`: somebody else, or an own teardown marker, stands there. */
export type OwnershipRenewal = 'renewed' | 'lapsed' | 'lost';

export interface OwnershipStep {
  /** For `renew` the outcome; for `release` always true; else: was it granted? */
  readonly answer: boolean | OwnershipRenewal;
  /** `keep`: value and time to live stay untouched (SO-02). `write`: `value` with a whole time to live. `delete`: gone. */
  readonly change: 'keep' | 'write' | 'delete';
  readonly value: OwnershipValue;
}

/** The store's rules as one total, pure function; every implementation expresses the same as one atomic step (SO-22). */
export function reduceOwnership(value: OwnershipValue, operation: OwnershipOperation, me: string): OwnershipStep {
  const mine = value !== null && value.owner === me;
  const own: OwnershipValue = { state: 'own', owner: me };
  const written = (next: OwnershipValue, answer: boolean | OwnershipRenewal): OwnershipStep => ({
    answer,
    change: 'write',
    value: next,
  });
  const kept = (answer: boolean | OwnershipRenewal): OwnershipStep => ({ answer, change: 'keep', value });

  switch (operation) {
    case 'take':
      return value?.state === 'del' ? kept(false) : written(own, true);
    case 'claim':
      // Also refused over an own teardown marker: a teardown is never unwound by its holder (SO-10).
      return value === null || (mine && value.state === 'own') ? written(own, true) : kept(false);
    case 'claim-for-destroy':
      return value === null || mine ? written({ state: 'del', owner: me }, true) : kept(false);
    case 'renew':
      if (value === null) return kept('lapsed');
      return mine && value.state === 'own' ? written(own, 'renewed') : kept('lost');
    case 'release':
      return mine ? { answer: true, change: 'delete', value: null } : kept(true);
  }
}

/** The text form in a store. */
export function encodeOwnership(value: NonNullable<OwnershipValue>): string {
  return `${value.state}:${value.owner}`;
}

/** Reads the text form; null for an absent or foreign value. */
export function decodeOwnership(text: string | null): OwnershipValue {
  if (text === null) return null;
  const state = text.slice(0, 4);
  if (state === 'own:') return { state: 'own', owner: text.slice(4) };
  if (state === 'del:') return { state: 'del', owner: text.slice(4) };
  return null;
}

export interface ClaimOptions {
  readonly forDestroy?: boolean;
  readonly memory?: string;
}

/**
 * The ownership store of one instance. Three answers: yes, no (`false`, `lost`) and *cannot tell*: every method rejects with
 * `store_unavailable` when the store did not answer within a bounded time (SO-16), and never returns `false` for that.
 */
export interface OwnershipStore {
  /** This instance's id in the store; differs between two providers of one process (SO-19). */
  readonly ownerId: string;
  /** Can other instances be seen through it? If not, nobody else exists for us and adoption need not wait (SO-20, SB-55). */
  readonly seesPeers: boolean;
  /** For using: granted when absent or owned by anybody; refused for any teardown marker, the own one included. */
  take(sandboxId: string): Promise<boolean>;
  /**
   * For destroying (`forDestroy`: leaves a teardown marker) or adopting: never steals.
   *
   * @param options.memory granted only while `memory` still answers this; one step with the look at the lease
   */
  claim(sandboxId: string, options?: ClaimOptions): Promise<boolean>;
  /** Refreshes the own lease; never creates one, never keeps a teardown marker alive. */
  renew(sandboxId: string): Promise<OwnershipRenewal>;
  /** Deletes the own value, in either state; else nothing. */
  release(sandboxId: string): Promise<void>;
  /** Owner in either state, or null; without any effect (SO-14). */
  owner(sandboxId: string): Promise<string | null>;
  /**
   * Names what the store remembers: another name than before says that it may have forgotten leases in between, so that "nobody owns it" proves
   * nothing about that time. The same for all instances. Left out by a store that never forgets.
   */
  memory?(): Promise<string>;
  /** Lets go of connections, not of leases. Idempotent. */
  close(): Promise<void>;
}
