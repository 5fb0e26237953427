import type { StructuredToolInterface } from '@langchain/core/tools';
import { type InteropZodType, interopSafeParse, isInteropZodSchema } from '@langchain/core/utils/types';
import { ReindeerError } from '@reindeer/protocol';

const MAX_ISSUES = 5;

/**
 * Checks the arguments of a call before the tool sees them, so that a mistake reaches the model as one plain sentence
 * and not as LangChain's error with a stack trace and host paths. Throws `validation_failed`. Schemas other than zod's are left
 * to the tool itself.
 *
 * @returns the arguments as the schema reads them, defaults filled in
 */
export function checkedArguments(
  tool: StructuredToolInterface,
  args: Record<string, unknown>,
): Record<string, unknown> {
  const schema: unknown = tool.schema;
  if (!isInteropZodSchema(schema)) return args;
  const parsed = interopSafeParse(schema as InteropZodType, args);
  if (parsed.success) return parsed.data as Record<string, unknown>;
  const { issues } = parsed.error as { issues: readonly { path: readonly PropertyKey[]; message: string }[] };
  const text = issues
    .slice(0, MAX_ISSUES)
    .map((issue) => `${issue.path.length === 0 ? 'arguments' : issue.path.map(String).join('.')}: ${issue.message}`)
    .join('; ');
  throw new ReindeerError('validation_failed', `Invalid arguments for ${tool.name}: ${text}`);
}
