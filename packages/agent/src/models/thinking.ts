import { type ModelEntry, providerSettings } from './entry.ts';

type Settings = Record<string, unknown>;
const isRecord = (value: unknown): value is Settings =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/**
 * The provider settings of an entry with thinking on or off (MOD-2). On: `when_thinking_enabled` and the `thinking` shortcut
 * over the base. Off: `when_thinking_disabled`, else the counterpart of what would turn it on, in the provider's own shape; nothing
 * when nothing would turn it on.
 */
export function thinkingSettings(entry: ModelEntry, thinking: boolean): Settings {
  const base = providerSettings(entry);
  const enable: Settings = {
    ...entry.when_thinking_enabled,
    ...(entry.thinking === undefined ? {} : { thinking: entry.thinking }),
  };
  if (thinking) return merged(base, enable);
  if (entry.when_thinking_disabled !== undefined) return merged(base, entry.when_thinking_disabled);
  return merged(base, counterpart(enable, entry.supports_reasoning_effort === true));
}

function counterpart(enable: Settings, effort: boolean): Settings {
  const body = enable.extra_body;
  if (isRecord(body) && isRecord(body.thinking))
    return { extra_body: { thinking: { type: 'disabled' } }, ...(effort ? { reasoning_effort: 'minimal' } : {}) };
  if (isRecord(body) && isRecord(body.chat_template_kwargs)) {
    const off = Object.keys(body.chat_template_kwargs).filter((key) => key === 'thinking' || key === 'enable_thinking');
    return { extra_body: { chat_template_kwargs: Object.fromEntries(off.map((key) => [key, false])) } };
  }
  return isRecord(enable.thinking) ? { thinking: { type: 'disabled' } } : {};
}

function merged(base: Settings, over: Settings): Settings {
  const result: Settings = { ...base };
  for (const [key, value] of Object.entries(over)) {
    const before = result[key];
    result[key] = isRecord(before) && isRecord(value) ? merged(before, value) : value;
  }
  return result;
}
