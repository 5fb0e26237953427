import { z } from '@hono/zod-openapi';
import { isAgentName, MAX_SECRET, ROLE_KEY } from '@reindeer/agent';
import {
  type CrashPolicy,
  type DisconnectMode,
  isId,
  type Json,
  type JsonObject,
  type MultitaskStrategy,
  ReindeerError,
  type RunRequest,
} from '@reindeer/protocol';
import { didYouMean } from '../nearest.ts';
import { invalid, MAX_PROBLEMS, type Problem } from './errors.ts';
import { findSecret, redactSecrets } from './redact.ts';

const object = z.record(z.string(), z.unknown());
const names = z.union([z.literal('*'), z.array(z.string().max(200)).max(200)]);
const id = z.string().regex(/^[A-Za-z0-9_-]{1,64}$/, 'must be 1 to 64 letters, digits, "_" or "-"');

/** What LangGraph's SDK may send when it creates a run. null means absent everywhere: the SDK serialises defaults. */
export const runBody = z
  .strictObject({
    assistant_id: z.string().min(1).max(200).nullish(),
    input: z.unknown().optional(),
    command: object.nullish(),
    metadata: object.nullish(),
    config: object.nullish(),
    context: object.nullish(),
    checkpoint: object.nullish(),
    checkpoint_id: z.string().max(200).nullish(),
    interrupt_before: names.nullish(),
    interrupt_after: names.nullish(),
    stream_mode: z.union([z.string(), z.array(z.string()).max(20)]).nullish(),
    stream_subgraphs: z.boolean().nullish(),
    stream_resumable: z.boolean().nullish(),
    on_disconnect: z.enum(['cancel', 'continue']).nullish(),
    multitask_strategy: z.enum(['reject', 'interrupt', 'rollback', 'enqueue']).nullish(),
    if_not_exists: z.enum(['create', 'reject']).nullish(),
    durability: z.enum(['sync', 'async', 'exit']).nullish(),
    checkpoint_during: z.boolean().nullish(),
    crash_policy: z.enum(['resume', 'error']).nullish(),
    on_completion: z.unknown().optional(),
    webhook: z.unknown().optional(),
    after_seconds: z.unknown().optional(),
    feedback_keys: z.unknown().optional(),
    strict_resume: z.unknown().optional(),
    langsmith_tracer: z.unknown().optional(),
  })
  .openapi('RunCreate');
export type RunBody = z.output<typeof runBody>;

/** Everything about a run that its creation request decides, apart from thread and assistant. */
export interface RunPlan {
  readonly request: RunRequest;
  readonly metadata: JsonObject;
  readonly multitaskStrategy: MultitaskStrategy;
  readonly onDisconnect: DisconnectMode;
  readonly crashPolicy: CrashPolicy | null;
  /** For secrets that skills declare (SK-8): handed to the run, and part of nothing that is stored or shown. */
  readonly secrets: Readonly<Record<string, string>>;
  /** null = leave it to the route. */
  readonly ifNotExists: 'create' | 'reject' | null;
}

export interface RunLimits {
  readonly defaultRecursionLimit: number;
  readonly maxRecursionLimit: number;
  /** Names of the configured models. */
  readonly models: readonly string[];
}

/** Who asks for a run, as the server knows it. */
export interface RunCaller {
  /** A trusted program: it may say which channel the words came from, and that nobody is there to answer. */
  readonly internal: boolean;
  /** null = no role is known. */
  readonly role: string | null;
}

const STREAM_MODES = [
  'values',
  'messages-tuple',
  'messages',
  'updates',
  'debug',
  'tasks',
  'checkpoints',
  'custom',
] as const;
const CONTEXT_KEYS = [
  'model_name',
  'mode',
  'thinking_enabled',
  'reasoning_effort',
  'is_plan_mode',
  'subagent_enabled',
  'max_concurrent_subagents',
  'max_total_subagents',
  'agent_name',
  'is_bootstrap',
  // Asks a person before these tools, on top of what the operator demands: it can only make a run more careful.
  'interrupt_on',
] as const;
/** Only for trusted programs (AG-1). */
const INTERNAL_KEYS = ['non_interactive', 'channel_name', 'channel_user_id'] as const;
const NULL_COUNTS: readonly string[] = ['thinking_enabled', 'reasoning_effort'];
/** Identity comes from the server alone (SEC-06): these are taken out, whoever sends them. */
const SERVER_KEYS =
  /^(?:thread_id|user_id|user_role|scheduled|owner_id|is_internal|run_id|oauth_.*|__.*|checkpoint_(?:id|ns|map)|langgraph_.*)$/;

/**
 * Checks a run request whole and turns it into what the runtime takes. Throws the 422 (`validation_failed`, `unsupported_option`)
 * or 400 (`bad_request`) that names each field.
 *
 * @param threadId the thread of the route, null when a stateless run makes its own
 * @param attached does the creator read the stream of the run? Only then is `cancel` the default on a disconnect
 */
export function planRun(
  body: RunBody,
  threadId: string | null,
  attached: boolean,
  limits: RunLimits,
  caller: RunCaller = { internal: false, role: null },
): RunPlan {
  refuseUnsupported(body);
  const streamModes = streamModesOf(body.stream_mode);
  const input = (body.input ?? null) as Json;
  const command = commandOf(body, input);
  checkMessages(input);
  const metadata = metadataOf(body.metadata);
  const config = configOf(body.config, threadId, limits);
  const { secrets: given, ...options } = {
    ...givenSecrets(body.config?.configurable),
    ...configurableContext(config),
    ...contextInConfig(body.config),
    ...(body.context as JsonObject | null),
  };
  const context = {
    ...contextOf(options, limits, caller),
    ...(caller.role === null ? {} : { [ROLE_KEY]: caller.role }),
  };
  return {
    request: {
      input,
      command,
      config,
      context,
      streamModes,
      streamSubgraphs: body.stream_subgraphs ?? false,
      checkpointId: checkpointIdOf(body, threadId),
      interruptBefore: body.interrupt_before ?? [],
      interruptAfter: body.interrupt_after ?? [],
    },
    metadata,
    multitaskStrategy: body.multitask_strategy ?? 'reject',
    onDisconnect: body.on_disconnect ?? (attached && body.stream_resumable !== true ? 'cancel' : 'continue'),
    crashPolicy: body.crash_policy ?? null,
    secrets: secretsOf(given),
    ifNotExists: body.if_not_exists ?? null,
  };
}

function refuseUnsupported(body: RunBody): void {
  const problems: Problem[] = [];
  const refuse = (field: string, msg: string) =>
    problems.push({ loc: ['body', field], msg, type: 'unsupported_run_option' });
  if (body.webhook != null) refuse('webhook', 'Webhooks are not supported. Poll the run or join its stream instead.');
  if (body.after_seconds != null)
    refuse('after_seconds', 'Delayed runs are not supported yet. Create the run when it is due.');
  if (Array.isArray(body.feedback_keys) ? body.feedback_keys.length > 0 : body.feedback_keys != null)
    refuse('feedback_keys', 'Feedback keys are not supported. Leave the field out.');
  if (body.strict_resume != null && body.strict_resume !== false)
    refuse('strict_resume', 'Strict resume is not supported yet. Leave the field out.');
  if (body.langsmith_tracer != null)
    refuse('langsmith_tracer', 'Client-side tracers are not supported. Leave the field out.');
  if (body.on_completion != null && body.on_completion !== 'keep')
    refuse('on_completion', 'Threads are always kept. Use "keep", or delete the thread afterwards.');
  if (problems.length > 0) throw invalid(problems, 'unsupported_option');
}

/** Checks mode names; null or empty = `values`. */
export function streamModesOf(mode: string | readonly string[] | null | undefined): readonly string[] {
  const modes = mode == null ? [] : typeof mode === 'string' ? [mode] : [...new Set(mode)];
  const problems = modes
    .filter((name) => !(STREAM_MODES as readonly string[]).includes(name))
    .map((name) => ({
      loc: ['body', 'stream_mode'],
      msg: `The mode "${name.slice(0, 80)}" is not supported.${didYouMean(name, STREAM_MODES)} Supported: ${STREAM_MODES.join(', ')}.`,
      type: 'unsupported_stream_mode',
    }));
  if (problems.length > 0) throw invalid(problems, 'unsupported_option');
  return modes.length === 0 ? ['values'] : modes;
}

function commandOf(body: RunBody, input: Json): JsonObject | null {
  if (body.command == null) return null;
  const known = ['resume', 'goto', 'update'];
  const problems: Problem[] = Object.keys(body.command)
    .filter((key) => !known.includes(key))
    .slice(0, MAX_PROBLEMS)
    .map((key) => ({
      loc: ['body', 'command', key.slice(0, 80)],
      msg: `Unknown field "${key.slice(0, 80)}".${didYouMean(key, known)}`,
      type: 'unknown_field',
    }));
  if (input !== null)
    problems.push({ loc: ['body', 'input'], msg: 'A run takes input or command, not both.', type: 'exclusive' });
  if (problems.length > 0) throw invalid(problems);
  const command = Object.fromEntries(
    Object.entries(body.command).filter(([key, value]) => value !== undefined && (key === 'resume' || value !== null)),
  );
  return Object.keys(command).length === 0 ? null : (command as JsonObject);
}

const ROLES = new Set(['human', 'user', 'ai', 'assistant', 'system', 'developer', 'tool', 'remove', 'function']);

/** Refuses malformed messages with the index of each (400), before anything of the run exists. */
export function checkMessages(input: Json): void {
  if (input === null) return;
  if (typeof input !== 'object' || Array.isArray(input))
    throw invalid([
      { loc: ['body', 'input'], msg: 'must be an object such as {"messages": [...]}', type: 'invalid_type' },
    ]);
  const { messages } = input as JsonObject;
  if (messages === undefined || messages === null) return;
  if (!Array.isArray(messages)) {
    if (typeof messages === 'string' || typeof messages === 'object') {
      checkMessages({ messages: [messages] });
      return;
    }
    throw invalid([{ loc: ['body', 'input', 'messages'], msg: 'must be a list of messages', type: 'invalid_type' }]);
  }
  const problems: Problem[] = [];
  messages.forEach((message: Json, index) => {
    const msg = messageProblem(message);
    if (msg !== null)
      problems.push({
        loc: ['body', 'input', 'messages', index],
        msg: `Message ${index} ${msg}`,
        type: 'invalid_message',
      });
  });
  if (problems.length > 0) throw invalid(problems.slice(0, MAX_PROBLEMS), 'bad_request');
}

function messageProblem(message: Json): string | null {
  if (typeof message === 'string') return null;
  if (Array.isArray(message))
    return message.length === 2 && typeof message[0] === 'string' && ROLES.has(message[0])
      ? null
      : 'must be [role, content].';
  if (message === null || typeof message !== 'object')
    return 'must be an object with "type" (or "role") and "content".';
  const fields = message as JsonObject;
  const role = fields.type ?? fields.role;
  if (typeof role !== 'string') return 'has no "type" (or "role"). Use human, ai, system or tool.';
  if (fields.type === 'constructor' || fields.lc !== undefined)
    return 'is a serialized class. Send a plain {"type": "human", "content": "…"} instead.';
  if (!ROLES.has(role)) return `has the unknown type "${role.slice(0, 40)}". Use human, ai, system or tool.`;
  if (role === 'remove') return typeof fields.id === 'string' ? null : 'removes a message and needs its "id".';
  const { content } = fields;
  if (content === undefined || content === null)
    return role === 'ai' || role === 'assistant' ? null : 'has no "content".';
  if (typeof content !== 'string' && !Array.isArray(content)) return 'must have text or a list of blocks as "content".';
  if (role === 'tool' && typeof fields.tool_call_id !== 'string')
    return 'is a tool result and needs its "tool_call_id".';
  return null;
}

/** Metadata without the server's keys; secrets have no place in it. */
export function metadataOf(metadata: Readonly<Record<string, unknown>> | null | undefined): JsonObject {
  const result = Object.fromEntries(
    Object.entries(metadata ?? {}).filter(([key]) => key !== 'owner_id' && key !== 'user_id'),
  ) as JsonObject;
  const secret = findSecret(result);
  if (secret !== null)
    throw invalid([
      {
        loc: ['body', 'metadata', ...secret],
        msg: 'looks like a secret. Metadata is shown to every reader of the thread; keep secrets in the server’s environment.',
        type: 'secret_in_metadata',
      },
    ]);
  return result;
}

function configOf(config: RunBody['config'], threadId: string | null, limits: RunLimits): JsonObject {
  const given = (config ?? {}) as JsonObject;
  const limit = given.recursion_limit;
  if (limit != null && (typeof limit !== 'number' || !Number.isInteger(limit) || limit < 1))
    throw invalid([
      { loc: ['body', 'config', 'recursion_limit'], msg: 'must be a whole number from 1.', type: 'invalid_type' },
    ]);
  const configurable = given.configurable ?? {};
  if (typeof configurable !== 'object' || Array.isArray(configurable))
    throw invalid([{ loc: ['body', 'config', 'configurable'], msg: 'must be an object', type: 'invalid_type' }]);
  const other = (configurable as JsonObject).thread_id;
  if (other != null && !isId(other))
    throw invalid([
      {
        loc: ['body', 'config', 'configurable', 'thread_id'],
        msg: 'must be 1 to 64 letters, digits, "_" or "-"',
        type: 'invalid_id',
      },
    ]);
  if (other != null && threadId !== null && other !== threadId)
    throw invalid([
      {
        loc: ['body', 'config', 'configurable', 'thread_id'],
        msg: 'names another thread than the address.',
        type: 'mismatch',
      },
    ]);
  const kept = Object.fromEntries(
    Object.entries(configurable as JsonObject).filter(
      ([key]) => key !== 'secrets' && !(INTERNAL_KEYS as readonly string[]).includes(key) && !SERVER_KEYS.test(key),
    ),
  );
  return redactSecrets({
    recursion_limit: Math.min(
      (limit as number | null | undefined) ?? limits.defaultRecursionLimit,
      limits.maxRecursionLimit,
    ),
    ...(Array.isArray(given.tags) ? { tags: given.tags.filter((tag: Json) => typeof tag === 'string') } : {}),
    ...(Object.keys(kept).length === 0 ? {} : { configurable: kept }),
  } as JsonObject);
}

/** Older clients put run options into `config.configurable`; the ones we know count as context. */
function configurableContext(config: JsonObject): JsonObject {
  const configurable = (config.configurable ?? {}) as JsonObject;
  return Object.fromEntries(
    CONTEXT_KEYS.filter(
      (key) => configurable[key] != null || (configurable[key] === null && NULL_COUNTS.includes(key)),
    ).map((key) => [key, configurable[key]]),
  );
}

function contextInConfig(config: RunBody['config']): JsonObject {
  const context = (config as JsonObject | null | undefined)?.context;
  return typeof context === 'object' && context !== null && !Array.isArray(context) ? (context as JsonObject) : {};
}

/** Run options as a client may give them. @throws ReindeerError that names the field */
export function contextOf(given: JsonObject, limits: RunLimits, caller: RunCaller): JsonObject {
  const allowed: readonly string[] = caller.internal ? [...CONTEXT_KEYS, ...INTERNAL_KEYS] : CONTEXT_KEYS;
  const problems: Problem[] = [];
  const context: Record<string, Json> = {};
  for (const [key, value] of Object.entries(given)) {
    if (value === undefined || SERVER_KEYS.test(key)) continue;
    // These two say with null that an agent's profile does not count (AG-1); everywhere else it is as if nothing was said.
    if (value === null && !NULL_COUNTS.includes(key)) continue;
    if (allowed.includes(key)) context[key] = value;
    else if (problems.length < MAX_PROBLEMS)
      problems.push({
        loc: ['body', 'context', key.slice(0, 80)],
        msg: `Unknown field "${key.slice(0, 80)}".${didYouMean(key, allowed) || ` Known fields: ${allowed.join(', ')}.`}`,
        type: 'unknown_field',
      });
  }
  if (problems.length > 0) throw invalid(problems);
  const asked = context.interrupt_on;
  if (asked !== undefined && !isToolSelection(asked))
    throw invalid([
      {
        loc: ['body', 'context', 'interrupt_on'],
        msg: 'Must be a list of tool names, or an object of tool name to true; "*" stands for every tool.',
        type: 'invalid_value',
      },
    ]);
  for (const key of ['channel_name', 'channel_user_id'])
    if (context[key] !== undefined && (typeof context[key] !== 'string' || context[key].length > 200))
      throw invalid([{ loc: ['body', 'context', key], msg: 'Must be a text.', type: 'invalid_value' }]);
  const agent = context.agent_name;
  if (agent !== undefined && (typeof agent !== 'string' || !isAgentName(agent)))
    throw invalid([
      {
        loc: ['body', 'context', 'agent_name'],
        msg: 'Must be the name of an agent: letters, digits and "-".',
        type: 'invalid_value',
      },
    ]);
  const model = context.model_name;
  if (model !== undefined && (typeof model !== 'string' || !limits.models.includes(model)))
    throw new ReindeerError(
      'bad_request',
      `There is no model "${String(model).slice(0, 80)}".${didYouMean(String(model), limits.models)} Configured: ${limits.models.join(', ') || 'none'}.`,
    );
  return context;
}

/** Older clients put them there; the configuration itself is stored without them. */
const givenSecrets = (configurable: unknown): JsonObject => {
  const { secrets } = (configurable ?? {}) as { readonly secrets?: Json };
  return secrets === undefined ? {} : { secrets };
};

const MAX_SECRETS = 50;
const VARIABLE = /^[A-Za-z_][A-Za-z0-9_]{0,127}$/;

/** Checks what came as `context.secrets`. What it says of a mistake never holds a value. */
function secretsOf(given: Json | undefined): Readonly<Record<string, string>> {
  if (given === undefined || given === null) return {};
  const wrong = (path: readonly string[], msg: string): ReindeerError =>
    invalid([{ loc: ['body', 'context', 'secrets', ...path], msg, type: 'invalid_secret' }]);
  if (typeof given !== 'object' || Array.isArray(given))
    throw wrong([], 'Must be an object of names and texts, such as {"API_KEY": "…"}.');
  const entries = Object.entries(given as JsonObject);
  if (entries.length > MAX_SECRETS) throw wrong([], `More than ${MAX_SECRETS} secrets.`);
  return Object.fromEntries(
    entries.map(([name, value]) => {
      const shown = name.slice(0, 80);
      if (!VARIABLE.test(name))
        throw wrong([shown], 'Is no name of an environment variable: use letters, digits and _.');
      if (typeof value !== 'string' || value.includes('\0') || Buffer.byteLength(value) > MAX_SECRET)
        throw wrong([shown], `Must be a text without NUL, of at most ${MAX_SECRET} bytes.`);
      return [name, value];
    }),
  );
}

function isToolSelection(value: Json): boolean {
  if (Array.isArray(value)) return value.every((name) => typeof name === 'string');
  return typeof value === 'object' && value !== null && Object.values(value).every((on) => typeof on === 'boolean');
}

/** Id in `checkpoint_id` or `checkpoint.checkpoint_id`; whether it exists is asked of the thread. */
export function checkpointIdOf(
  body: {
    readonly checkpoint_id?: string | null | undefined;
    readonly checkpoint?: Readonly<Record<string, unknown>> | null | undefined;
  },
  threadId: string | null,
): string | null {
  const { checkpoint } = body;
  if (checkpoint != null) {
    if (checkpoint.thread_id != null && threadId !== null && checkpoint.thread_id !== threadId)
      throw new ReindeerError(
        'not_found',
        'The checkpoint belongs to another thread. Use a checkpoint of this thread.',
      );
    if (checkpoint.checkpoint_ns != null && checkpoint.checkpoint_ns !== '')
      throw invalid(
        [
          {
            loc: ['body', 'checkpoint', 'checkpoint_ns'],
            msg: 'Only checkpoints of the root graph can be used. Leave it empty.',
            type: 'unsupported_run_option',
          },
        ],
        'unsupported_option',
      );
    if (typeof checkpoint.checkpoint_id === 'string' && checkpoint.checkpoint_id !== '')
      return checkpoint.checkpoint_id;
  }
  return body.checkpoint_id == null || body.checkpoint_id === '' ? null : body.checkpoint_id;
}

export const threadParams = z.object({ thread_id: id });
export const runParams = z.object({ thread_id: id, run_id: id });
export const idSchema = id;
