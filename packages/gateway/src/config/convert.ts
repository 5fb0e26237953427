import { WEB_PROVIDERS, WEB_TOOLS, type WebToolName } from '@reindeer/agent';
import { entryOf, ReindeerError } from '@reindeer/protocol';
import { type Document, isMap, isScalar, isSeq, parseDocument, type YAMLMap } from 'yaml';
import { examineConfig } from './load.ts';
import { DETECTORS, SECTIONS_WITHOUT_EFFECT } from './schema.ts';
import { CARRIED_OVER, SANDBOX_TOOLS } from './tools.ts';

export interface ConvertedConfig {
  readonly text: string;
  /** What was changed, what is left out, and what works differently here; in the order of the file. */
  readonly notes: readonly string[];
}

/** Providers with an interface of OpenAI's: the class that the reference uses → where they are. */
const COMPATIBLE: Readonly<Record<string, string>> = {
  ChatGroq: 'https://api.groq.com/openai/v1',
  ChatXAI: 'https://api.x.ai/v1',
  ChatOpenRouter: 'https://openrouter.ai/api/v1',
};

/** Classes for which there is a provider of its own here; addresses stay as they are. */
const PROVIDERS: Readonly<Record<string, string>> = {
  ChatDeepSeek: 'deepseek',
  PatchedChatDeepSeek: 'deepseek',
  ChatOllama: 'ollama',
  VllmChatModel: 'vllm',
  ChatGoogleGenerativeAI: 'gemini',
  ChatMistralAI: 'mistral',
};

/**
 * Brings a `config.yaml` of the reference into our shape. Keys are the same, so most of it stays word by word, comments included; class paths become
 * short names, and what has no counterpart is said. Nothing is read from the environment: placeholders stay placeholders.
 *
 * @throws ReindeerError `configuration` when the file is no YAML
 */
export function convertConfig(text: string): ConvertedConfig {
  const document = parseDocument(text, { prettyErrors: true });
  const [error] = document.errors;
  if (error !== undefined)
    throw new ReindeerError('configuration', `This is not valid YAML: ${error.message.split('\n')[0]}`);
  if (document.contents !== null && !isMap(document.contents))
    throw new ReindeerError('configuration', 'The file must consist of keys and values, such as "log_level: info".');
  const notes: string[] = [];
  models(document, notes);
  tools(document, notes);
  sandbox(document, notes);
  database(document, notes);
  detectors(document, notes);
  const present = isMap(document.contents)
    ? document.contents.items.map((pair) => String(isScalar(pair.key) ? pair.key.value : pair.key))
    : [];
  const idle = present.filter((key) => SECTIONS_WITHOUT_EFFECT.includes(key));
  if (idle.length > 0) notes.push(`These sections have no effect here and may stay: ${idle.join(', ')}.`);
  notes.push(
    'The server listens on 127.0.0.1:2026 only, page and API on one port, without a proxy. For other machines set server.host and server.token.',
    'A run that a crash cut off goes on after the restart. To have it end as an error, as there, set runs.crash_policy: error.',
  );
  const converted = document.toString({ lineWidth: 0 });
  const { warnings, faults } = examineConfig(converted, 'The new file');
  notes.push(
    ...warnings.filter((warning) => !warning.includes('these sections have no effect')),
    ...faults.map((fault) => `${fault} Reindeer does not start with it: correct it, or take the key out.`),
  );
  return { text: converted, notes };
}

/** Classes of the detectors that are built in; each has the name of its provider in it. */
function detectors(document: Document, notes: string[]): void {
  const list = document.getIn(['safety_finish_reason', 'detectors']);
  if (!isSeq(list)) return;
  const names: string[] = [];
  for (const item of list.items) {
    const use = isMap(item) ? item.get('use') : isScalar(item) ? item.value : null;
    const name = DETECTORS.find((known) => String(use).toLowerCase().includes(known));
    if (name === undefined)
      notes.push(`safety_finish_reason: the detector ${String(use)} is not here and was taken out.`);
    else if (!names.includes(name)) names.push(name);
  }
  if (names.length === 0) document.deleteIn(['safety_finish_reason', 'detectors']);
  else document.setIn(['safety_finish_reason', 'detectors'], document.createNode(names));
}

const entries = (document: Document, key: string): YAMLMap[] => {
  const list = document.get(key);
  return isSeq(list) ? list.items.filter((item): item is YAMLMap => isMap(item)) : [];
};

function models(document: Document, notes: string[]): void {
  for (const model of entries(document, 'models')) {
    const name = String(model.get('name') ?? '?');
    const use = model.get('use');
    if (typeof use !== 'string') continue;
    const kind = use.split(/[:.]/).at(-1) ?? '';
    const base = entryOf(COMPATIBLE, kind);
    if (/^(?:Patched)?ChatAnthropic$|^Claude/.test(kind)) model.set('use', 'anthropic');
    else if (/ChatOpenAI$/.test(kind)) model.set('use', 'openai');
    else if (Object.hasOwn(PROVIDERS, kind)) {
      model.set('use', PROVIDERS[kind]);
      if (kind === 'ChatGoogleGenerativeAI')
        notes.push(`models: ${name} is asked through Gemini's OpenAI-compatible interface.`);
    } else if (base !== undefined) {
      model.set('use', 'openai');
      if (!model.has('base_url')) model.set('base_url', base);
      notes.push(`models: ${name} is asked through the interface of OpenAI's at ${String(model.get('base_url'))}.`);
    } else if (use.includes(':'))
      notes.push(
        `models: ${name} uses ${use}, which there is not here. Use openai (any compatible server, with base_url), anthropic, gemini, deepseek, mistral, ollama or vllm.`,
      );
    for (const [old, own] of [
      ['openai_api_base', 'base_url'],
      ['api_base', 'base_url'],
      ['openai_api_key', 'api_key'],
      ['anthropic_api_key', 'api_key'],
      ['google_api_key', 'api_key'],
      ['gemini_api_key', 'api_key'],
      ['mistral_api_key', 'api_key'],
    ] as const)
      if (model.has(old)) {
        if (!model.has(own)) model.set(own, model.get(old, true));
        model.delete(old);
      }
  }
}

function tools(document: Document, notes: string[]): void {
  for (const tool of entries(document, 'tools')) {
    const name = String(tool.get('name') ?? '?');
    if (SANDBOX_TOOLS.includes(name)) {
      tool.delete('use');
      continue;
    }
    if (!WEB_TOOLS.includes(name as WebToolName)) {
      notes.push(`tools: ${name} is not here; the entry is left out at the start.`);
      continue;
    }
    const use = tool.get('use');
    if (typeof use !== 'string') continue;
    const folder = /\.community\.(\w+)/.exec(use)?.[1] ?? use;
    const provider = entryOf(CARRIED_OVER, folder) ?? folder;
    const possible = WEB_PROVIDERS[name as WebToolName];
    if (possible.includes(provider)) tool.set('use', provider);
    else {
      notes.push(
        `tools: ${name} used ${folder}, which is not here; it uses ${possible[0]} now. Others: ${possible.slice(1).join(', ')}.`,
      );
      tool.set('use', possible[0]);
    }
  }
}

function sandbox(document: Document, notes: string[]): void {
  const section = document.get('sandbox');
  if (!isMap(section)) return;
  const use = section.get('use');
  if (typeof use !== 'string') return;
  if (use.endsWith('LocalSandboxProvider')) {
    section.set('use', section.get('allow_host_bash') === true ? 'local' : 'bubblewrap');
    notes.push(
      section.get('allow_host_bash') === true
        ? 'sandbox: commands run on the host itself, as allow_host_bash says. bubblewrap isolates them at the same speed.'
        : 'sandbox: commands run isolated by bubblewrap; there they could not run at all.',
    );
  } else if (/(?:Aio|Docker|Remote\w*)SandboxProvider$/.test(use)) {
    section.set('use', 'container');
    if (section.has('provisioner_url'))
      notes.push(
        'sandbox: the provisioner must be ours (reindeer provisioner, see docs/provisioner.md); another one cannot be used.',
      );
  } else if (use.includes(':')) notes.push(`sandbox: ${use} is not here. Use bubblewrap, container or local.`);
}

function database(document: Document, notes: string[]): void {
  const checkpointer = document.get('checkpointer');
  if (isMap(checkpointer)) {
    const url = checkpointer.get('connection_string');
    if (checkpointer.get('type') === 'postgres' && typeof url === 'string' && !document.has('database')) {
      document.set('database', document.createNode({ backend: 'postgres', postgres_url: url }));
      notes.push('checkpointer: its Postgres is used for everything, as database.backend and database.postgres_url.');
    } else notes.push('checkpointer: checkpoints are in the one database; the section is left out.');
    document.delete('checkpointer');
  }
  notes.push('Conversations of the other system are not carried over: the databases differ.');
}
