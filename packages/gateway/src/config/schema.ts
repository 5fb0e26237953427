import { z } from 'zod';

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
const oneOf = <const T extends readonly [string, ...string[]]>(names: T) =>
  z.enum(names, { error: `must be one of: ${names.join(', ')}` });
const section = <S extends z.ZodRawShape>(shape: S) =>
  z.looseObject(shape, { error: 'must be a section with keys of its own' });

const GIB = 1024 ** 3;

export const modelSchema = section({
  name: text.min(1, 'must not be empty'),
  use: text.optional(),
  model: text.optional(),
  display_name: text.nullish(),
  description: text.nullish(),
  api_key: text.nullish(),
  base_url: text.nullish(),
  max_tokens: count('the most tokens of one answer', 1, 10_000_000).nullish(),
  temperature: z
    .number({ error: 'must be a number from 0 to 2' })
    .min(0, 'must be from 0 to 2')
    .max(2, 'must be from 0 to 2')
    .nullish(),
  supports_thinking: yes.nullish(),
  supports_reasoning_effort: yes.nullish(),
  supports_vision: yes.nullish(),
  context_window: count('tokens', 1, 100_000_000).nullish(),
});

const tokenBudget = section({
  enabled: yes.optional(),
  max_tokens: count('tokens of one sub-agent', 1_000, 1_000_000_000).optional(),
  warn_threshold: z
    .number({ error: 'must be a number from 0 to 1' })
    .min(0, 'must be from 0 to 1')
    .max(1, 'must be from 0 to 1')
    .optional(),
});

/** What can be set for each kind of sub-agent. */
const subagentKeys = {
  timeout_seconds: seconds(1, 86_400).nullish(),
  max_turns: count('model calls', 1, 10_000).nullish(),
  model: text.nullish(),
  skills: z.array(text, { error: 'must be a list of skill names' }).nullish(),
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
        { name: text.min(1, 'must not be empty'), group: text.nullish(), use: text.nullish() },
        { error: 'must be tools with name, group and use' },
      ),
      { error: 'must be a list of tools' },
    )
    .optional(),
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
    bash_output_max_chars: count('characters', 100, 10_000_000).optional(),
    read_file_output_max_chars: count('characters', 100, 10_000_000).optional(),
    ls_output_max_chars: count('characters', 100, 10_000_000).optional(),
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
  }).optional(),
  database: section({
    backend: oneOf(['sqlite', 'postgres']).optional(),
    sqlite_dir: text.nullish(),
    postgres_url: text.nullish(),
    pool_size: count('connections', 1, 1000).optional(),
    instance_id: text.nullish(),
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
          system_prompt: text.min(1, 'must not be empty'),
          tools: z.array(text, { error: 'must be a list of tool names' }).nullish(),
          disallowed_tools: z.array(text, { error: 'must be a list of tool names' }).nullish(),
        }),
        { error: 'must be a list of name: settings' },
      )
      .nullish(),
  }).optional(),
  title: section({
    enabled: yes.optional(),
    max_words: count('words', 1, 100).optional(),
    max_chars: count('characters', 1, 1000).optional(),
    model_name: text.nullish(),
  }).optional(),
  server: section({
    host: text.optional(),
    port: count('a port', 0, 65_535).optional(),
    token: text.min(16, 'must have at least 16 characters').nullish(),
    allowed_hosts: z.array(text, { error: 'must be a list of host names' }).optional(),
    allowed_origins: z
      .array(z.url({ error: 'must be origins such as https://reindeer.example.org' }), {
        error: 'must be a list of origins',
      })
      .optional(),
    heartbeat_seconds: seconds(1, 300).optional(),
  }).optional(),
  approvals: section({
    tools: z.array(text, { error: 'must be a list of tool names; "*" stands for every tool' }).optional(),
  }).optional(),
  runs: section({
    crash_policy: oneOf(['resume', 'error']).optional(),
    max_active: count('runs at once', 1, 100_000).optional(),
    timeout: seconds(1, 604_800).nullish(),
    drain_timeout: seconds(0, 3600).optional(),
  }).optional(),
});

export type ConfigFile = z.output<typeof configSchema>;
export type ModelEntry = z.output<typeof modelSchema>;

/** Sections of the reference that this version reads over: known, so no spelling mistake, and without effect yet. */
export const SECTIONS_WITHOUT_EFFECT: readonly string[] = [
  'logging',
  'token_budget',
  'tool_search',
  'tool_output',
  'suggestions',
  'input_polish',
  'loop_detection',
  'tool_progress',
  'read_before_write',
  'safety_finish_reason',
  'acp_agents',
  'skills',
  'skill_scan',
  'skill_evolution',
  'summarization',
  'memory',
  'agents_api',
  'agent_storage',
  'checkpointer',
  'run_events',
  'scheduler',
  'mcp_tasks',
  'dedupe_storage',
  'channel_connections',
  'channels',
  'guardrails',
  'authorization',
  'circuit_breaker',
  'llm_call',
  'auth',
  'extensions',
  'plugins',
];

/** Keys inside sections that the reference knows and that have no effect yet. */
export const KEYS_WITHOUT_EFFECT: Readonly<Record<string, readonly string[]>> = {
  sandbox: ['thread_data_mounts', 'provisioner_url', 'provisioner_api_key', 'auto_start'],
  uploads: ['auto_convert_documents', 'pdf_converter'],
  database: ['echo_sql', 'pool_recycle'],
  title: ['prompt_template'],
};
    max_queued: count('waiting runs per thread', 0, 1000).optional(),
