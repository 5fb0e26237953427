import { z } from 'zod';
import { didYouMean } from '../nearest.ts';
import { isOwnModule } from './class-path.ts';

/**
 * `config.yaml`. Keys are the reference's, so that an operator can carry a file over; `server` and `runs` are ours. Everything
 * is optional. Objects are loose: unknown keys are reported as warnings elsewhere, with the nearest known key.
 */

const count = (what: string, low: number, high: number) =>
  z
    .number({ error: `must be a number: ${what}` })
    .int(`must be a whole number: ${what}`)
    .min(low, `must be from ${low} to ${high}: ${what}`)
    .max(high, `must be from ${low} to ${high}: ${what}`);
const seconds = (low: number, high: number) =>
  z
    .number({ error: 'must be a number of seconds' })
    .min(low, `must be from ${low} to ${high} seconds`)
    .max(high, `must be from ${low} to ${high} seconds`);
const text = z.string({ error: 'must be text' });
const yes = z.boolean({ error: 'must be true or false' });
/** What is wrong with a word that is none of a list, and which one was surely meant. */
const noneOf = (word: unknown, names: readonly string[], allowed: string) =>
  `must be one of: ${allowed}${typeof word === 'string' ? `.${didYouMean(word, names)}` : ''}`;
const oneOf = <const T extends readonly [string, ...string[]]>(names: T) =>
  z.enum(names, { error: ({ input }) => noneOf(input, names, names.join(', ')) });
const section = <S extends z.ZodRawShape>(shape: S) =>
  z.looseObject(shape, { error: 'must be a section with keys of its own' });

const GIB = 1024 ** 3;
/** Fewer than 100 hold no answer beside its marker. */
const characters = count('characters; 0 = no limit, else 100 or more', 0, 10_000_000).refine(
  (value) => value === 0 || value >= 100,
  'must be 0 (no limit) or 100 or more: characters',
);

const filled = text.min(1, 'must not be empty');
const listOf = (what: string) => z.array(text, { error: `must be a list of ${what}` });
const names = listOf('names');
const numberTo = (high: number) =>
  z
    .number({ error: `must be a number from 0 to ${high}` })
    .min(0, `must be from 0 to ${high}`)
    .max(high, `must be from 0 to ${high}`);
const share = numberTo(1);
const price = z.number({ error: 'must be a number: the price of a million tokens' }).min(0, 'must not be negative');

/** The version of the file that this program knows: the reference's. */
export const CONFIG_VERSION = 34;

const modelSchema = section({
  name: filled,
  use: text.optional(),
  model: text.optional(),
  display_name: text.nullish(),
  description: text.nullish(),
  api_key: text.nullish(),
  base_url: text.nullish(),
  max_tokens: count('the most tokens of one answer', 1, 10_000_000).nullish(),
  temperature: numberTo(2).nullish(),
  supports_thinking: yes.nullish(),
  supports_reasoning_effort: yes.nullish(),
  supports_vision: yes.nullish(),
  context_window: count('tokens', 1, 100_000_000).nullish(),
  pricing: section({
    currency: text.nullish(),
    input_per_million: price.nullish(),
    output_per_million: price.nullish(),
    input_cache_hit_per_million: price.nullish(),
  }).nullish(),
  stream_usage: yes.nullish(),
  stream_chunk_timeout: seconds(0, 86_400).nullish(),
});

const tokenBudget = section({
  enabled: yes.optional(),
  max_tokens: count('tokens of one sub-agent', 1_000, 1_000_000_000).optional(),
  warn_threshold: share.optional(),
});

/** `{type: tokens | messages | fraction, value}`; a fraction is a share of the model's context window. */
const contextSize = section({
  type: oneOf(['tokens', 'messages', 'fraction']),
  value: z.number({ error: 'must be a number' }).positive('must be more than 0'),
}).refine(({ type, value }) => type !== 'fraction' || value <= 1, {
  error: 'value: must be from 0 to 1 for a fraction',
});
const frequency = section({
  warn: count('calls', 1, 100_000),
  hard_limit: count('calls', 1, 100_000),
}).refine(({ warn, hard_limit }) => hard_limit >= warn, { error: 'hard_limit must not be lower than warn' });

export const DETECTORS: readonly string[] = ['openai', 'anthropic', 'gemini'];

/** What a role may use. */
const grant = section({
  allow: z
    .union([z.literal('*'), z.array(text)], { error: 'must be "*" or a list of names; a name may end in *' })
    .optional(),
  deny: listOf('names; a name may end in *').optional(),
});

/** How the runs of a conversation in a messenger are made. */
const channelSession = section({
  assistant_id: filled.nullish(),
  config: section({ recursion_limit: count('steps of a run', 1, 1_000).nullish() }).nullish(),
  context: section({
    thinking_enabled: yes.nullish(),
    is_plan_mode: yes.nullish(),
    subagent_enabled: yes.nullish(),
    model_name: text.nullish(),
  }).nullish(),
});

/** What keeps long work alive; each key is the reference's. */
const safeguardSections = {
  tool_output: section({
    enabled: yes.optional(),
    externalize_min_chars: count('characters', 1, 100_000_000).optional(),
    preview_head_chars: count('characters', 0, 1_000_000).optional(),
    preview_tail_chars: count('characters', 0, 1_000_000).optional(),
    fallback_max_chars: count('characters; 0 = no limit', 0, 100_000_000).optional(),
    fallback_head_chars: count('characters', 0, 100_000_000).optional(),
    fallback_tail_chars: count('characters', 0, 100_000_000).optional(),
    storage_subdir: text.optional(),
    exempt_tools: names.optional(),
    tool_overrides: z
      .record(z.string(), count('characters; 0 = never to a file', 0, 100_000_000), {
        error: 'must be a list of tool: characters',
      })
      .optional(),
  }).optional(),
  summarization: section({
    enabled: yes.optional(),
    model_name: text.nullish(),
    trigger: z
      .union([contextSize, z.array(contextSize)], { error: 'must be {type, value} or a list of them' })
      .nullish(),
    keep: contextSize.optional(),
    trim_tokens_to_summarize: count('tokens', 100, 10_000_000).nullish(),
    summary_prompt: text.nullish(),
    skill_file_read_tool_names: names.optional(),
  }).optional(),
  loop_detection: section({
    enabled: yes.optional(),
    warn_threshold: count('repeats', 1, 1_000).optional(),
    hard_limit: count('repeats', 2, 1_000).optional(),
    window_size: count('messages', 2, 10_000).optional(),
    max_tracked_threads: count('threads', 1, 1_000_000).optional(),
    tool_freq_warn: count('calls', 1, 100_000).optional(),
    tool_freq_hard_limit: count('calls', 1, 100_000).optional(),
    tool_freq_overrides: z.record(z.string(), frequency, { error: 'must be a list of tool: limits' }).optional(),
  })
    .refine(({ warn_threshold = 3, hard_limit = 5 }) => hard_limit >= warn_threshold, {
      error: 'hard_limit must not be lower than warn_threshold',
    })
    .optional(),
  token_budget: section({
    enabled: yes.optional(),
    max_tokens: count('tokens of one run', 1_000, 1_000_000_000).optional(),
    max_input_tokens: count('tokens', 1, 1_000_000_000).nullish(),
    max_output_tokens: count('tokens', 1, 1_000_000_000).nullish(),
    warn_threshold: share.optional(),
    hard_stop_threshold: share.optional(),
  }).optional(),
  circuit_breaker: section({
    failure_threshold: count('failures in a row; 0 = never', 0, 1_000).optional(),
    recovery_timeout_sec: seconds(0, 86_400).optional(),
  }).optional(),
  llm_call: section({
    retry_max_attempts: count('tries', 1, 20).optional(),
    retry_base_delay_ms: count('milliseconds', 1, 600_000).optional(),
    retry_cap_delay_ms: count('milliseconds', 1, 600_000).optional(),
    burst_retry_base_delay_ms: count('milliseconds', 1, 600_000).optional(),
  }).optional(),
  safety_finish_reason: section({
    enabled: yes.optional(),
    detectors: z
      .array(
        text.refine((name) => DETECTORS.includes(name) || isOwnModule(name), {
          error: ({ input }) => noneOf(input, DETECTORS, `${DETECTORS.join(', ')}, or ./module.mjs:export of your own`),
        }),
      )
      .min(1, 'must name at least one')
      .nullish(),
  }).optional(),
  read_before_write: section({ enabled: yes.optional() }).optional(),
  guardrails: section({
    enabled: yes.optional(),
    fail_closed: yes.optional(),
    passport: text.nullish(),
    provider: section({
      use: filled,
      config: section({ allowed_tools: names.nullish(), denied_tools: names.nullish() }).nullish(),
    }).nullish(),
  }).optional(),
  authorization: section({
    enabled: yes.optional(),
    fail_closed: yes.optional(),
    default_role: filled.optional(),
    users: z.record(z.string(), text, { error: 'must be a list of user: role' }).nullish(),
    provider: section({
      use: filled,
      config: section({
        roles: z
          .record(
            z.string(),
            section({ tools: grant.optional(), routes: grant.optional(), models: grant.optional() }),
            { error: 'must be a list of role: what it may do' },
          )
          .optional(),
      }).nullish(),
    }).nullish(),
  }).optional(),
  suggestions: section({
    enabled: yes.optional(),
    max_suggestions: count('questions', 1, 5).optional(),
    model_name: text.nullish(),
  }).optional(),
};

/** Beside `memory.backend_config` in older files, inside it in newer ones. */
const memoryKeys = {
  debounce_seconds: seconds(1, 86_400).nullish(),
  queue_max_depth: count('conversations that wait', 1, 100_000).nullish(),
  model: text.nullish(),
  model_name: text.nullish(),
  max_facts: count('facts', 10, 500).nullish(),
  fact_confidence_threshold: share.nullish(),
  fact_eviction_policy: oneOf(['confidence', 'hybrid-v1']).nullish(),
  max_injection_tokens: count('tokens', 100, 8_000).nullish(),
  guaranteed_categories: names.nullish(),
  guaranteed_token_budget: count('tokens', 0, 8_000).nullish(),
  staleness_review_enabled: yes.nullish(),
  staleness_age_days: count('days', 1, 36_500).nullish(),
  staleness_min_candidates: count('facts', 1, 500).nullish(),
  staleness_max_removals_per_cycle: count('facts', 0, 500).nullish(),
  staleness_protected_categories: names.nullish(),
  staleness_max_lifetime_multiplier: count('times the age', 1, 1_000).nullish(),
  staleness_max_extension_days: count('days', 1, 36_500).nullish(),
  consolidation_enabled: yes.nullish(),
  consolidation_min_facts: count('facts', 2, 500).nullish(),
  consolidation_max_groups_per_cycle: count('groups', 1, 50).nullish(),
  consolidation_max_sources: count('facts of a group', 2, 50).nullish(),
  watermark_max_keys: count('conversations', 1, 1_000_000).nullish(),
};

/** What can be set for each kind of sub-agent. */
const subagentKeys = {
  timeout_seconds: seconds(1, 86_400).nullish(),
  max_turns: count('model calls', 1, 10_000).nullish(),
  model: text.nullish(),
  skills: listOf('skill names').nullish(),
  token_budget: tokenBudget.nullish(),
};

export const configSchema = section({
  config_version: count('the version of the file', 0, 1_000_000).optional(),
  log_level: oneOf(['debug', 'info', 'warning', 'warn', 'error', 'critical']).optional(),
  max_recursion_limit: count('steps of one run', 1, 100_000).optional(),
  models: z.array(modelSchema, { error: 'must be a list of models' }).optional(),
  token_usage: section({ enabled: yes.optional() }).optional(),
  tools: z
    .array(
      z.looseObject(
        { name: filled, group: text.nullish(), use: text.nullish() },
        { error: 'must be tools with name, group and use' },
      ),
      { error: 'must be a list of tools' },
    )
    .optional(),
  tool_search: section({ enabled: yes.optional(), auto_promote_top_k: count('tools', 1, 5).optional() }).optional(),
  skills: section({ path: text.nullish(), container_path: text.optional(), use: text.optional() }).optional(),
  skill_scan: section({ enabled: yes.optional() }).optional(),
  skill_evolution: section({
    enabled: yes.optional(),
    moderation_model_name: text.nullish(),
    security_fail_closed: yes.optional(),
  }).optional(),
  extensions: z.looseObject({}, { error: 'must be a section with keys of its own' }).optional(),
  tool_groups: z
    .array(z.looseObject({ name: text }, { error: 'must be groups with a name' }), {
      error: 'must be a list of groups',
    })
    .optional(),
  sandbox: section({
    use: text.optional(),
    allow_host_bash: yes.optional(),
    network: oneOf(['none', 'host', 'bridge']).optional(),
    bash_command_timeout: seconds(1, 86_400).optional(),
    bash_output_max_chars: characters.optional(),
    read_file_output_max_chars: characters.optional(),
    ls_output_max_chars: characters.optional(),
    memory_limit: count('bytes', 16 * 1024 ** 2, 1024 * GIB).optional(),
    pids_limit: count('processes', 8, 100_000).optional(),
    disk_limit: count('bytes', 1024 ** 2, 1024 * GIB).optional(),
    max_commands: count('commands at once', 1, 10_000).optional(),
    environment: z.record(z.string(), text, { error: 'must be a list of NAME: value' }).optional(),
    replicas: count('sandboxes', 1, 10_000).optional(),
    idle_timeout: seconds(0, 31_536_000).optional(),
    overflow_policy: oneOf(['wait', 'reject', 'burst']).optional(),
    acquire_timeout: seconds(1, 86_400).optional(),
    burst_limit: count('sandboxes', 0, 10_000).optional(),
    prewarm: yes.optional(),
    memory_reserve: count('bytes', 0, 1024 * GIB).optional(),
    image: text.nullish(),
    port: count('a port', 1, 65_535).optional(),
    container_prefix: text.optional(),
    engine_socket: text.nullish(),
    bind_host: text.optional(),
    transport: oneOf(['auto', 'port']).optional(),
    provisioner_url: text.nullish(),
    provisioner_api_key: text.nullish(),
    thread_data_mounts: yes.nullish(),
    cpus: z.number({ error: 'must be a number of cores' }).optional(),
    mounts: z
      .array(
        section({
          host_path: text,
          container_path: text,
          read_only: yes.optional(),
        }),
        { error: 'must be a list of folders' },
      )
      .nullish(),
    ownership: section({
      // Judged where it is chosen, with the environment and the stream bridge.
      type: text.optional(),
      redis_url: text.optional(),
      key_prefix: text.optional(),
      renewal_interval_seconds: z.number({ error: 'must be a number of seconds' }).optional(),
      ttl_multiplier: z.number({ error: 'must be a number' }).optional(),
    }).nullish(),
  }).optional(),
  /** With Postgres: what carries hints and tokens between instances. */
  stream_bridge: section({ type: text.optional(), redis_url: text.nullish() }).nullish(),
  /** `heartbeat_enabled` is always on here. */
  run_ownership: section({
    lease_seconds: seconds(5, 3600).optional(),
    grace_seconds: seconds(1, 600).optional(),
    heartbeat_enabled: yes.optional(),
  }).nullish(),
  uploads: section({
    max_files: count('files', 1, 1000).optional(),
    max_file_size: count('bytes', 1, 100 * GIB).optional(),
    max_total_size: count('bytes', 1, 100 * GIB).optional(),
    auto_convert_documents: yes.optional(),
  }).optional(),
  database: section({
    backend: oneOf(['sqlite', 'postgres']).optional(),
    sqlite_dir: text.nullish(),
    postgres_url: text.nullish(),
    pool_size: count('connections', 1, 1000).optional(),
    instance_id: text.nullish(),
  }).optional(),
  subagent_batches: section({
    enabled: yes.optional(),
    poll_interval_seconds: seconds(0.1, 60).optional(),
    lease_seconds: seconds(10, 3_600).optional(),
    max_items: count('items of one batch', 1, 100_000).optional(),
    default_max_live_items: count('open items of one batch', 1, 10_000).optional(),
    max_live_items: count('open items of one batch', 1, 10_000).optional(),
    default_max_running_items: count('items of one batch at work at once', 1, 1_024).optional(),
    max_running_items: count('items of one batch at work at once', 1, 1_024).optional(),
    max_running_per_instance: count('items at work at once in this process', 1, 1_024).optional(),
    max_attempts: count('attempts of one item', 1, 10).optional(),
    max_result_chars: count('characters of a stored result', 1_000, 1_000_000).optional(),
    result_preview_chars: count('characters of a preview', 100, 10_000).optional(),
  }).optional(),
  scheduler: section({
    enabled: yes.optional(),
    multi_instance: yes.optional(),
    poll_interval_seconds: seconds(1, 300).optional(),
    lease_seconds: seconds(10, 3_600).optional(),
    max_concurrent_runs: count('scheduled runs at once', 1, 1_000).optional(),
    min_once_delay_seconds: seconds(0, 86_400).optional(),
    max_tasks_per_user: count('scheduled tasks of one user', 1, 100_000).optional(),
  }).optional(),
  channels: section({
    inbound_queue_maxsize: count('messages that may wait per channel', 100, 100_000).optional(),
    max_concurrency: count('messages that are worked on at once per channel', 1, 100).optional(),
    shutdown_grace_period_seconds: seconds(0, 60).optional(),
    session: channelSession.nullish(),
    telegram: section({
      enabled: yes.optional(),
      bot_token: text.nullish(),
      bot_username: text.nullish(),
      allowed_users: z.array(z.union([text, z.number()]), { error: 'must be a list of account ids' }).optional(),
      api_url: z.url({ error: 'must be an address such as https://api.telegram.org' }).nullish(),
      session: channelSession
        .extend({
          users: z.record(z.string(), channelSession, { error: 'must be a list of account: session' }).nullish(),
        })
        .nullish(),
    }).nullish(),
  }).optional(),
  subagents: section({
    timeout_seconds: seconds(1, 86_400).nullish(),
    max_turns: count('model calls', 1, 10_000).nullish(),
    max_total_per_run: count('sub-agents of one run', 1, 50).optional(),
    max_running: count('sub-agents at work at once', 1, 64).optional(),
    max_queued: count('sub-agents that wait', 0, 10_000).optional(),
    admission_policy: oneOf(['queue', 'reject']).optional(),
    queue_timeout_seconds: seconds(1, 86_400).optional(),
    token_budget: tokenBudget.nullish(),
    agents: z.record(z.string(), section(subagentKeys), { error: 'must be a list of name: settings' }).nullish(),
    custom_agents: z
      .record(
        z.string(),
        section({
          ...subagentKeys,
          description: text.min(1, 'must say when to use it'),
          system_prompt: filled,
          tools: listOf('tool names').nullish(),
          disallowed_tools: listOf('tool names').nullish(),
        }),
        { error: 'must be a list of name: settings' },
      )
      .nullish(),
  }).optional(),
  ...safeguardSections,
  memory: section({
    enabled: yes.optional(),
    mode: oneOf(['middleware', 'tool']).optional(),
    injection_enabled: yes.optional(),
    shutdown_flush_timeout_seconds: seconds(1, 300).optional(),
    manager_class: filled.optional(),
    backend_config: section(memoryKeys).nullish(),
    ...memoryKeys,
  }).optional(),
  agents_api: section({ enabled: yes.optional() }).optional(),
  workspace_changes: section({ enabled: yes.optional(), require_presented: yes.optional() }).optional(),
  title: section({
    enabled: yes.optional(),
    max_words: count('words', 1, 100).optional(),
    max_chars: count('characters', 1, 1000).optional(),
    model_name: text.nullish(),
    prompt_template: text.nullish(),
  }).optional(),
  server: section({
    host: text.optional(),
    port: count('a port', 0, 65_535).optional(),
    token: text.min(16, 'must have at least 16 characters').nullish(),
    internal_token: text.min(16, 'must have at least 16 characters').nullish(),
    allowed_hosts: listOf('host names').optional(),
    allowed_origins: z
      .array(z.url({ error: 'must be origins such as https://reindeer.example.org' }), {
        error: 'must be a list of origins',
      })
      .optional(),
    heartbeat_seconds: seconds(1, 300).optional(),
  }).optional(),
  approvals: section({
    tools: listOf('tool names; "*" stands for every tool').optional(),
    expire_after_seconds: seconds(1, 31_536_000).nullish(),
  }).optional(),
  runs: section({
    crash_policy: oneOf(['resume', 'error']).optional(),
    max_active: count('runs at once', 1, 100_000).optional(),
    max_queued: count('waiting runs per thread', 0, 1000).optional(),
    timeout: seconds(1, 604_800).nullish(),
    drain_timeout: seconds(0, 3600).optional(),
  }).optional(),
});

export type ConfigFile = z.output<typeof configSchema>;
export type ModelEntry = z.output<typeof modelSchema>;

/** Sections of the reference that have no effect here: known, so no spelling mistake. */
export const SECTIONS_WITHOUT_EFFECT: readonly string[] = [
  'logging',
  'input_polish',
  'tool_progress',
  'acp_agents',
  'agent_storage',
  'checkpointer',
  'run_events',
  'mcp_tasks',
  'dedupe_storage',
  'channel_connections',
  'auth',
  'plugins',
];

/** Keys inside sections likewise. */
export const KEYS_WITHOUT_EFFECT: Readonly<Record<string, readonly string[]>> = {
  memory: [
    'storage_path',
    'storage_class',
    'retrieval_adapter',
    'token_counting',
    'strict_user_scope',
    'file_lock_timeout_seconds',
    'patterns_dir',
    'prompts_dir',
  ],
  sandbox: ['auto_start'],
  channels: [
    'langgraph_url',
    'gateway_url',
    'slack',
    'feishu',
    'lark',
    'discord',
    'dingtalk',
    'wechat',
    'wecom',
    'buzz',
    'github',
  ],
  uploads: ['pdf_converter'],
  database: ['echo_sql', 'pool_recycle'],
  llm_call: ['max_concurrent_calls'],
};
