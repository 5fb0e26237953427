/** What the server sends, as far as the page reads it. Everything may be missing: it is checked where it is used. */
export interface WireMessage {
  readonly type: string;
  readonly id?: string | null;
  readonly name?: string | null;
  readonly content?: unknown;
  readonly tool_calls?: unknown;
  readonly tool_call_chunks?: unknown;
  readonly invalid_tool_calls?: unknown;
  readonly tool_call_id?: string | null;
  readonly status?: string | null;
  readonly artifact?: unknown;
  readonly additional_kwargs?: unknown;
}

export type Dictionary = Readonly<Record<string, unknown>>;

export function isDictionary(value: unknown): value is Dictionary {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

export function isWireMessage(value: unknown): value is WireMessage {
  return isDictionary(value) && typeof value.type === 'string';
}

export function textOr<Default>(value: unknown, otherwise: Default): string | Default {
  return typeof value === 'string' ? value : otherwise;
}

export function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}
