import { z } from '@hono/zod-openapi';
import {
  type ChannelService,
  CREDENTIALS,
  isProvider,
  PROVIDERS,
  type Provider,
  type ProviderView,
} from '@reindeer/channels';
import { type ChannelConnection, ReindeerError } from '@reindeer/protocol';
import { notFound } from './errors.ts';
import { type Api, type RequestContext, route } from './route.ts';
import { idSchema } from './run-request.ts';

const tag = 'Channels';
const PATH = '/channels';
const provider = z.object({ provider: z.string().max(64) });

export interface ChannelRouteParts {
  readonly channels: ChannelService;
  /** Whose requests those are that name no user: the operator's. */
  readonly operator: string;
}

/** Messengers: how each is doing, which accounts are connected with the user, and, for the operator, the bots' credentials. */
export function channelRoutes(api: Api, { channels, operator }: ChannelRouteParts): void {
  const known = (name: string): Provider => {
    if (isProvider(name)) return name;
    throw new ReindeerError(
      'not_found',
      `There is no channel "${name.slice(0, 64)}". There are: ${PROVIDERS.join(', ')}.`,
    );
  };
  const viewOf = async (name: Provider): Promise<ProviderView> => {
    const found = (await channels.views()).find((view) => view.provider === name);
    if (found === undefined) throw notFound('channel', name);
    return found;
  };
  const mustAdminister = async (c: RequestContext): Promise<void> => {
    const permits = c.get('permits');
    const may = permits === undefined ? c.get('userId') === operator : await permits('routes', 'channels:admin');
    if (!may)
      throw new ReindeerError(
        'forbidden',
        'Only the operator may do this: without roles the user of the server itself, with roles one that has channels:admin.',
      );
  };
  const mayAdminister = async (c: RequestContext): Promise<boolean> =>
    await mustAdminister(c).then(
      () => true,
      () => false,
    );

  route(
    api,
    {
      method: 'get',
      path: PATH,
      tag,
      summary: 'How each channel is doing.',
      answers: { 200: '{service_running, channels}' },
    },
    async ({ c }) =>
      c.json({
        service_running: channels.running,
        channels: Object.fromEntries(
          (await channels.views()).map((view) => [
            view.provider,
            {
              enabled: view.enabled,
              running: view.status.state === 'running',
              state: view.status.state,
              reason: view.status.reason,
              bot_username: view.status.username,
            },
          ]),
        ),
      }),
  );
  route(
    api,
    {
      method: 'get',
      path: `${PATH}/providers`,
      tag,
      summary: 'The messengers that there are, and what each needs. Secrets are masked.',
      answers: { 200: '{enabled, admin, providers}' },
    },
    async ({ c }) => {
      const admin = await mayAdminister(c);
      const views = await channels.views();
      const own = await channels.connections(c.get('userId'));
      return c.json({
        enabled: views.some((view) => view.enabled),
        // May the caller enter credentials?
        admin,
        providers: views.map((view) => ({
          provider: view.provider,
          display_name: view.title,
          enabled: view.enabled,
          configured: view.configured,
          connectable: view.enabled && view.status.state !== 'off',
          unavailable_reason: unavailable(view),
          auth_mode: view.status.username === null ? 'binding_code' : 'deep_link',
          connection_status: own.some((one) => one.provider === view.provider) ? 'connected' : 'not_connected',
          credential_fields: CREDENTIALS[view.provider].fields.map(({ name, label, secret, required }) => ({
            name,
            label,
            type: secret ? 'password' : 'text',
            required,
          })),
          credential_values: admin ? view.values : {},
        })),
      });
    },
  );
  route(
    api,
    {
      method: 'get',
      path: `${PATH}/connections`,
      tag,
      summary: 'The accounts that act for the user.',
      answers: { 200: '{connections}' },
    },
    async ({ c }) => c.json({ connections: (await channels.connections(c.get('userId'))).map(connectionView) }),
  );
  route(
    api,
    {
      method: 'delete',
      path: `${PATH}/connections/:connection_id`,
      tag,
      summary: 'Disconnect an account: what it writes is no longer done.',
      params: z.object({ connection_id: idSchema }),
      answers: { 204: 'Disconnected.', 404: 'The user has no such connection.' },
    },
    async ({ c, params }) => {
      if (!(await channels.disconnect(c.get('userId'), params.connection_id)))
        throw notFound('connection', params.connection_id);
      return c.body(null, 204);
    },
  );
  route(
    api,
    {
      method: 'post',
      path: `${PATH}/:provider/connect`,
      tag,
      summary: 'A code by which an account becomes connected with the user: good once, for ten minutes.',
      params: provider,
      answers: {
        200: '{provider, mode, url, code, instruction, expires_in}',
        404: 'No such channel.',
        409: 'The channel is not set up.',
        429: 'Five codes of the user are not used yet.',
      },
    },
    async ({ c, params }) => {
      const offer = await channels.connect(c.get('userId'), known(params.provider));
      return c.json({
        provider: offer.provider,
        mode: offer.mode,
        ...(offer.url === null ? {} : { url: offer.url }),
        code: offer.code,
        instruction: offer.instruction,
        expires_in: offer.expiresInMs / 1_000,
      });
    },
  );
  route(
    api,
    {
      method: 'post',
      path: `${PATH}/:provider/restart`,
      tag,
      summary: 'Connect a channel anew. For the operator.',
      params: provider,
      answers: { 200: '{success, message}', 403: 'Not the operator.', 404: 'No such channel.' },
    },
    async ({ c, params }) => {
      await mustAdminister(c);
      const name = known(params.provider);
      const { enabled, title } = await viewOf(name);
      if (enabled) channels.restart(name);
      return c.json({
        success: enabled,
        message: enabled ? `${title} connects anew.` : `${title} is not set up, or switched off in config.yaml.`,
      });
    },
  );
  route(
    api,
    {
      method: 'post',
      path: `${PATH}/:provider/runtime-config`,
      tag,
      summary:
        'Enter the credentials of a bot; a mask keeps what is stored. They stand above config.yaml. For the operator.',
      params: provider,
      body: z.strictObject({ values: z.record(z.string().max(64), z.string().max(1_000)) }),
      answers: {
        200: '{success, message}',
        403: 'Not the operator.',
        404: 'No such channel.',
        422: 'A value is wrong.',
      },
    },
    async ({ c, params, body }) => {
      await mustAdminister(c);
      const name = known(params.provider);
      await channels.configure(name, body.values);
      const { enabled, title } = await viewOf(name);
      return c.json({
        success: true,
        message: enabled ? `${title} connects.` : `${title} is switched off in config.yaml (channels.${name}.enabled).`,
      });
    },
  );
  route(
    api,
    {
      method: 'delete',
      path: `${PATH}/:provider/runtime-config`,
      tag,
      summary: 'Forget what was entered; config.yaml counts again. For the operator.',
      params: provider,
      answers: { 200: '{success, message}', 403: 'Not the operator.', 404: 'No such channel.' },
    },
    async ({ c, params }) => {
      await mustAdminister(c);
      await channels.forget(known(params.provider));
      return c.json({ success: true, message: 'What was entered here is forgotten.' });
    },
  );
}

function unavailable({ configured, enabled, status }: ProviderView): string | null {
  if (!configured) return 'not_configured';
  if (!enabled) return 'disabled';
  return status.state === 'failing' ? (status.reason ?? 'failing') : null;
}

const connectionView = (one: ChannelConnection) => ({
  id: one.connectionId,
  provider: one.provider,
  status: 'connected',
  external_account_id: one.externalId,
  external_account_name: one.externalName,
  workspace_id: one.workspaceId === '' ? null : one.workspaceId,
  workspace_name: null,
  scopes: [],
  metadata: {},
  created_at: new Date(one.createdAt).toISOString(),
});
