import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { convertConfig } from './convert.ts';
import { loadConfig } from './load.ts';
import { resolveSettings } from './settings.ts';

const CARRIED = `# My configuration
config_version: 34
log_level: info
models:
  - name: gpt
    use: langchain_openai:ChatOpenAI
    model: gpt-5
    openai_api_key: $KEY  # from the vault
    supports_thinking: true
  - name: claude
    use: langchain_anthropic:ChatAnthropic
    model: claude-sonnet
    api_key: $KEY
  - name: deep
    use: deerflow.models.patched_deepseek:ChatDeepSeek
    model: deepseek-chat
    api_key: $KEY
  - name: gem
    use: langchain_google_genai:ChatGoogleGenerativeAI
    model: gemini-3
    google_api_key: $KEY
  - name: own
    use: langchain_ollama:ChatOllama
    model: qwen
    base_url: http://gpu:11434
  - name: other
    use: somewhere.models:ChatOther
    model: x
tool_groups:
  - name: web
tools:
  - name: web_search
    group: web
    use: deerflow.community.tavily.tools:web_search_tool
    max_results: 5
  - name: web_fetch
    group: web
    use: deerflow.community.crawl4ai.tools:web_fetch_tool
  - name: ls
    group: file:read
    use: deerflow.sandbox.tools:ls_tool
  - name: web_capture
    use: deerflow.community.browserless.tools:web_capture_tool
sandbox:
  use: deerflow.sandbox.local:LocalSandboxProvider
checkpointer:
  type: postgres
  connection_string: $DATABASE_URL
channels:
  slack: {enabled: false}
title:
  enabled: true
`;

test(
  'a file of the reference becomes ours: names short, comments and placeholders kept, what differs told',
  verifies('CFG-1'),
  () => {
    const { text, notes } = convertConfig(CARRIED);
    expect(text).toMatch(/^# My configuration/);
    expect(text).toMatch(/use: openai\n {4}model: gpt-5/);
    expect(text).toMatch(/api_key: \$KEY.*# from the vault/);
    expect(text).toMatch(/use: anthropic/);
    expect(text).toMatch(/use: deepseek\n {4}model: deepseek-chat/);
    expect(text).toMatch(/use: gemini\n {4}model: gemini-3\n {4}api_key: \$KEY/);
    expect(text).toMatch(/use: ollama\n {4}model: qwen\n {4}base_url: http:\/\/gpu:11434\n/);
    expect(text).toMatch(/use: tavily\n/);
    expect(text).toMatch(/use: reader\n/);
    expect(text).toMatch(/use: bubblewrap/);
    expect(text).toMatch(/backend: postgres\n {2}postgres_url: \$DATABASE_URL/);
    expect(text).not.toMatch(/checkpointer|deerflow\.sandbox/);
    const told = notes.join('\n');
    for (const part of [
      /other uses somewhere.models:ChatOther/,
      /web_fetch used crawl4ai/,
      /web_capture is not here/,
      /isolated by bubblewrap/,
      /its Postgres is used for everything/,
      /127.0.0.1:2026/,
      /crash_policy/,
    ])
      expect(told).toMatch(part);
  },
);

test('what comes out is read without a fault, once the unknown model is gone', verifies('CFG-1'), async () => {
  const folder = await mkdtemp(join(tmpdir(), 'reindeer-convert-'));
  try {
    const { text } = convertConfig(CARRIED.replace(/ {2}- name: other\n.*\n.*\n/, ''));
    await writeFile(join(folder, 'config.yaml'), text);
    const loaded = await loadConfig({ cwd: folder, environment: { KEY: 'a-key', DATABASE_URL: 'postgres://u@h/d' } });
    const settings = resolveSettings(loaded, {});
    expect(settings.models.map((model) => [model.name, model.use, model.api_key])).toEqual([
      ['gpt', 'openai', 'a-key'],
      ['claude', 'anthropic', 'a-key'],
      ['deep', 'deepseek', 'a-key'],
      ['gem', 'gemini', 'a-key'],
      ['own', 'ollama', undefined],
    ]);
    expect(settings.tools.sandbox).toEqual(['ls']);
    expect(settings.postgres?.url).toBe('postgres://u@h/d');
    // An old or new version of the file is no reason not to start.
    expect(loaded.warnings.join('\n')).not.toMatch(/config_version/);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});

test('our own file comes through as it is; no YAML is named', () => {
  const own = 'models:\n  - name: a\n    use: openai\nsandbox:\n  use: container\n';
  expect(convertConfig(own).text).toBe(own);
  expect(() => convertConfig('a: [')).toThrow(/not valid YAML/);
  expect(() => convertConfig('- a')).toThrow(/keys and values/);
});

/** Every section that the reference's example has, with most of their keys. */
const WHOLE = `config_version: 34
log_level: info
logging: {enhance: {enabled: false, format: text}}
token_usage: {enabled: true}
token_budget: {enabled: true, max_tokens: 200000, warn_threshold: 0.8, hard_stop_threshold: 1.0}
max_recursion_limit: 1000
models:
  - name: claude
    display_name: Claude
    use: deerflow.models.claude_provider:ClaudeChatModel
    model: claude-sonnet-4-5
    api_key: $ANTHROPIC_API_KEY
    max_tokens: 16384
    supports_thinking: true
    supports_vision: true
    when_thinking_enabled: {thinking: {type: enabled, budget_tokens: 8000}}
    pricing: {currency: USD, input_per_million: 3, output_per_million: 15}
  - name: vllm
    use: deerflow.models.vllm_provider:VllmChatModel
    model: qwen
    base_url: http://gpu:8000/v1
    when_thinking_disabled: {extra_body: {chat_template_kwargs: {enable_thinking: false}}}
tool_groups: [{name: web}, {name: 'file:read'}, {name: 'file:write'}, {name: bash}]
tools:
  - {name: web_search, group: web, use: 'deerflow.community.ddg_search.tools:web_search_tool', max_results: 5}
  - {name: web_fetch, group: web, use: 'deerflow.community.jina_ai.tools:web_fetch_tool', timeout: 10}
  - {name: image_search, group: web, use: 'deerflow.community.image_search.tools:image_search_tool'}
  - {name: ls, group: 'file:read', use: 'deerflow.sandbox.tools:ls_tool'}
  - {name: read_file, group: 'file:read', use: 'deerflow.sandbox.tools:read_file_tool'}
  - {name: write_file, group: 'file:write', use: 'deerflow.sandbox.tools:write_file_tool'}
  - {name: bash, group: bash, use: 'deerflow.sandbox.tools:bash_tool'}
tool_search: {enabled: true, auto_promote_top_k: 3}
tool_output: {enabled: true, externalize_min_chars: 12000, preview_head_chars: 2000, exempt_tools: [read_file], tool_overrides: {bash: 8000}}
suggestions: {enabled: true, max_suggestions: 3}
input_polish: {enabled: false, max_chars: 4000}
loop_detection: {enabled: true, warn_threshold: 3, hard_limit: 5, tool_freq_overrides: {bash: {warn: 50, hard_limit: 80}}}
tool_progress: {enabled: false}
read_before_write: {enabled: true}
safety_finish_reason:
  enabled: true
  detectors:
    - {use: 'deerflow.agents.safety:OpenAICompatibleContentFilterDetector'}
    - {use: 'deerflow.agents.safety:GeminiSafetyDetector'}
    - {use: 'mine.safety:Detector'}
uploads: {max_files: 10, max_file_size: 52428800, max_total_size: 104857600, auto_convert_documents: true, pdf_converter: auto}
sandbox:
  use: deerflow.community.aio_sandbox:AioSandboxProvider
  image: example/sandbox:latest
  replicas: 3
  idle_timeout: 600
  mounts: [{host_path: /srv/data, container_path: /mnt/data, read_only: true}]
  environment: {TOKEN: $SANDBOX_TOKEN}
subagents:
  timeout_seconds: 900
  max_total_per_run: 6
  agents: {general-purpose: {max_turns: 50, model: inherit}}
  custom_agents: {writer: {description: Writes., system_prompt: You write., tools: [read_file], max_turns: 20}}
acp_agents: {}
skills: {path: ../skills, container_path: /mnt/skills}
skill_scan: {enabled: true}
skill_evolution: {enabled: false, moderation_model_name: null}
title: {enabled: true, max_words: 6, max_chars: 60, model_name: null}
summarization: {enabled: true, trigger: [{type: tokens, value: 100000}], keep: {type: messages, value: 20}}
memory: {enabled: true, storage_path: memory.json, debounce_seconds: 30, max_facts: 100, injection_enabled: true, max_injection_tokens: 2000}
agents_api: {enabled: true}
agent_storage: {type: file}
checkpointer: {type: sqlite, connection_string: checkpoints.db}
database:
run_events: {backend: memory}
scheduler: {enabled: false}
mcp_tasks: {enabled: false}
run_ownership: {lease_seconds: 30, grace_seconds: 10, heartbeat_enabled: true}
stream_bridge: {type: memory}
dedupe_storage: {type: memory}
channel_connections: {enabled: false}
channels: {slack: {enabled: false}}
guardrails: {enabled: true, fail_closed: true, provider: {use: 'deerflow.guardrails.builtin:AllowlistProvider', config: {denied_tools: [bash]}}}
authorization: {enabled: false}
circuit_breaker: {failure_threshold: 5, recovery_timeout_sec: 60}
llm_call: {retry_max_attempts: 3, max_concurrent_calls: 8}
auth: {}
extensions: {mcp_servers: {}}
plugins: []
`;

test(
  'a file with every section starts; each difference is told, and wrong values with their line',
  verifies('CFG-1'),
  async () => {
    const folder = await mkdtemp(join(tmpdir(), 'reindeer-convert-'));
    try {
      const { text, notes } = convertConfig(WHOLE);
      await writeFile(join(folder, 'config.yaml'), text);
      const environment = { ANTHROPIC_API_KEY: 'a-key', SANDBOX_TOKEN: 'a-token' };
      const loaded = await loadConfig({ cwd: folder, environment });
      const settings = resolveSettings(loaded, {});
      expect(settings.models.map(({ name, use }) => [name, use])).toEqual([
        ['claude', 'anthropic'],
        ['vllm', 'vllm'],
      ]);
      expect(settings.tools).toMatchObject({ sandbox: ['ls', 'read_file', 'write_file', 'bash'] });
      expect(settings.warnings).toEqual([]);
      expect(settings.tools.web.map(({ tool, provider }) => [tool, provider])).toEqual([
        ['web_search', 'duckduckgo'],
        ['web_fetch', 'jina'],
        ['image_search', 'duckduckgo'],
      ]);
      expect(settings).toMatchObject({
        sandbox: { provider: 'container', environment: { TOKEN: 'a-token' } },
        agentsApi: true,
        uploads: { convert: true },
        subagents: { custom: { writer: { maxTurns: 20 } } },
        agent: { safeguards: { safetyFinish: { detectors: ['openai', 'gemini'] }, guardrails: { failClosed: true } } },
        memory: { settings: { maxFacts: 100 } },
      });
      const told = notes.join('\n');
      expect(told).toMatch(/the detector mine\.safety:Detector is not here/);
      expect(told).toMatch(/no effect here.*logging.*channel_connections/);
      expect(told).not.toMatch(/unknown key/);
      // No warning of the start but what the notes said too.
      expect(loaded.warnings.filter((warning) => !warning.includes('no effect'))).toEqual([]);

      const wrong = convertConfig(
        WHOLE.replace('max_words: 6', 'max_words: many').replace('fail_closed', 'fail_closd'),
      );
      expect(wrong.notes.join('\n')).toMatch(/line \d+: title\.max_words must be a number.*does not start with it/);
      expect(wrong.notes.join('\n')).toMatch(
        /unknown key "guardrails\.fail_closd" is ignored\. Did you mean "fail_closed"/,
      );
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  },
);
