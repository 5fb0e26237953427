import { isDictionary, listOf, textOr } from '../chat/wire.ts';

export interface Secret {
  readonly name: string;
  readonly optional: boolean;
  /** Whose value counts: the user's own, the operator's for everybody, or none yet. */
  readonly source: 'user' | 'shared' | 'none';
}

/** By name: a new value, or null for one that is to go. '' = nothing was written. */
export type SecretDraft = Readonly<Record<string, string | null>>;

export function readSecrets(value: unknown): readonly Secret[] {
  return listOf(isDictionary(value) ? value.secrets : null)
    .filter(isDictionary)
    .map(
      (secret): Secret => ({
        name: textOr(secret.name, ''),
        optional: secret.optional === true,
        source: secret.source === 'user' || secret.source === 'shared' ? secret.source : 'none',
      }),
    )
    .filter((secret) => secret.name !== '');
}

/** What is sent: an empty field keeps what is stored, which for the server would mean that it goes. */
export function changesOf(draft: SecretDraft): SecretDraft {
  return Object.fromEntries(Object.entries(draft).filter(([, value]) => value !== ''));
}
