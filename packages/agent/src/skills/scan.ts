/** Runs in the thread for documents: expressions over whole packages take their time. */

export type Severity = 'CRITICAL' | 'HIGH' | 'MEDIUM' | 'LOW';

export interface Finding {
  readonly rule: string;
  readonly severity: Severity;
  readonly file: string;
  /** From 1. */
  readonly line: number;
  readonly message: string;
  /** The line, cut; of a secret nothing is shown. */
  readonly evidence: string;
}

export interface ScannedFile {
  readonly path: string;
  readonly text: string;
}

type Kind = 'shell' | 'python' | 'javascript' | 'markdown' | 'other';

interface Rule {
  readonly id: string;
  readonly severity: Severity;
  readonly message: string;
  readonly pattern: RegExp;
  /** Absent: everywhere. */
  readonly kinds?: readonly Kind[];
  /** Lines that fit this as well are fine. */
  readonly except?: RegExp;
  readonly secret?: true;
}

const MAX_FINDINGS = 200;
const MAX_LINE = 2_000;
const CODE: readonly Kind[] = ['shell', 'python', 'javascript', 'other'];

/** Places where credentials lie. */
const SENSITIVE = String.raw`(?:~|\$HOME|\$\{HOME\}|/root|/home/[\w.-]+)?/?\.(?:ssh/|aws/credentials|netrc|git-credentials|kube/config|docker/config\.json|npmrc|pypirc|gnupg)|/etc/(?:shadow|sudoers)\b|\bid_(?:rsa|ed25519|ecdsa)\b`;
const SENDS = String.raw`\b(?:curl|wget|nc|ncat|netcat|Invoke-WebRequest|requests\.(?:post|put|get)|urllib\.request|httpx\.|aiohttp|fetch\(|axios|http\.request|https\.request|XMLHttpRequest)\b`;

/** Every pattern is linear in the length of a line: no repetition stands in another. */
export const RULES: readonly Rule[] = [
  // Secrets in the package itself.
  {
    id: 'secret-private-key',
    severity: 'CRITICAL',
    message: 'holds a private key',
    pattern: /-----BEGIN (?:RSA |EC |OPENSSH |DSA |PGP )?PRIVATE KEY/,
    secret: true,
  },
  {
    id: 'secret-aws',
    severity: 'CRITICAL',
    message: 'holds an AWS access key',
    pattern: /\b(?:AKIA|ASIA)[0-9A-Z]{16}\b/,
    except: /EXAMPLE/,
    secret: true,
  },
  {
    id: 'secret-github',
    severity: 'CRITICAL',
    message: 'holds a GitHub token',
    pattern: /\b(?:ghp|gho|ghs|ghu)_[A-Za-z0-9]{36}\b|\bgithub_pat_[A-Za-z0-9_]{60,}/,
    secret: true,
  },
  {
    id: 'secret-provider',
    severity: 'CRITICAL',
    message: 'holds an API key of a model provider',
    pattern: /\bsk-(?:ant-|proj-)?[A-Za-z0-9_-]{32,}/,
    except: /x{8,}|your|example/i,
    secret: true,
  },
  {
    id: 'secret-slack',
    severity: 'CRITICAL',
    message: 'holds a Slack token',
    pattern: /\bxox[abpr]-[0-9]{8,}-[A-Za-z0-9-]{10,}/,
    secret: true,
  },
  {
    id: 'secret-google',
    severity: 'HIGH',
    message: 'holds a Google API key',
    pattern: /\bAIza[0-9A-Za-z_-]{35}\b/,
    secret: true,
  },
  // Somebody else gets in.
  {
    id: 'reverse-shell-bash',
    severity: 'CRITICAL',
    message: 'opens a shell to another machine',
    pattern: /\/dev\/(?:tcp|udp)\/[\w.$-]/,
  },
  {
    id: 'reverse-shell-nc',
    severity: 'CRITICAL',
    message: 'opens a shell to another machine',
    pattern: /\b(?:nc|ncat|netcat)\b[^|;&]{0,80}\s-[a-z]*[ec]\s*\S*(?:sh|bash|cmd)\b/i,
  },
  {
    id: 'reverse-shell-python',
    severity: 'CRITICAL',
    message: 'connects a shell to a socket',
    pattern: /os\.dup2\(\s*\w+\.fileno\(\)/,
    kinds: ['python', 'shell', 'other', 'markdown'],
  },
  {
    id: 'reverse-shell-fifo',
    severity: 'CRITICAL',
    message: 'connects a shell to a socket through a pipe',
    pattern: /mkfifo\s[^;]{1,80};[^;]{0,120}\b(?:nc|ncat|telnet)\b/,
  },
  {
    id: 'download-and-run',
    severity: 'CRITICAL',
    message: 'runs what it downloads, unseen',
    pattern: /\b(?:curl|wget)\b[^|\n]{0,300}\|\s*(?:sudo\s+)?(?:ba|z|da|k)?sh\b/,
  },
  {
    id: 'download-and-run-python',
    severity: 'CRITICAL',
    message: 'runs what it downloads, unseen',
    pattern: /\b(?:exec|eval)\s*\(\s*(?:requests\.get|urllib\.request\.urlopen|urlopen)\s*\(/,
    kinds: ['python', 'other'],
  },
  {
    id: 'download-and-run-js',
    severity: 'CRITICAL',
    message: 'runs what it downloads, unseen',
    pattern: /\beval\s*\(\s*await\s+\(?\s*(?:await\s+)?fetch\(/,
    kinds: ['javascript', 'other'],
  },
  {
    id: 'authorized-keys',
    severity: 'CRITICAL',
    message: 'lets others log in',
    pattern: /(?:>>?|tee|write|append|cp|mv)[^\n]{0,120}authorized_keys/i,
  },
  // Data gets out.
  {
    id: 'sends-credentials',
    severity: 'CRITICAL',
    message: 'sends files with credentials away',
    pattern: new RegExp(`(?:${SENSITIVE})[^\\n]{0,300}${SENDS}|${SENDS}[^\\n]{0,300}(?:${SENSITIVE})`),
  },
  {
    id: 'sends-environment',
    severity: 'CRITICAL',
    message: 'sends the environment away',
    pattern:
      /\b(?:env|printenv|export -p|set)\b\s*\|[^\n]{0,160}\b(?:curl|wget|nc|ncat)\b|\b(?:curl|wget)\b[^\n]{0,200}\$\((?:env|printenv)\b/,
  },
  {
    id: 'sends-environment-code',
    severity: 'CRITICAL',
    message: 'sends the environment away',
    pattern:
      /(?:requests|httpx)\.(?:post|put)\([^\n]{0,200}\b(?:dict\(\s*)?os\.environ\b(?!\s*(?:\[|\.get))|(?:fetch|axios\.post)\([^\n]{0,200}process\.env\b(?!\s*[.[])/,
  },
  {
    id: 'reads-credentials',
    severity: 'HIGH',
    message: 'reads files with credentials',
    pattern: new RegExp(SENSITIVE),
    kinds: CODE,
  },
  {
    id: 'metadata-service',
    severity: 'CRITICAL',
    message: 'asks a cloud’s metadata service, which hands out credentials',
    pattern: /169\.254\.169\.254|metadata\.google\.internal|100\.100\.100\.200/,
  },
  {
    id: 'webhook-catcher',
    severity: 'HIGH',
    message: 'talks to a service that collects requests',
    pattern:
      /\b(?:webhook\.site|requestbin|pipedream\.net|burpcollaborator|oast\.(?:fun|pro|live|me)|ngrok\.io|interact\.sh)\b/i,
  },
  {
    id: 'dns-tunnel',
    severity: 'HIGH',
    message: 'puts data into names that it looks up',
    pattern: /\b(?:dig|nslookup|host)\b[^\n]{0,80}\$\(/,
    kinds: ['shell', 'other', 'markdown'],
  },
  // Things get lost.
  {
    id: 'removes-everything',
    severity: 'CRITICAL',
    message: 'removes everything',
    pattern:
      /\brm\s+-[a-zA-Z]*(?:r[a-zA-Z]*f|f[a-zA-Z]*r)[a-zA-Z]*\s+(?:--no-preserve-root\s+)?["']?(?:\/|\/\*|~|~\/|~\/\*|\$HOME|\$\{HOME\}|\/(?:etc|usr|var|home|root|bin|lib|boot))["']?(?:\s|$|;|&|\|)/,
  },
  {
    id: 'removes-everything-python',
    severity: 'CRITICAL',
    message: 'removes everything',
    pattern: /shutil\.rmtree\(\s*(?:["']\/["']|["']~["']|os\.path\.expanduser\(\s*["']~["']\s*\))/,
  },
  {
    id: 'overwrites-disk',
    severity: 'CRITICAL',
    message: 'writes over a disk',
    pattern:
      /\bdd\b[^\n]{0,120}\bof=\/dev\/(?:sd|nvme|vd|hd|mmcblk)|\bmkfs(?:\.\w+)?\s+\/dev\/|>\s*\/dev\/(?:sd|nvme|vd)[a-z0-9]/,
  },
  {
    id: 'fork-bomb',
    severity: 'CRITICAL',
    message: 'starts itself without an end',
    pattern: /:\s*\(\s*\)\s*\{\s*:\s*\|\s*:\s*&\s*\}\s*;\s*:/,
  },
  {
    id: 'opens-everything',
    severity: 'HIGH',
    message: 'opens everything for everybody',
    pattern: /\bchmod\s+(?:-R\s+)?0?777\s+\/(?:\s|$|etc|usr|var|home)/,
  },
  // It stays.
  {
    id: 'cron',
    severity: 'HIGH',
    message: 'starts itself again and again',
    pattern: /\bcrontab\s+(?:-|<)|\/etc\/cron\.(?:d|daily|hourly)\b|\/var\/spool\/cron/,
    kinds: CODE,
  },
  {
    id: 'shell-profile',
    severity: 'HIGH',
    message: 'changes what every shell runs',
    pattern: />>?\s*["']?(?:~|\$HOME)\/\.(?:bashrc|profile|zshrc|bash_profile)/,
  },
  {
    id: 'systemd',
    severity: 'MEDIUM',
    message: 'installs a service',
    pattern: /\bsystemctl\s+(?:enable|daemon-reload)|\/etc\/systemd\/system\//,
    kinds: CODE,
  },
  { id: 'sudo', severity: 'MEDIUM', message: 'wants to be root', pattern: /(?:^|[;&|]\s*)sudo\s/, kinds: ['shell'] },
  // It hides.
  {
    id: 'encoded-and-run',
    severity: 'CRITICAL',
    message: 'runs what it hides in an encoding',
    pattern:
      /\bbase64\s+(?:-d|-D|--decode)[^\n|]{0,80}\|\s*(?:sudo\s+)?(?:ba|z)?sh\b|\b(?:exec|eval)\s*\(\s*(?:base64\.b64decode|codecs\.decode|bytes\.fromhex|zlib\.decompress|marshal\.loads)\s*\(|\beval\s*\(\s*(?:atob|Buffer\.from)\s*\(/,
  },
  {
    id: 'long-encoded-text',
    severity: 'MEDIUM',
    message: 'holds a long encoded text',
    pattern: /["'][A-Za-z0-9+/]{1000,}={0,2}["']/,
    kinds: CODE,
  },
  {
    id: 'invisible-text',
    severity: 'HIGH',
    message: 'holds text that cannot be seen',
    pattern: /[\u{E0000}-\u{E007F}]|[\u202A-\u202E\u2066-\u2069]|[\u200B\u2060\uFEFF]{3,}/u,
  },
  {
    id: 'dynamic-code',
    severity: 'MEDIUM',
    message: 'runs text as code',
    pattern: /\b(?:exec|eval)\s*\(\s*(?!["'`])\w/,
    kinds: ['python', 'javascript'],
    except: /literal_eval|\.eval\(|model\.eval/,
  },
  {
    id: 'python-shell',
    severity: 'MEDIUM',
    message: 'gives text to a shell',
    pattern: /subprocess\.\w+\([^\n]{0,300}shell\s*=\s*True|\bos\.(?:system|popen)\s*\(/,
    kinds: ['python'],
  },
  {
    id: 'node-shell',
    severity: 'MEDIUM',
    message: 'gives text to a shell',
    pattern: /\b(?:execSync|child_process\.exec)\s*\(/,
    kinds: ['javascript'],
  },
  {
    id: 'pickle',
    severity: 'MEDIUM',
    message: 'reads data that can run code',
    pattern: /\b(?:pickle|marshal|dill)\.loads?\(/,
    kinds: ['python'],
  },
  // It talks to the model.
  {
    id: 'instruction-override',
    severity: 'HIGH',
    message: 'tells the model to forget its instructions',
    pattern:
      /\b(?:ignore|disregard|forget)\s+(?:all\s+)?(?:(?:your|the|any)\s+)?(?:previous|prior|above|earlier|system)\s+(?:instructions|prompts?|rules)/i,
  },
  {
    id: 'hides-from-user',
    severity: 'HIGH',
    message: 'tells the model to keep something from the user',
    pattern:
      /\b(?:do not|don't|never)\s+(?:tell|inform|show|mention (?:this|it) to|reveal (?:this|it) to)\s+the user\b/i,
  },
  {
    id: 'forged-block',
    severity: 'HIGH',
    message: 'looks like a block of the harness',
    pattern: /<\/?(?:system|system-reminder|system_reminder|skill_system|memory|slash_skill_activation)>/i,
  },
  {
    id: 'asks-for-keys',
    severity: 'MEDIUM',
    message: 'wants keys put into the conversation',
    pattern: /\b(?:paste|send|enter|type)\s+(?:in\s+)?your\s+(?:api[ -]?key|password|token|secret)/i,
    kinds: ['markdown', 'other'],
  },
];

/**
 * Looks at every line with every rule. One rule says the same of a file once per line. Findings that only warn are bounded for themselves: however
 * many there are, a critical one behind them is found.
 */
export function scanFiles(files: readonly ScannedFile[]): readonly Finding[] {
  const findings: Finding[] = [];
  let warnings = 0;
  for (const file of files) {
    const kind = kindOf(file);
    const rules = RULES.filter((rule) => rule.kinds === undefined || rule.kinds.includes(kind));
    const lines = joined(file.text.split('\n'));
    for (const [text, line] of lines) {
      for (const part of pieces(text))
        for (const rule of rules) {
          if (rule.severity !== 'CRITICAL' && warnings >= MAX_FINDINGS) continue;
          if (!rule.pattern.test(part) || rule.except?.test(part) === true) continue;
          if (findings.some((other) => other.rule === rule.id && other.line === line && other.file === file.path))
            continue;
          findings.push({
            rule: rule.id,
            severity: rule.severity,
            file: file.path,
            line,
            message: rule.message,
            evidence: rule.secret === true ? '[not shown]' : part.trim().slice(0, 160),
          });
          if (rule.severity !== 'CRITICAL') warnings += 1;
          // The package is refused; more of them say nothing new.
          else if (findings.length - warnings >= MAX_FINDINGS) return findings;
        }
    }
  }
  return findings;
}

/** Lines of a shell that go on in the next are one command; the line number is that of its beginning. */
function joined(lines: readonly string[]): [string, number][] {
  const result: [string, number][] = [];
  let open: [string, number] | null = null;
  for (const [index, text] of lines.entries()) {
    const goesOn = text.endsWith('\\');
    const own = goesOn ? text.slice(0, -1) : text;
    if (open !== null && open[0].length < MAX_LINE) open = [`${open[0]} ${own.trimStart()}`, open[1]];
    else {
      if (open !== null) result.push(open);
      open = [own, index + 1];
    }
    if (!goesOn) {
      result.push(open);
      open = null;
    }
  }
  if (open !== null) result.push(open);
  return result;
}

/** Very long lines in parts that overlap, so that nothing hides at the end of one. */
function* pieces(text: string): Generator<string> {
  if (text.length <= MAX_LINE) return yield text;
  for (let start = 0; start < text.length; start += MAX_LINE - 400) yield text.slice(start, start + MAX_LINE);
}

function kindOf({ path, text }: ScannedFile): Kind {
  if (/\.(?:sh|bash|zsh)$/i.test(path)) return 'shell';
  if (/\.pyw?$/i.test(path)) return 'python';
  if (/\.[cm]?[jt]sx?$/i.test(path)) return 'javascript';
  if (/\.(?:md|markdown|txt|rst)$/i.test(path)) return 'markdown';
  const first = /^#!\s*\S*?(?:\/env\s+)?(\w+)[^\n]*/.exec(text)?.[1] ?? '';
  if (/^(?:ba|z|da|k)?sh$/.test(first)) return 'shell';
  if (first.startsWith('python')) return 'python';
  return first === 'node' ? 'javascript' : 'other';
}
