/** Folders that a run's changes do not speak of: version control, environments, caches, and what the framework puts down itself. */
export const EXCLUDED_FOLDERS: readonly string[] = [
  '.git',
  '.hg',
  '.svn',
  '.venv',
  'venv',
  '__pycache__',
  '.mypy_cache',
  '.pytest_cache',
  '.ruff_cache',
  '.cache',
  '.npm',
  '.next',
  '.nuxt',
  '.turbo',
  '.gradle',
  '.tox',
  '.nox',
  'node_modules',
  '.ipynb_checkpoints',
  '.tool-results',
  '.mcp-tmp',
  '.browser-frames',
  '*.part',
  '*.pyc',
];

const SENSITIVE_NAMES = new Set([
  '.netrc',
  '.pgpass',
  '.npmrc',
  '.pypirc',
  '.htpasswd',
  '.git-credentials',
  'authorized_keys',
  'known_hosts',
]);
const SENSITIVE_PARTS = [
  'secret',
  'credential',
  'password',
  'passwd',
  'private_key',
  'privatekey',
  'apikey',
  'api_key',
];
const SENSITIVE_ENDINGS = ['.pem', '.key', '.p12', '.pfx', '.jks', '.keystore', '.kdbx', '.ppk', '.asc', '.gpg'];
const SENSITIVE_FOLDERS = new Set(['.ssh', '.aws', '.gnupg', '.kube', '.docker', '.azure']);

/** Does the name of a file or of a folder above it say that it may hold secrets? Its content is then never read. */
export function isSensitive(path: string): boolean {
  const parts = path.toLowerCase().split('/');
  const name = parts.at(-1) ?? '';
  return (
    name === '.env' ||
    name.startsWith('.env.') ||
    name.endsWith('.env') ||
    SENSITIVE_NAMES.has(name) ||
    /^id_(?:rsa|dsa|ecdsa|ed25519)/.test(name) ||
    SENSITIVE_PARTS.some((part) => name.includes(part)) ||
    SENSITIVE_ENDINGS.some((ending) => name.endsWith(ending)) ||
    parts.slice(0, -1).some((part) => SENSITIVE_FOLDERS.has(part))
  );
}

/** The text of a file: UTF-8, or UTF-16 with its mark; null = it is binary. Line ends and the mark of UTF-8 are left out of comparisons. */
export function textOf(bytes: Uint8Array): string | null {
  const [first, second] = bytes;
  const encoding =
    first === 0xff && second === 0xfe ? 'utf-16le' : first === 0xfe && second === 0xff ? 'utf-16be' : 'utf-8';
  if (encoding === 'utf-8' && bytes.includes(0)) return null;
  try {
    const text = new TextDecoder(encoding, { fatal: true }).decode(bytes);
    return encoding !== 'utf-8' && text.includes('\0') ? null : text;
  } catch {
    return null;
  }
}
