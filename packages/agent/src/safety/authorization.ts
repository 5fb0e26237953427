import { type Logger, SCHEDULED_KEY } from '@reindeer/protocol';
import { CHANNEL_KEY } from './channels.ts';

/** For whom something is done. Made by the server; nothing in a request chooses it. */
export interface Principal {
  readonly userId: string;
  readonly role: string;
  /** Where the request came from, e.g. `github`; null = the API itself. */
  readonly channel: string | null;
  /** A second role that must be allowed to do it, too; absent = none. */
  readonly within?: string;
}

export type Resource = 'tools' | 'routes' | 'models';

/** Says who may do what (SAFE-2). It may be slow or fail: then `fail_closed` of the configuration decides. */
export interface AuthorizationProvider {
  readonly name: string;
  permits(principal: Principal, resource: Resource, name: string): boolean | Promise<boolean>;
}

/** What a role may do with one kind of resource. A name may end in `*`. */
export interface Grant {
  /** `*` = everything. */
  readonly allow: '*' | readonly string[];
  readonly deny: readonly string[];
}
/** A resource that is left out is not restricted. */
export type RoleGrants = Readonly<Partial<Record<Resource, Grant>>>;

export interface AuthorizationSettings {
  /** null = everybody may do everything. */
  readonly provider: AuthorizationProvider | null;
  readonly failClosed: boolean;
  /** Of users that have no other. */
  readonly defaultRole: string;
  /** Role by the user's id, in the form that the server uses (`safeUserId`). */
  readonly users: Readonly<Record<string, string>>;
}

export const NO_AUTHORIZATION: AuthorizationSettings = {
  provider: null,
  failClosed: true,
  defaultRole: 'user',
  users: {},
};

const fits = (pattern: string, name: string): boolean =>
  pattern.endsWith('*') ? name.startsWith(pattern.slice(0, -1)) : pattern === name;

/** Roles with lists of what they may do; what is denied is denied, allowed or not, and a role that is not there may do nothing. */
export function rbacProvider(roles: Readonly<Record<string, RoleGrants>>): AuthorizationProvider {
  return {
    name: 'rbac',
    permits({ role }, resource, name) {
      const grants = Object.hasOwn(roles, role) ? roles[role] : undefined;
      if (grants === undefined) return false;
      const grant = grants[resource];
      if (grant === undefined) return true;
      if (grant.deny.some((pattern) => fits(pattern, name))) return false;
      return grant.allow === '*' || grant.allow.some((pattern) => fits(pattern, name));
    },
  };
}

/** What a run's context says of who asked; written by the server alone. */
export const ROLE_KEY = 'user_role';

/** The one place that asks whether somebody may do something. */
export class Authorization {
  readonly #settings: AuthorizationSettings;
  readonly #logger: Logger;

  constructor(settings: AuthorizationSettings, logger: Logger) {
    this.#settings = settings;
    this.#logger = logger;
  }

  get active(): boolean {
    return this.#settings.provider !== null;
  }

  /** @param role as somebody trusted said it; null = the one that the configuration gives the user */
  principal(userId: string, role: unknown, channel: unknown): Principal {
    const { users, defaultRole } = this.#settings;
    const known = Object.hasOwn(users, userId) ? users[userId] : undefined;
    return {
      userId,
      role: typeof role === 'string' && role !== '' ? role : (known ?? defaultRole),
      channel: typeof channel === 'string' && channel !== '' ? channel : null,
    };
  }

  /**
   * For whom a run is. When a schedule begins it, no program is there to say so: the role that one named when the task was planned may be lost by now.
   * So it only takes away from what the configuration gives that user at this moment.
   */
  principalOf(run: {
    readonly userId: string;
    readonly request: { readonly context: Readonly<Record<string, unknown>> };
  }): Principal {
    const { context } = run.request;
    const principal = this.principal(run.userId, context[ROLE_KEY], context[CHANNEL_KEY]);
    if (context[SCHEDULED_KEY] !== true) return principal;
    const { role: within } = this.principal(run.userId, null, null);
    return within === principal.role ? principal : { ...principal, within };
  }

  /** Never throws. */
  async permits(principal: Principal, resource: Resource, name: string): Promise<boolean> {
    const { within, ...first } = principal;
    if (within !== undefined && !(await this.#permits({ ...first, role: within }, resource, name))) return false;
    return await this.#permits(first, resource, name);
  }

  async #permits(principal: Principal, resource: Resource, name: string): Promise<boolean> {
    const { provider, failClosed } = this.#settings;
    if (provider === null) return true;
    try {
      return await provider.permits(principal, resource, name);
    } catch (error) {
      this.#logger.warn('An authorization provider failed', {
        provider: provider.name,
        reason: error instanceof Error ? error.name : 'unknown',
        answer: failClosed ? 'no' : 'yes',
      });
      return !failClosed;
    }
  }
}
