export type { OutgoingFile } from './adapter.ts';
export type { ChannelHost, StoredUpload, ThreadAddress } from './host.ts';
export {
  ChannelService,
  type ConnectOffer,
  CREDENTIAL_MASK,
  type CredentialStore,
  type ProviderView,
} from './service.ts';
export {
  type ChannelSettings,
  CREDENTIALS,
  DEFAULT_CHANNEL_SETTINGS,
  isProvider,
  PROVIDERS,
  type Provider,
  type ProviderSettings,
  type SessionLayer,
} from './settings.ts';
