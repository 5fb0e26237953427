import type { StructuredToolInterface } from '@langchain/core/tools';
import { z } from 'zod';
import { defineTool } from './define.ts';

export const CLARIFICATION_TOOL = 'ask_clarification';
export const CLARIFICATION_TYPES = [
  'missing_info',
  'ambiguous_requirement',
  'approach_choice',
  'risk_confirmation',
  'suggestion',
] as const;

/**
 * Asks the user (TOOL-5). The middleware ends the turn instead of running it; this body answers only where that middleware
 * is missing. Options and fields are loose on purpose: models send them in many shapes, and a wrong shape falls back to text.
 */
export function askClarificationTool(): StructuredToolInterface {
  return defineTool({
    name: CLARIFICATION_TOOL,
    description:
      'Asks the user a question and ends your turn until the answer comes. Use it before you start when something necessary is missing or ambiguous, when there are several sensible ways, or before something risky.',
    schema: z.object({
      question: z.string().describe('One clear question.'),
      clarification_type: z.enum(CLARIFICATION_TYPES).describe('Why you ask.'),
      context: z.string().optional().describe('What the user should know to answer.'),
      options: z.unknown().optional().describe('Answers to choose from: a list of short texts.'),
      fields: z
        .unknown()
        .optional()
        .describe(
          'A form instead of options: a list of {name, label, type, required, options, placeholder}; type is text, textarea, number, select, multi_select, checkbox or date.',
        ),
    }),
    repeatable: true,
    run: async () => 'The user cannot be asked now. Go on with your best judgement and say what you assumed.',
  });
}
