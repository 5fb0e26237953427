import { ReindeerError } from '@reindeer/protocol';
import { DURABLE_CONTEXT } from '../context/durable-context.ts';
import { DYNAMIC_CONTEXT } from '../context/dynamic-context.ts';
import { SUMMARIZATION } from '../context/summarization.ts';
import { GOAL } from '../goals/goal-middleware.ts';
import type { Middleware } from '../loop/middleware.ts';
import { APPROVAL } from './approval.ts';
import { BASH_AUDIT } from './bash-audit.ts';
import { CLARIFICATION } from './clarification.ts';
import { COALESCING } from './coalescing.ts';
import { DELIVERY } from './delivery.ts';
import { SAFETY_FINISH } from './finish-reason.ts';
import { GUARDRAIL } from './guardrail.ts';
import { INPUT_SANITIZING } from './input-sanitizing.ts';
import { LLM_ERRORS } from './llm-errors.ts';
import { LOOP_DETECTION } from './loop-detection.ts';
import { MEMORY_CAPTURE } from './memory-capture.ts';
import { READ_BEFORE_WRITE } from './read-before-write.ts';
import { SANDBOX } from './sandbox.ts';
import { SECRET_SCRUB } from './secret-scrub.ts';
import { SKILL_GUARD } from './skill-guard.ts';
import { TERMINAL_RESPONSE } from './terminal-response.ts';
import { THREAD_DATA } from './thread-data.ts';
import { TITLE } from './title.ts';
import { TODOS } from './todos.ts';
import { TOKEN_BUDGET } from './token-budget.ts';
import { TOOL_ERRORS } from './tool-errors.ts';
import { TOOL_OUTPUT } from './tool-output.ts';
import { TOOL_RESULT_SANITIZING } from './tool-result-sanitizing.ts';
import { UPLOADS } from './uploads.ts';

/** Names that other parts of the agent give to middleware of theirs. */
const TOOL_PROGRESS = 'tool-progress';
export const AUTHORIZATION = 'authorization';
export const AGENT_TOOLS = 'agent-tools';
export const SKILL_ACTIVATION = 'skill-activation';
export const SKILL_POLICY = 'skill-policy';
const MCP_ROUTING = 'mcp-routing';
export const DEFERRED_TOOLS = 'deferred-tools';

/** Why one middleware must stand before another; `*` stands for every other one, on either side. First = outermost. */
export interface OrderRule {
  readonly before: string;
  readonly after: string;
  readonly reason: string;
}

/** The order of the list as data (MW-38). A rule counts only when both of its middlewares are in the list. */
export const ORDER_RULES: readonly OrderRule[] = [
  {
    before: INPUT_SANITIZING,
    after: '*',
    reason: 'what a person wrote is made safe before any other text of the request is written',
  },
  { before: TOOL_OUTPUT, after: TOOL_ERRORS, reason: 'the last word on the length of a result is the budget’s' },
  { before: TOOL_OUTPUT, after: SANDBOX, reason: 'the last word on the length of a result is the budget’s' },
  {
    before: TOOL_OUTPUT,
    after: TOOL_RESULT_SANITIZING,
    reason: 'a long result is saved as the model may read it, with foreign tags made harmless',
  },
  { before: TOOL_OUTPUT, after: SECRET_SCRUB, reason: 'a long result is saved without the secrets of skills' },
  { before: SECRET_SCRUB, after: TOOL_ERRORS, reason: 'the text of a failure may show a secret too' },
  { before: TOOL_ERRORS, after: SKILL_GUARD, reason: 'a verdict on a skill that throws must not end the run' },
  { before: THREAD_DATA, after: UPLOADS, reason: 'uploads are looked up in the thread’s folders' },
  { before: THREAD_DATA, after: SANDBOX, reason: 'a sandbox mounts the thread’s folders' },
  { before: SANDBOX, after: TOOL_ERRORS, reason: 'a failed tool that used the sandbox must still note it' },
  {
    before: UPLOADS,
    after: DYNAMIC_CONTEXT,
    reason: 'files are listed with the user’s newest message, before notes stand around it',
  },
  {
    before: DURABLE_CONTEXT,
    after: SUMMARIZATION,
    reason: 'what a compaction leaves must be in the request that follows it',
  },
  {
    before: LLM_ERRORS,
    after: SUMMARIZATION,
    reason: 'a conversation that is too long is shortened and tried again before that is a failure',
  },
  {
    before: LLM_ERRORS,
    after: 'modelFallbackMiddleware',
    reason: 'a model’s failure is final only after its fallbacks failed',
  },
  {
    before: LLM_ERRORS,
    after: 'modelRetryMiddleware',
    reason: 'a failure is turned into a message only when no retry is left',
  },
  {
    before: TOOL_ERRORS,
    after: 'toolRetryMiddleware',
    reason: 'a failure is turned into a message only when no retry is left',
  },
  { before: TOOL_PROGRESS, after: TOOL_ERRORS, reason: 'stagnation is read from what the error handling stamps' },
  { before: TOOL_ERRORS, after: GUARDRAIL, reason: 'a policy that throws must not end the run' },
  { before: GUARDRAIL, after: BASH_AUDIT, reason: 'what a policy refuses is not even looked at' },
  { before: BASH_AUDIT, after: READ_BEFORE_WRITE, reason: 'what the audit refuses uses no reading up' },
  { before: AUTHORIZATION, after: AGENT_TOOLS, reason: 'an agent chooses among the tools that its user may use' },
  { before: AUTHORIZATION, after: DEFERRED_TOOLS, reason: 'what the user may not use is not looked for' },
  { before: AUTHORIZATION, after: GUARDRAIL, reason: 'no policy is asked about what the user may not do at all' },
  { before: AGENT_TOOLS, after: SKILL_POLICY, reason: 'a skill chooses among the tools that the agent has' },
  { before: AGENT_TOOLS, after: DEFERRED_TOOLS, reason: 'what the agent may not call is not looked for' },
  { before: SKILL_ACTIVATION, after: SKILL_POLICY, reason: 'a policy is that of the active skills' },
  {
    before: SKILL_POLICY,
    after: DURABLE_CONTEXT,
    reason: 'active skills are known before notes about them are written',
  },
  { before: MCP_ROUTING, after: DEFERRED_TOOLS, reason: 'what routing promotes is not hidden' },
  {
    before: APPROVAL,
    after: TITLE,
    reason: 'a person is asked last, about the calls as all other hooks left them',
  },
  {
    before: SANDBOX,
    after: GOAL,
    reason: 'a goal that goes on keeps the sandbox of the run',
  },
  {
    before: MEMORY_CAPTURE,
    after: GOAL,
    reason: 'a conversation is noted when its turn has ended',
  },
  {
    before: TITLE,
    after: GOAL,
    reason: 'the turn ends only when the goal lets it',
  },
  { before: LOOP_DETECTION, after: SAFETY_FINISH, reason: 'safety must see the answer as the model gave it' },
  { before: TERMINAL_RESPONSE, after: SAFETY_FINISH, reason: 'a filtered answer is explained, not asked for again' },
  { before: DELIVERY, after: TODOS, reason: 'files are asked for when the plan is done' },
  { before: DELIVERY, after: TERMINAL_RESPONSE, reason: 'an empty answer is no end that could be asked about' },
  { before: TODOS, after: LOOP_DETECTION, reason: 'a turn that was stopped is not reminded of its plan' },
  { before: TODOS, after: TOKEN_BUDGET, reason: 'a turn that was stopped is not reminded of its plan' },
  ...[DYNAMIC_CONTEXT, DURABLE_CONTEXT, SUMMARIZATION, UPLOADS, TODOS, SKILL_ACTIVATION, TERMINAL_RESPONSE].map(
    (before) => ({ before, after: COALESCING, reason: 'system messages are joined after the last one was added' }),
  ),
  {
    before: '*',
    after: CLARIFICATION,
    reason: 'a question to the user ends the turn and must see the call as all others left it',
  },
];

/** Checks a list against the rules. Throws `configuration`, naming both middlewares and the reason, at the first that is broken. */
export function checkOrder(middleware: readonly Middleware[], rules: readonly OrderRule[] = ORDER_RULES): void {
  const position = new Map(middleware.map((item, index) => [item.name, index]));
  for (const { before, after, reason } of rules) {
    if (after === '*') {
      const place = position.get(before) ?? 0;
      const first = middleware[0]?.name;
      if (place > 0 && first !== undefined) throw broken(before, first, reason);
      continue;
    }
    const second = position.get(after);
    if (second === undefined) continue;
    const wrong =
      before === '*'
        ? middleware.findLast((_, index) => index > second)?.name
        : (position.get(before) ?? -1) > second
          ? before
          : undefined;
    if (wrong !== undefined) throw broken(wrong, after, reason);
  }
}

const broken = (before: string, after: string, reason: string): ReindeerError =>
  new ReindeerError('configuration', `Middleware "${before}" must stand before "${after}": ${reason}.`, {
    detail: { before, after },
  });
