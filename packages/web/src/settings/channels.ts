import { isDictionary, listOf, textOr } from '../chat/wire.ts';

/** What a secret is shown as; written back it keeps what is stored. */
export const STORED = '********';

export interface CredentialField {
  readonly name: string;
  readonly label: string;
  readonly secret: boolean;
  readonly required: boolean;
}

export interface Messenger {
  readonly provider: string;
  readonly title: string;
  readonly connectable: boolean;
  /** `not_configured`, `disabled`, or in words why it does not work; null = it does. */
  readonly trouble: string | null;
  readonly fields: readonly CredentialField[];
  readonly values: Readonly<Record<string, string>>;
}

export interface Account {
  readonly id: string;
  readonly provider: string;
  readonly name: string;
}

export interface Messengers {
  /** May credentials be entered? */
  readonly admin: boolean;
  readonly list: readonly Messenger[];
}

export interface Offer {
  /** Opens the chat with the bot; null = the code has to be sent by hand. */
  readonly url: string | null;
  readonly code: string;
  readonly minutes: number;
}

export function readMessengers(value: unknown): Messengers {
  const answer = isDictionary(value) ? value : {};
  return {
    admin: answer.admin === true,
    list: listOf(answer.providers)
      .filter(isDictionary)
      .map((entry) => ({
        provider: textOr(entry.provider, ''),
        title: textOr(entry.display_name, ''),
        connectable: entry.connectable === true,
        trouble: textOr(entry.unavailable_reason, null),
        fields: listOf(entry.credential_fields)
          .filter(isDictionary)
          .map((field) => ({
            name: textOr(field.name, ''),
            label: textOr(field.label, ''),
            secret: field.type === 'password',
            required: field.required === true,
          })),
        values: Object.fromEntries(
          Object.entries(isDictionary(entry.credential_values) ? entry.credential_values : {}).filter(
            (pair): pair is [string, string] => typeof pair[1] === 'string',
          ),
        ),
      })),
  };
}

export function readAccounts(value: unknown): readonly Account[] {
  return listOf(isDictionary(value) ? value.connections : null)
    .filter(isDictionary)
    .map((entry) => ({
      id: textOr(entry.id, ''),
      provider: textOr(entry.provider, ''),
      name: textOr(entry.external_account_name, null) ?? textOr(entry.external_account_id, ''),
    }));
}

/** A link is shown only where it leads to the web: what is clicked is never anything else. */
export function readOffer(value: unknown): Offer {
  const answer = isDictionary(value) ? value : {};
  const url = textOr(answer.url, null);
  return {
    url: url?.startsWith('https://') === true ? url : null,
    code: textOr(answer.code, ''),
    minutes: typeof answer.expires_in === 'number' ? Math.round(answer.expires_in / 60) : 0,
  };
}

/** The messenger that a chat came from, by its metadata; null = it was begun here. */
export function messengerOf(metadata: unknown): string | null {
  const source = isDictionary(metadata) ? metadata.channel_source : null;
  if (!isDictionary(source) || source.type !== 'im_channel') return null;
  const provider = textOr(source.provider, '').slice(0, 20);
  return provider === '' ? null : provider.charAt(0).toUpperCase() + provider.slice(1);
}
