/** What a shell command looks like to somebody who reads the logs (MW-10). */
export interface ShellVerdict {
  readonly verdict: 'block' | 'warn' | 'pass';
  /** Stable name of the rule that decided; null for `pass`. */
  readonly rule: string | null;
  readonly reason: string;
}

const MAX_COMMAND = 10_000;
const PASS: ShellVerdict = { verdict: 'pass', rule: null, reason: '' };

/** One simple command: its words without quotes, and what it is joined to. */
interface Simple {
  readonly words: readonly string[];
  /** The whole text of the pipe that it stands in, one entry per stage. */
  readonly pipe: readonly (readonly string[])[];
}

/**
 * Judges a command. The sandbox is the wall; this is the sign in front of it: it stops what nobody wants to see tried, and marks what a person
 * should know of. Words count where they are commands, not where they are values: `echo "rm -rf /"` passes, `sudo rm -rf /` does not. Quotes,
 * here-documents and arithmetic are respected.
 */
export function auditCommand(command: string): ShellVerdict {
  if (command.trim() === '') return block('empty', 'the command is empty');
  if (command.length > MAX_COMMAND) return block('too_long', `the command has more than ${MAX_COMMAND} characters`);
  if (command.includes('\0')) return block('nul', 'the command contains a NUL character');
  const text = withoutHereDocuments(command);
  const bare = outsideOfQuotes(text);
  if (/:\s*\(\s*\)\s*\{[^}]*:\s*\|\s*:\s*&[^}]*\}/.test(bare))
    return block('fork_bomb', 'it starts itself without end');
  if (/\/dev\/(tcp|udp)\//.test(bare)) return block('dev_tcp', 'it opens a network connection past all tools');
  let worst = PASS;
  for (const simple of simpleCommands(text)) {
    const found = judge(simple);
    if (found.verdict === 'block') return found;
    if (found.verdict === 'warn') worst = found;
  }
  return worst;
}

const block = (rule: string, reason: string): ShellVerdict => ({ verdict: 'block', rule, reason });
const warn = (rule: string, reason: string): ShellVerdict => ({ verdict: 'warn', rule, reason });

/** Words that run the command that follows them. */
const PREFIXES: ReadonlySet<string> = new Set([
  'sudo',
  'su',
  'doas',
  'env',
  'nohup',
  'time',
  'exec',
  'command',
  'nice',
  'xargs',
]);
const SHELLS: ReadonlySet<string> = new Set(['sh', 'bash', 'zsh', 'dash', 'ksh', 'ash']);
const INTERPRETERS: ReadonlySet<string> = new Set([...SHELLS, 'python', 'python3', 'perl', 'ruby', 'node', 'php']);
const DOWNLOADERS: ReadonlySet<string> = new Set(['curl', 'wget', 'fetch', 'aria2c']);
const DECODERS: ReadonlySet<string> = new Set(['base64', 'base32', 'xxd', 'openssl', 'uudecode']);
const SENSITIVE =
  /^(?:\/|\/\*|~|~\/|~\/\*|\$HOME\/?\*?|\$\{HOME\}\/?\*?|\/(?:bin|boot|dev|etc|home|lib|lib64|opt|proc|root|sbin|srv|sys|usr|var)(?:\/\*?)?|\/mnt|\/mnt\/user-data\/?\*?|\.\.\/?\*?)$/;

function judge({ words, pipe }: Simple): ShellVerdict {
  const { name, args, assignments, raised } = unwrapped(words);
  for (const assignment of assignments) {
    if (/^LD_(PRELOAD|LIBRARY_PATH|AUDIT)=/.test(assignment))
      return block('preload', 'it loads foreign code into every program');
  }
  if (name === 'export' || name === 'declare')
    for (const arg of args) {
      if (/^LD_(PRELOAD|LIBRARY_PATH|AUDIT)=/.test(arg))
        return block('preload', 'it loads foreign code into every program');
      if (/^PATH=/.test(arg)) return warn('path_override', 'it changes where programs are found');
    }
  if (name === 'rm') {
    const flags = args.filter((arg) => arg.startsWith('-')).join('');
    const recursive = /^-[^-]*[rR]|--recursive/.test(flags) || /[rR]/.test(flags.replace(/--\w+/g, ''));
    if (recursive && args.some((arg) => SENSITIVE.test(arg)))
      return block('recursive_delete', 'it deletes a whole root folder');
  }
  if (name === 'find' && args.some((arg) => SENSITIVE.test(arg)) && args.includes('-delete'))
    return block('recursive_delete', 'it deletes a whole root folder');
  if (/^mkfs(\..+)?$/.test(name) || ['wipefs', 'fdisk', 'parted'].includes(name))
    return block('disk_format', 'it formats a disk');
  if (name === 'dd' && args.some((arg) => /^of=\/dev\/(?!null|zero|stdout|stderr)/.test(arg)))
    return block('disk_format', 'it writes over a disk');
  if (args.some((arg) => /^(?:[<>]*)\/etc\/(shadow|gshadow|sudoers)(?:-|$|\.d)/.test(arg)))
    return block('shadow_file', 'it touches the password file');
  const substituted = args.some((arg) => /\$\(|`/.test(arg));
  if (name === 'eval' && substituted) return block('eval_substitution', 'it runs whatever another command prints');
  const code = args.indexOf('-c');
  if (INTERPRETERS.has(name) && code >= 0) {
    const inner = args[code + 1] ?? '';
    if (/\$\(\s*(curl|wget)|`\s*(curl|wget)/.test(inner) || (SHELLS.has(name) && /^\s*(\$\(|`)/.test(inner)))
      return block('eval_substitution', 'it runs whatever another command prints');
    if (SHELLS.has(name)) {
      const nested = auditCommand(inner === '' ? 'true' : inner);
      if (nested.verdict !== 'pass') return nested;
    }
  }
  // In a pipe: what comes from the network or out of a decoder is not run.
  if (INTERPRETERS.has(name) && pipe.length > 1) {
    const position = pipe.indexOf(words);
    const before = pipe.slice(0, Math.max(0, position)).map((stage) => unwrapped(stage));
    const runsInput = !args.some((arg) => !arg.startsWith('-')) || args.includes('-s') || args.includes('-');
    if (runsInput && before.some((stage) => DOWNLOADERS.has(stage.name)))
      return block('download_to_shell', 'it runs what it has just downloaded');
    const decodes = (stage: { name: string; args: readonly string[] }): boolean =>
      DECODERS.has(stage.name) && stage.args.some((arg) => /^-{1,2}(d|D|r|decode)/.test(arg));
    if (runsInput && before.some(decodes)) return block('decoded_payload', 'it runs hidden code');
  }
  if (SHELLS.has(name) && args.some((arg) => /^<\(\s*(curl|wget)\b/.test(arg)))
    return block('download_to_shell', 'it runs what it has just downloaded');
  if (raised) return warn('privileges', 'it asks for the rights of another user');
  if (assignments.some((assignment) => /^PATH=/.test(assignment)))
    return warn('path_override', 'it changes where programs are found');
  if (name === 'chmod' && args.some((arg) => /^(0?777|a\+rwx|ugo\+rwx)$/.test(arg)))
    return warn('world_writable', 'it lets everybody write');
  if (isInstall(name, args)) return warn('package_install', 'it installs packages');
  return PASS;
}

function isInstall(name: string, args: readonly string[]): boolean {
  const [first = ''] = args.filter((arg) => !arg.startsWith('-'));
  if (/^(pip3?|npm|pnpm|yarn|gem|cargo|brew|uv)$/.test(name)) return /^(install|i|add|pip)$/.test(first);
  return (
    /^(apt|apt-get|dnf|yum|apk|zypper|pacman)$/.test(name) && (/^(install|add)$/.test(first) || args.includes('-S'))
  );
}

/** The command behind assignments and words such as `sudo` and `env`. */
function unwrapped(words: readonly string[]): {
  readonly name: string;
  readonly args: readonly string[];
  readonly assignments: readonly string[];
  readonly raised: boolean;
} {
  const assignments: string[] = [];
  let raised = false;
  let at = 0;
  for (; at < words.length; at++) {
    const word = words[at] as string;
    if (/^[A-Za-z_]\w*=/.test(word)) assignments.push(word);
    else if (PREFIXES.has(baseName(word))) raised ||= ['sudo', 'su', 'doas'].includes(baseName(word));
    // Options of `sudo -u user` and the like.
    else if (at > 0 && word.startsWith('-') && PREFIXES.has(baseName(words[at - 1] ?? ''))) continue;
    else break;
  }
  return { name: baseName(words[at] ?? ''), args: words.slice(at + 1), assignments, raised };
}

const baseName = (word: string): string => word.split('/').at(-1) ?? word;

/** Here-documents are input, not commands. */
function withoutHereDocuments(command: string): string {
  const lines = command.split('\n');
  const kept: string[] = [];
  for (let index = 0; index < lines.length; index++) {
    const line = lines[index] as string;
    kept.push(line);
    const word = /<<-?\s*(['"]?)([A-Za-z_]\w*)\1/.exec(line)?.[2];
    if (word === undefined || /<<</.test(line)) continue;
    const end = lines.findIndex((other, position) => position > index && other.trim() === word);
    // One that never ends swallows the rest in bash too.
    index = end < 0 ? lines.length : end;
  }
  return kept.join('\n');
}

function outsideOfQuotes(text: string): string {
  return text.replace(/'[^']*'/g, "''").replace(/"(?:[^"\\]|\\.)*"/g, '""');
}

/** Splits at `;`, `&`, `|`, and line ends outside of quotes and substitutions; words lose their quotes. */
function simpleCommands(text: string): Simple[] {
  const pipes: string[][][] = [[[]]];
  let word = '';
  let open = false;
  let quote: '"' | "'" | null = null;
  let depth = 0;
  const stage = (): string[] => pipes.at(-1)?.at(-1) ?? [];
  const endWord = (): void => {
    if (open) stage().push(word);
    word = '';
    open = false;
  };
  for (let index = 0; index < text.length; index++) {
    const character = text[index] as string;
    const next = text[index + 1];
    if (quote !== null) {
      if (character === '\\' && quote === '"' && next !== undefined) {
        word += next;
        index++;
      } else if (character === quote) quote = null;
      else word += character;
      continue;
    }
    if (character === '\\' && next !== undefined) {
      if (next !== '\n') word += next;
      open = true;
      index++;
    } else if ((character === "'" || character === '"') && depth === 0) {
      quote = character;
      open = true;
    } else if (character === '(' || character === ')') {
      // Substitutions and arithmetic are part of a word; a subshell begins a command.
      if (character === '(' && (open || depth > 0)) depth++;
      else if (character === ')' && depth > 0) depth--;
      else {
        endWord();
        pipes.push([[]]);
        continue;
      }
      word += character;
    } else if (
      depth === 0 &&
      (character === ';' || character === '\n' || (character === '&' && text[index - 1] !== '>'))
    ) {
      endWord();
      pipes.push([[]]);
    } else if (depth === 0 && character === '|') {
      endWord();
      if (next === '|') {
        pipes.push([[]]);
        index++;
      } else pipes.at(-1)?.push([]);
    } else if (depth === 0 && /[ \t]/.test(character)) endWord();
    else if (depth === 0 && character === '#' && !open) {
      while (index + 1 < text.length && text[index + 1] !== '\n') index++;
    } else {
      word += character;
      open = true;
    }
  }
  endWord();
  return pipes.flatMap((pipe) => {
    const stages = pipe.map(withoutKeywords);
    return stages.filter((words) => words.length > 0).map((words) => ({ words, pipe: stages }));
  });
}

const KEYWORDS: ReadonlySet<string> = new Set([
  'if',
  'then',
  'else',
  'elif',
  'do',
  'while',
  'until',
  '!',
  '{',
  '}',
  'fi',
  'done',
]);

function withoutKeywords(words: readonly string[]): readonly string[] {
  let at = 0;
  while (at < words.length && KEYWORDS.has(words[at] as string)) at++;
  return words.slice(at);
}
