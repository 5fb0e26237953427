import type { Json, Logger } from '@reindeer/protocol';
import { pino } from 'pino';
import { redactSecrets } from './http/redact.ts';

/** Credentials inside texts: bearer tokens, provider keys, `user:password@` in addresses, `#token=`. */
const CREDENTIALS: readonly [RegExp, string][] = [
  [/\b(Bearer|Basic)\s+[A-Za-z0-9._~+/=-]{6,}/gi, '$1 ***'],
  [/\b(sk|pk|rk|ghp|gho|xox[abp])[-_][A-Za-z0-9_-]{8,}/g, '$1-***'],
  [/:\/\/[^\s/:@]+:[^\s/@]+@/g, '://***@'],
  [/([#?&](?:token|api_key|key)=)[^\s&#]+/gi, '$1***'],
];

/** Masks credentials in free text. */
export function maskText(text: string): string {
  let masked = text;
  for (const [pattern, replacement] of CREDENTIALS) masked = masked.replace(pattern, replacement);
  return masked;
}

function mask(value: unknown, depth = 0): unknown {
  if (typeof value === 'string') return maskText(value);
  if (typeof value !== 'object' || value === null || depth > 6) return value;
  if (Array.isArray(value)) return value.map((item) => mask(item, depth + 1));
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, mask(item, depth + 1)]));
}

export interface LogOptions {
  readonly level: 'debug' | 'info' | 'warn' | 'error' | 'silent';
  /** Lines for people instead of JSON. */
  readonly pretty: boolean;
  readonly write: (line: string) => void;
}

const NAMES: Readonly<Record<number, string>> = { 20: 'debug', 30: 'info ', 40: 'warn ', 50: 'error' };

/** `12:00:01 info  Serving  address=http://…` */
function forPeople(json: string): string {
  const { level, time, msg, ...fields } = JSON.parse(json) as { level: number; time: number; msg?: string } & Record<
    string,
    unknown
  >;
  const clock = new Date(time).toTimeString().slice(0, 8);
  const rest = Object.entries(fields).map(([key, value]) => {
    const text = typeof value === 'string' ? value : JSON.stringify(value);
    return text.includes('\n') ? `\n  ${text.replaceAll('\n', '\n  ')}` : `${key}=${text}`;
  });
  return `${clock} ${NAMES[level] ?? level} ${[msg ?? '', ...rest].join('  ')}\n`;
}

/** The process's log. Secrets are masked by the names of fields and by their look in texts. */
export function createLogger(options: LogOptions): Logger & { setLevel(level: LogOptions['level']): void } {
  const log = pino(
    { level: options.level, base: null },
    { write: (line: string) => options.write(options.pretty ? forPeople(line) : line) },
  );
  const at =
    (level: 'debug' | 'info' | 'warn' | 'error') =>
    (message: string, fields?: Readonly<Record<string, unknown>>): void => {
      if (!log.isLevelEnabled(level)) return;
      if (fields === undefined) log[level](maskText(message));
      else log[level](mask(redactSecrets(fields as Json)) as object, maskText(message));
    };
  const setLevel = (level: LogOptions['level']): void => {
    log.level = level;
  };
  return { debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error'), setLevel };
}
