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
      /no effect here.*channels/,
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
