import type { StructuredToolInterface } from '@langchain/core/tools';
import { ReindeerError, type Sandbox } from '@reindeer/protocol';
import { z } from 'zod';
import { defineTool } from './define.ts';
import { ThreadCalls } from './thread-calls.ts';

/** What a tool of the operator's own gets beside its arguments; the model neither sees nor sends any of it. */
export interface OwnToolContext {
  readonly userId: string;
  readonly threadId: string;
  readonly runId: string;
  readonly callId: string;
  /** Fires when the run is cancelled. Absent in a thread. */
  readonly signal?: AbortSignal | undefined;
  /** The thread's sandbox, acquired at first use. Absent in a thread. */
  readonly sandbox?: () => Promise<Sandbox>;
}

/** A tool without any library: what a module of the operator's own exports, or its function answers. */
export interface OwnTool {
  readonly description: string;
  /** JSON Schema of an object. */
  readonly parameters: Readonly<Record<string, unknown>>;
  /** Only reads: after a crash it may run again. Default no. */
  readonly repeatable?: boolean;
  /** Runs in a thread of its own: for work that takes the processor. It then gets no `signal` and no `sandbox`. Default no. */
  readonly thread?: boolean;
  /** Answers text, or a value that the model gets as JSON; at once or later. */
  run(args: Record<string, unknown>, context: OwnToolContext): unknown;
}

export interface OwnToolOptions {
  /** Name that the model calls. */
  readonly name: string;
  /** Where it came from, for a thread: URL of the module, its export, and what its function is called with. */
  readonly source: { readonly url: string; readonly name: string; readonly options: Readonly<Record<string, unknown>> };
  /** Values that may not appear in a result. */
  readonly secrets: readonly string[];
  /** Milliseconds that a call may take. */
  readonly timeoutMs: number;
}

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** Tools of LangChain; by what they can do, since the module may bring its own copy of the library. */
const isLangChainTool = (made: unknown): made is StructuredToolInterface =>
  isRecord(made) && typeof made.name === 'string' && typeof made.invoke === 'function' && made.schema !== undefined;

/** @throws ReindeerError `configuration` that says what is missing */
export function ownTool(made: unknown, options: OwnToolOptions): StructuredToolInterface {
  if (isLangChainTool(made)) return made;
  const { name, source, secrets, timeoutMs } = options;
  const tool = checkedTool(made, name);
  const threads = tool.thread === true ? new ThreadCalls(source) : null;
  return defineTool({
    name,
    description: tool.description,
    schema: schemaOf(tool, name),
    repeatable: tool.repeatable === true,
    secrets,
    async run(args, { scope, callId, signal, sandbox }) {
      const { userId, threadId, runId } = scope.attempt.run;
      const context: OwnToolContext = { userId, threadId, runId, callId };
      const over = AbortSignal.timeout(timeoutMs);
      const until = signal === undefined ? over : AbortSignal.any([signal, over]);
      const answer =
        threads === null
          ? await withinSignal(async () => await tool.run(args, { ...context, signal: until, sandbox }), until)
          : await threads.call(args, context, until);
      return textOf(answer);
    },
  });
}

/** Ends the wait, not the work: what does not look at its signal goes on, and nobody waits for it. */
async function withinSignal<T>(work: () => Promise<T>, signal: AbortSignal): Promise<T> {
  const over = Promise.withResolvers<never>();
  const onAbort = (): void => over.reject(signal.reason);
  signal.throwIfAborted();
  signal.addEventListener('abort', onAbort, { once: true });
  over.promise.catch(() => {});
  try {
    return await Promise.race([work(), over.promise]);
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}

const textOf = (answer: unknown): string =>
  typeof answer === 'string' ? answer : answer === undefined ? 'Done.' : (JSON.stringify(answer) ?? String(answer));

/** As the harness checks arguments: a mistake of the model reaches it as one plain sentence. */
function schemaOf({ parameters }: OwnTool, name: string): z.ZodObject {
  let schema: unknown;
  let reason = 'it is no object';
  try {
    schema = z.fromJSONSchema({ additionalProperties: false, properties: {}, ...parameters } as never);
  } catch (cause) {
    reason = String((cause as Error).message).slice(0, 200);
  }
  if (schema instanceof z.ZodObject) return schema;
  throw new ReindeerError('configuration', `tools: ${name}: parameters cannot be used: ${reason}.`);
}

function checkedTool(made: unknown, name: string): OwnTool {
  const wrong = (what: string): never => {
    throw new ReindeerError(
      'configuration',
      `tools: ${name}: ${what}. Export {description, parameters, run(args, context)}, a tool of LangChain, or a function that answers one of them.`,
    );
  };
  if (!isRecord(made)) return wrong('it is no tool');
  const { description, parameters, run } = made;
  if (typeof description !== 'string' || description.trim() === '') return wrong('description must say what it does');
  if (!isRecord(parameters) || parameters.type !== 'object')
    return wrong('parameters must be the JSON Schema of an object');
  if (typeof run !== 'function') return wrong('run must be a function');
  return made as unknown as OwnTool;
}
