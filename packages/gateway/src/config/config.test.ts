import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { verifies } from '@reindeer/testkit';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { outputLimits, sandboxLifecycleSettings } from '../sandbox-settings.ts';
import { loadConfig } from './load.ts';
import { modelsOf } from './models.ts';
import { resolveSettings } from './settings.ts';

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'reindeer-config-'));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

const write = (text: string, name = 'config.yaml') => writeFile(join(folder, name), text);
const load = (environment: Record<string, string> = {}, path?: string) =>
  loadConfig({ cwd: folder, environment, path });
const settings = async (environment: Record<string, string> = {}, line = {}) =>
  resolveSettings(await load(environment), line);

describe('finding the file', () => {
  test('no file means defaults; a demanded file must exist', verifies('CFG-1'), async () => {
    const loaded = await load();
    expect([loaded.file, loaded.config, loaded.warnings]).toEqual([null, {}, []]);
    await expect(load({}, 'other.yaml')).rejects.toMatchObject({
      code: 'configuration',
      message: expect.stringContaining('other.yaml does not exist'),
    });
    await expect(load({ REINDEER_CONFIG_PATH: 'gone.yaml' })).rejects.toMatchObject({ code: 'configuration' });
  });

  test('argument before variable before project folder', verifies('CFG-1'), async () => {
    await write('log_level: debug');
    await write('log_level: error', 'two.yaml');
    await write('log_level: warning', 'three.yaml');
    expect((await load()).config.log_level).toBe('debug');
    expect((await load({ REINDEER_CONFIG_PATH: 'two.yaml' })).config.log_level).toBe('error');
    expect((await load({ DEER_FLOW_CONFIG_PATH: 'two.yaml' })).config.log_level).toBe('error');
    expect((await load({ REINDEER_CONFIG_PATH: 'two.yaml' }, 'three.yaml')).config.log_level).toBe('warning');
    const elsewhere = await loadConfig({ cwd: tmpdir(), environment: { REINDEER_PROJECT_ROOT: folder } });
    expect(elsewhere.config.log_level).toBe('debug');
    await write('');
    expect((await load()).config).toEqual({});
  });

  test('commented-out sections mean their defaults', verifies('CFG-1'), async () => {
    await write('models:\n# - name: x\nsandbox:\nuploads:\n#  max_files: 3\nlog_level: info\n');
    const { config, warnings } = await load();
    expect(config).toEqual({ log_level: 'info' });
    expect(warnings).toEqual([]);
    expect((await settings()).uploads.maxFiles).toBe(10);
  });
});

describe('safe-guards of the agent', () => {
  test('keys of the reference reach the agent; what is left out has its default', async () => {
    await write(
      [
        'tool_output: {externalize_min_chars: 500, exempt_tools: [look], tool_overrides: {bash: 0}}',
        'summarization: {trigger: {type: messages, value: 40}, keep: {type: tokens, value: 900}, model_name: small}',
        'loop_detection: {hard_limit: 9, tool_freq_overrides: {bash: {warn: 5, hard_limit: 6}}, max_tracked_threads: 10}',
        'token_budget: {enabled: true, max_tokens: 5000}',
        'circuit_breaker: {failure_threshold: 2, recovery_timeout_sec: 5}',
        'llm_call: {retry_max_attempts: 1, max_concurrent_calls: 4}',
        'safety_finish_reason: {detectors: [gemini]}',
        'read_before_write: {enabled: false}',
        'guardrails: {enabled: true, fail_closed: false, provider: {use: "deerflow.guardrails:AllowlistProvider", config: {denied_tools: [bash]}}}',
        'authorization: {enabled: true, default_role: reader, users: {"Ann@x.org": admin}, provider: {use: "deerflow.authz:RBACProvider", config: {roles: {admin: {}, reader: {tools: {deny: [bash]}}}}}}',
        'suggestions: {max_suggestions: 5}',
        'approvals: {tools: [bash], expire_after_seconds: 60}',
      ].join('\n'),
    );
    const { agent } = await settings();
    const { safeguards } = agent;
    expect(safeguards.toolOutput).toMatchObject({
      externalizeMinCharacters: 500,
      exemptTools: ['look'],
      previewHeadCharacters: 2_000,
    });
    expect(safeguards.summarization).toMatchObject({
      triggers: [{ type: 'messages', value: 40 }],
      keep: { type: 'tokens', value: 900 },
    });
    expect(agent.summaryModel).toBe('small');
    expect(safeguards.loopDetection).toMatchObject({
      warnThreshold: 3,
      hardLimit: 9,
      toolFreqOverrides: { bash: { warn: 5, hardLimit: 6 } },
    });
    expect(safeguards.tokenBudget).toMatchObject({ enabled: true, maxTokens: 5_000, warnThreshold: 0.8 });
    expect(agent.llmCall).toMatchObject({
      retryMaxAttempts: 1,
      circuitBreaker: { failureThreshold: 2, recoveryTimeoutMs: 5_000 },
    });
    expect(safeguards.safetyFinish.detectors).toEqual(['gemini']);
    expect(safeguards.readBeforeWrite).toBe(false);
    expect(safeguards.guardrails).toMatchObject({ failClosed: false, provider: { name: 'allowlist' } });
    const { provider, users, defaultRole } = safeguards.authorization;
    // By the id that the server uses, whatever way the operator knows the person.
    expect([Object.values(users), defaultRole]).toEqual([['admin'], 'reader']);
    expect(Object.keys(users)[0]).toMatch(/^ann-x-org--[0-9a-f]{16}$/);
    const reader = { userId: 'u', role: 'reader', channel: null };
    expect([provider?.permits(reader, 'tools', 'bash'), provider?.permits(reader, 'tools', 'ls')]).toEqual([
      false,
      true,
    ]);
    expect(agent.suggestions.most).toBe(5);
    expect(agent.approvalExpiryMs).toBe(60_000);
    await write('');
    expect((await settings()).agent).toMatchObject({
      approvalExpiryMs: null,
      safeguards: { readBeforeWrite: true, guardrails: { provider: null } },
    });
  });

  test.each([
    ['loop_detection: {warn_threshold: 6, hard_limit: 4}', 'hard_limit must not be lower'],
    ['summarization: {trigger: {type: fraction, value: 3}}', 'summarization'],
    ['token_budget: {max_tokens: 10}', 'token_budget.max_tokens'],
    ['safety_finish_reason: {detectors: []}', 'must name at least one'],
    ['authorization: {enabled: true}', 'authorization.provider is missing'],
    ['authorization: {enabled: true, provider: {use: rbak}}', 'rbac'],
    [
      'authorization: {enabled: true, default_role: usr, provider: {use: rbac, config: {roles: {user: {}}}}}',
      'there is no role "usr"',
    ],
    [
      'authorization: {enabled: true, users: {ann: boss}, provider: {use: rbac, config: {roles: {user: {}}}}}',
      'authorization.users.ann: there is no role "boss"',
    ],
    ['guardrails: {enabled: true}', 'guardrails.provider is missing'],
    ['guardrails: {enabled: true, provider: {use: alowlist}}', 'allowlist'],
  ])('%s is refused with what is wrong', async (text, problem) => {
    await write(text);
    await expect(settings()).rejects.toThrow(problem);
  });
});

describe('sub-agents', () => {
  test(
    'settings by name win over the general ones; what is left out has its default',
    verifies('TOOL-7c'),
    async () => {
      await write(
        `subagents:
  timeout_seconds: 60
  max_total_per_run: 9
  max_running: 5
  admission_policy: reject
  token_budget: { max_tokens: 5000 }
  agents:
    bash: { max_turns: 4, model: small, token_budget: { enabled: false } }
  custom_agents:
    reviewer: { description: Reviews., system_prompt: You review., tools: [read_file], model: inherit }
`,
      );
      const { subagents } = await settings();
      expect(subagents).toMatchObject({
        capacity: { maxRunning: 5, maxQueued: 64, policy: 'reject', queueTimeoutMs: 300_000 },
        maxTotalPerRun: 9,
        timeoutMs: 60_000,
        maxTurns: null,
        tokenBudget: { maxTokens: 5000, warnAt: 0.7 },
        overrides: { bash: { maxTurns: 4, model: 'small', tokenBudget: null } },
        custom: {
          reviewer: { description: 'Reviews.', systemPrompt: 'You review.', tools: ['read_file'], model: null },
        },
      });
      expect((await load()).warnings).toEqual([]);
      await write('subagent_batches:\n  max_running_items: 2\n  lease_seconds: 20\n');
      expect((await settings()).batches).toMatchObject({
        maxRunning: 2,
        defaultMaxRunning: 2,
        leaseMs: 20_000,
        enabled: true,
      });
      await write('subagent_batches:\n  max_live_items: 5\n  max_running_items: 9\n');
      await expect(settings()).rejects.toThrow(/max_running_items \(9\) is larger than max_live_items \(5\)/);
      await write('subagent_batches:\n  default_max_running_items: 100\n');
      await expect(settings()).rejects.toThrow(/default_max_running_items \(100\) is larger than max_running_items/);
      await write('subagent_batches:\n  max_items: true\n');
      await expect(load()).rejects.toThrow(/line 2: subagent_batches.max_items must be a number/);
      await write('subagents:\n  max_total_per_run: 51\n');
      await expect(load()).rejects.toThrow(/line 2: subagents.max_total_per_run must be from 1 to 50/);
      await write('subagents:\n  custom_agents:\n    x: { description: d }\n');
      await expect(load()).rejects.toThrow(/custom_agents.x.system_prompt/);
    },
  );
});

describe('variables', () => {
  test(
    'a text that starts with $ is the whole variable, at any depth; .env is below the environment',
    verifies('CFG-2'),
    async () => {
      await write(
        'models:\n  - name: a\n    api_key: $MY_KEY\n    headers:\n      - $OTHER\nserver:\n  host: $HOST_NAME\nsandbox:\n  environment:\n    PRICE: 5$\n',
      );
      await write('MY_KEY=from-file\nOTHER=two\nHOST_NAME="127.0.0.1"\n', '.env');
      const { config } = await load({ MY_KEY: 'from-environment' });
      expect(config.models?.[0]).toMatchObject({ api_key: 'from-environment', headers: ['two'] });
      expect(config.server?.host).toBe('127.0.0.1');
      expect(config.sandbox?.environment).toEqual({ PRICE: '5$' });
    },
  );

  test('a missing one is named with its key and line', verifies('CFG-2'), async () => {
    await write('log_level: info\nmodels:\n  - name: a\n    api_key: $NOT_THERE\n');
    await expect(load()).rejects.toMatchObject({
      code: 'configuration',
      message: expect.stringMatching(/config\.yaml, line 4: models\.0\.api_key .*NOT_THERE/),
    });
  });

  test('sections without effect may name variables that are not set', async () => {
    await write('plugins:\n  some:\n    token: $SOME_TOKEN\n');
    expect((await load()).warnings).toEqual([expect.stringContaining('plugins')]);
    // So may keys without effect, and bots that are switched off; one that is used may not.
    await write('channels:\n  slack: {bot_token: $SLACK_TOKEN}\n  telegram: {enabled: false, bot_token: $BOT_TOKEN}\n');
    const loaded = await load();
    expect(loaded.warnings).toEqual([expect.stringMatching(/channels\.slack has no effect .*telegram/)]);
    expect(resolveSettings(loaded, {}).channels.providers.telegram).toMatchObject({ enabled: false, credentials: {} });
    await write('channels:\n  telegram: {bot_token: $BOT_TOKEN}\n');
    await expect(load()).rejects.toMatchObject({
      message: expect.stringMatching(/line 2: channels\.telegram\.bot_token .*BOT_TOKEN/),
    });
  });
});

describe('mistakes', () => {
  test('unknown keys warn with the nearest known one and their line', verifies('CFG-1'), async () => {
    await write(
      'log_levle: info\nsandbox:\n  netwrok: host\n  image: x\nuploads:\n  colour: red\nplugins:\n  enabled: true\n',
    );
    const { warnings } = await load();
    expect(warnings).toEqual([
      expect.stringContaining('no effect in this version: plugins'),
      expect.stringMatching(/line 1: unknown key "log_levle" is ignored\. Did you mean "log_level"\?$/),
      expect.stringMatching(/line 3: unknown key "sandbox\.netwrok" is ignored\. Did you mean "network"\?$/),
      expect.stringMatching(/line 6: unknown key "uploads\.colour" is ignored\.$/),
    ]);
  });

  test('another version of the file is one warning and no refusal', verifies('CFG-3'), async () => {
    const told: (readonly string[])[] = [];
    for (const line of ['config_version: 12\n', 'config_version: 99\n', 'config_version: 34\n', '']) {
      await write(`# mine\n${line}log_level: info\n`);
      const { warnings, config } = await load();
      expect(config.log_level).toBe('info');
      told.push(warnings);
    }
    expect(told).toEqual([
      [expect.stringMatching(/line 2: config_version 12 is older than 34\..*set config_version: 34/)],
      [expect.stringMatching(/line 2: config_version 99 is newer than 34/)],
      [],
      [],
    ]);
  });

  test('wrong values name key, line and what is allowed', verifies('CFG-1', 'GW-01'), async () => {
    await write('log_level: loud\nserver:\n  port: 99999\nsandbox:\n  network: some\nmodels:\n  - model: x\n');
    const error = (await load().catch((thrown: unknown) => thrown)) as Error;
    expect(error.message.split('\n')).toEqual([
      expect.stringMatching(/line 1: log_level must be one of: debug, info, warning/),
      expect.stringMatching(/line 7: models\.0\.name must be text/),
      expect.stringMatching(/line 5: sandbox\.network must be one of: none, host, bridge/),
      expect.stringMatching(/line 3: server\.port must be from 0 to 65535/),
    ]);
  });

  test.each([
    ['sandbox:\n  use: contaner\n', 'line 2: sandbox.use: there is no sandbox provider "contaner"', 'container'],
    ['sandbox:\n  network: hst\n', 'line 2: sandbox.network must be one of: none, host, bridge', 'host'],
    ['sandbox:\n  ownership:\n    type: rdis\n', 'line 3: sandbox.ownership.type: there is no', 'redis'],
    ['memory:\n  enabled: true\n  manager_class: nop\n', 'line 3: memory.manager_class: there is no memory', 'noop'],
    ['models:\n  - name: a\n    use: antropic\n', 'line 3: models.0.use: there is no model provider', 'anthropic'],
    ['tools:\n  - name: ls\n  - name: web_search\n    use: tavly\n', 'line 4: tools: web_search cannot use', 'tavily'],
    [
      'safety_finish_reason:\n  detectors:\n    - gemni\n',
      'line 3: safety_finish_reason.detectors.0 must be',
      'gemini',
    ],
    [
      'guardrails:\n  enabled: true\n  provider:\n    use: alowlist\n',
      'line 4: guardrails.provider.use: there is no guardrail provider',
      'allowlist',
    ],
    [
      'authorization:\n  enabled: true\n  provider:\n    use: rbac\n    config: {roles: {user: {}}}\n  users:\n    ann: usr\n',
      'line 7: authorization.users.ann: there is no role "usr"',
      'user',
    ],
    [
      'database:\n  backend: postgres\n  postgres_url: postgres://127.0.0.1/x\nstream_bridge:\n  type: reddis\n',
      'line 5: stream_bridge.type: "reddis" is none of',
      'redis',
    ],
  ])('a name that is none of a list is told with file, line and the nearest one: %j', async (text, what, near) => {
    await write(text);
    const { message } = (await settings().catch((thrown: unknown) => thrown)) as Error;
    expect(message).toContain(`${join(folder, 'config.yaml')}, ${what}`);
    expect(message).toContain(`Did you mean "${near}"?`);
    expect(message.endsWith('?.')).toBe(false);
  });

  test('names that every object has are no names of ours', async () => {
    await write('constructor:\n  x: 1\ntoString:\n  y: 2\n');
    expect((await load()).warnings).toEqual([
      expect.stringMatching(/line 1: unknown key "constructor" is ignored\.$/),
      expect.stringMatching(/line 3: unknown key "toString" is ignored\./),
    ]);
    await write('sandbox:\n  use: x:constructor\n');
    await expect(settings()).rejects.toThrow('line 2: sandbox.use: there is no sandbox provider "x:constructor"');
    await write('tools:\n  - name: web_search\n    use: constructor\n');
    await expect(settings()).rejects.toThrow('line 3: tools: web_search cannot use "constructor"');
  });

  test('a model that other sections name and there is not is told with key, line and the nearest one', async () => {
    await write(
      [
        'models: [{name: large}, {name: small}]',
        'title: {model_name: smal}',
        'memory: {backend_config: {model: large}}',
        'subagents:',
        '  agents:',
        '    bash: {model: inherit}',
        '    general-purpose: {model: lrge}',
        'tools: [{name: grpe}]',
      ].join('\n'),
    );
    const told = (await settings()).warnings;
    expect(told).toEqual([
      expect.stringMatching(
        /config\.yaml, line 2: title\.model_name: there is no model "smal"\. Did you mean "small"\?/,
      ),
      expect.stringMatching(
        /line 7: subagents\.agents\.general-purpose\.model: .*Did you mean "large"\? .*large, is used/,
      ),
      expect.stringMatching(/line 8: tools: there is no tool "grpe".* Did you mean "grep"\?/),
    ]);
  });

  test('what is not YAML is named with its line', async () => {
    await write('log_level: info\nmodels: [a\nb: c\n');
    await expect(load()).rejects.toMatchObject({
      message: expect.stringMatching(/line [234], column \d+: this is not valid YAML/),
    });
    await write('- just\n- a list\n');
    await expect(load()).rejects.toMatchObject({ code: 'configuration' });
    await write(
      'a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\n',
    );
    await expect(load()).rejects.toMatchObject({ code: 'configuration' });
  });
});

describe('settings', () => {
  test('defaults: loopback, port 2026, data below the project, demo model', verifies('SEC-09'), async () => {
    const found = await settings();
    expect(found.server).toMatchObject({ host: '127.0.0.1', port: 2026, loopback: true, token: null });
    expect(found.home).toBe(join(folder, '.reindeer'));
    expect(found.databaseFolder).toBe(join(folder, '.reindeer', 'data'));
    expect(found.models).toMatchObject([{ name: 'demo', use: 'demo' }]);
    expect(found.sandbox.provider).toBe('bubblewrap');
    expect((await settings({ REINDEER_HOME: '/srv/data' })).home).toBe('/srv/data');
  });

  test('Postgres needs its URL, and may name the instance', async () => {
    expect((await settings()).postgres).toBeNull();
    await write('database:\n  backend: postgres\n');
    await expect(settings()).rejects.toMatchObject({
      code: 'configuration',
      message: expect.stringContaining('database.postgres_url is missing'),
    });
    await write('database:\n  backend: postgres\n  postgres_url: $DATABASE_URL\n  pool_size: 3\n  instance_id: left\n');
    expect((await settings({ DATABASE_URL: 'postgres://127.0.0.1/x' })).postgres).toEqual({
      url: 'postgres://127.0.0.1/x',
      connections: 3,
      instanceId: 'left',
      redisUrl: null,
    });
  });

  test(
    'what several instances are not safe with is refused before anything is opened',
    verifies('PD-08', 'PD-09'),
    async () => {
      const refused = async (text: string, environment: Record<string, string>, what: readonly string[]) => {
        await write(text);
        const attempt = settings(environment);
        for (const part of what)
          await expect(attempt).rejects.toMatchObject({
            code: 'configuration',
            message: expect.stringContaining(part),
          });
      };
      const postgres = 'database:\n  backend: postgres\n  postgres_url: postgres://127.0.0.1/x\n';
      const four = { GATEWAY_WORKERS: '4' };
      await refused('', four, ['GATEWAY_WORKERS is "4"', 'backend: postgres', 'reindeer serve', '4 times']);
      await refused(postgres, four, ['one command is one instance', '4 times']);
      await refused('', { WEB_CONCURRENCY: 'auto' }, ['WEB_CONCURRENCY is "auto"', 'Remove the variable']);
      // Whoever wants several schedulers wants several instances: also when only one is started (PD-09).
      const scheduler = 'scheduler:\n  multi_instance: true\n';
      await refused(scheduler, {}, ['scheduler.multi_instance', 'backend: postgres', 'Remove the key']);
      await refused(`${postgres}${scheduler}run_ownership:\n  heartbeat_enabled: false\n`, {}, ['heartbeat_enabled']);
      const beats = (on: boolean) => `run_ownership:\n  heartbeat_enabled: ${on}\n`;
      await refused(`${postgres}${beats(false)}`, {}, ['run_ownership.heartbeat_enabled', 'Remove the key']);
      for (const text of [
        beats(false),
        `${postgres}${beats(true)}`,
        // Facts are durable whatever the file says (D3).
        `${postgres}${scheduler}run_events:\n  backend: memory\n`,
        'scheduler:\n  multi_instance: false\n',
      ]) {
        await write(text);
        expect((await settings({ GATEWAY_WORKERS: '1' })).runs.leaseMs).toBe(12_000);
      }
    },
  );

  test('a Redis between instances is used with Postgres only, and needs its address', async () => {
    const postgres = 'database:\n  backend: postgres\n  postgres_url: postgres://127.0.0.1/x\n';
    const redis = 'redis://bridge:6379/0';
    const found = async (file: string, variables: Record<string, string> = {}) => {
      await write(file);
      return (await settings(variables)).postgres?.redisUrl;
    };
    expect(await found(`${postgres}stream_bridge:\n  type: redis\n  redis_url: ${redis}\n`)).toBe(redis);
    expect(await found(postgres, { DEER_FLOW_STREAM_BRIDGE_REDIS_URL: redis })).toBe(redis);
    expect(await found(`${postgres}stream_bridge:\n  type: memory\n`)).toBeNull();
    expect(await found(`stream_bridge:\n  type: redis\n`)).toBeUndefined();
    await expect(found(`${postgres}stream_bridge:\n  type: redis\n`)).rejects.toMatchObject({
      code: 'configuration',
      message: expect.stringContaining('stream_bridge.redis_url is missing'),
    });
    await expect(found(`${postgres}stream_bridge:\n  type: reddis\n`)).rejects.toMatchObject({
      code: 'configuration',
      message: expect.stringContaining('Did you mean "redis"'),
    });
  });

  test('an address that others reach needs a token', verifies('SEC-09'), async () => {
    for (const host of ['0.0.0.0', '::', '192.168.1.5', 'reindeer.example'])
      await expect(settings({}, { host })).rejects.toMatchObject({
        code: 'configuration',
        message: expect.stringContaining('token'),
      });
    await expect(settings({ REINDEER_TOKEN: 'short' }, { host: '0.0.0.0' })).rejects.toMatchObject({
      code: 'configuration',
    });
    const open = await settings({ REINDEER_TOKEN: 'x'.repeat(32) }, { host: 'reindeer.example' });
    expect(open.server).toMatchObject({ loopback: false, allowedHosts: ['reindeer.example'] });
    expect((await settings({}, { host: '127.0.0.2' })).server.loopback).toBe(true);
    expect((await settings({}, { host: '::1' })).server.loopback).toBe(true);
  });

  test('the command line wins over the environment, which wins over the file', async () => {
    await write('server:\n  port: 1\n');
    expect((await settings()).server.port).toBe(1);
    expect((await settings({ REINDEER_PORT: '2' })).server.port).toBe(2);
    expect((await settings({ REINDEER_PORT: '2' }, { port: 3 })).server.port).toBe(3);
    await expect(settings({ PORT: 'http' })).rejects.toMatchObject({ code: 'configuration' });
  });

  test('models: the file, else keys of the environment, else the demo model', async () => {
    expect(modelsOf({}, { OPENAI_API_KEY: 'k', ANTHROPIC_API_KEY: 'a' }).map((model) => model.use)).toEqual([
      'openai',
      'anthropic',
    ]);
    expect(modelsOf({}, { OPENAI_BASE_URL: 'http://localhost:1/v1', OPENAI_MODEL: 'm' })).toMatchObject([
      { name: 'm', base_url: 'http://localhost:1/v1', api_key: 'none' },
    ]);
    expect(() => modelsOf({}, { OPENAI_API_KEY: 'k', OPENAI_BASE_URL: 'http://localhost:1' })).toThrow('OPENAI_MODEL');
    expect(modelsOf({}, { OPENAI_API_KEY: '  ' })).toMatchObject([{ use: 'demo' }]);
    const twice = modelsOf(
      { models: [{ name: 'a', model: '1' }, { name: 'a', model: '2' }, { name: 'b' }] },
      { OPENAI_API_KEY: 'k' },
    );
    expect(twice.map((model) => [model.name, model.model])).toEqual([
      ['a', '1'],
      ['b', undefined],
    ]);
  });

  test('class paths of the reference map to our providers; unknown ones are named', async () => {
    await write('sandbox:\n  use: deerflow.sandbox.local:LocalSandboxProvider\n  allow_host_bash: true\n');
    expect((await settings()).sandbox).toMatchObject({ provider: 'local', allow_host_bash: true });
    for (const name of ['deerflow.community.aio_sandbox:AioSandboxProvider', 'container']) {
      await write(`sandbox:\n  use: ${name}\n  container_prefix: mine\n`);
      expect((await settings()).sandbox).toMatchObject({ provider: 'container', container_prefix: 'mine' });
    }
    for (const [use, network] of [
      ['container', 'host'],
      ['bubblewrap', 'bridge'],
    ]) {
      await write(`sandbox:\n  use: ${use}\n  network: ${network}\n`);
      await expect(settings()).rejects.toMatchObject({
        code: 'configuration',
        message: expect.stringContaining(`sandbox.network: ${network}`),
      });
    }
    await write('sandbox:\n  use: bublewrap\n');
    await expect(settings()).rejects.toMatchObject({ message: expect.stringContaining('Did you mean "bubblewrap"') });
  });

  test(
    'the stream bridge is carried to the choice of sandbox ownership, which needs no keys of its own',
    verifies('SEED-001-33', 'SEED-001-34', 'SO-21'),
    async () => {
      await write('sandbox:\n  idle_timeout: 0\nstream_bridge:\n  type: redis\n  redis_url: $BRIDGE\n');
      const found = await settings({ BRIDGE: 'redis://bridge:6379/0' });
      expect(found.sandboxOwnership).toMatchObject({ type: 'redis', redisUrl: 'redis://bridge:6379/0' });
      expect(sandboxLifecycleSettings(found)).toMatchObject({ idleTimeoutMs: 0, renewalIntervalMs: 30_000 });
      await write('sandbox:\n  ownership:\n    type: memory\nstream_bridge:\n  type: redis\n');
      expect((await settings()).sandboxOwnership).toMatchObject({ type: 'memory', redisUrl: null });
      await write('');
      expect((await settings()).sandboxOwnership.type).toBe('memory');
    },
  );

  test('answers of tools are without a limit when it is 0', verifies('SL-18'), async () => {
    await write('sandbox:\n  bash_output_max_chars: 0\n  ls_output_max_chars: 500\n');
    expect(outputLimits(await settings())).toEqual({
      bashMaxOutputCharacters: Number.MAX_SAFE_INTEGER,
      listMaxCharacters: 500,
    });
    await write('sandbox:\n  bash_output_max_chars: 5\n');
    await expect(settings()).rejects.toMatchObject({ message: expect.stringContaining('0 (no limit) or 100 or more') });
  });

  test('ownership that would lose live sandboxes is refused at the start', verifies('SO-17', 'SO-21'), async () => {
    await write('sandbox:\n  ownership:\n    ttl_multiplier: 1\n');
    await expect(settings()).rejects.toMatchObject({
      code: 'configuration',
      message: expect.stringContaining('at least 2'),
    });
    const shared =
      'database:\n  backend: postgres\n  postgres_url: postgres://localhost/x\nsandbox:\n  use: container\n';
    await write(shared);
    expect((await settings()).sandboxOwnership.type).toBe('postgres');
    await write(`${shared}  ownership:\n    type: memory\n`);
    await expect(settings()).rejects.toMatchObject({
      code: 'configuration',
      message: expect.stringContaining('instances share the database'),
    });
    await write('sandbox:\n  ownership:\n    type: etcd\n');
    await expect(settings()).rejects.toMatchObject({ code: 'configuration', message: expect.stringContaining('etcd') });
  });
});
