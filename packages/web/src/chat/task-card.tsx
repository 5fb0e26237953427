import { lazy, Suspense, useState } from 'react';
import { CodeBlock } from '../parts/code-block.tsx';
import { Icon } from '../parts/icons.tsx';
import { usePage } from '../parts/page-context.tsx';
import { SafePart } from '../parts/safe-part.tsx';
import { useWork, WorkTrouble } from '../parts/use-work.tsx';
import { toolTitle } from '../words/tools.ts';
import { isWordKey, whole } from '../words/words.ts';
import { useChat, useChatState } from './chat-context.tsx';
import { readSteps, type Task, type TaskStep } from './tasks.ts';
import type { CallView } from './turns.ts';
import { textOr } from './wire.ts';

const Markdown = lazy(() => import('../markdown/markdown.tsx'));
const SHOWN = 4_000;

/** A sub-agent at work: what it was told, what it does now, what it did, and what it cost. */
export function TaskCard({ view, messageId }: { readonly view: CallView; readonly messageId: string }) {
  const { say, language, openFile } = usePage();
  const { rest, controller, facts } = useChat();
  const live = useChatState((state) => (view.call.id === null ? undefined : state.tasks.get(view.call.id)));
  const [kept, setKept] = useState<readonly TaskStep[]>([]);
  const work = useWork();
  const { call, result } = view;
  const outcome = result?.outcomeOfTask ?? null;
  // The result of the call is the last word; without one a call that is over did not end well.
  const status: Task['status'] =
    outcome?.status ??
    (result === null ? (view.status === 'no-result' ? 'cancelled' : (live?.status ?? 'running')) : 'failed');
  const description = textOr(call.args?.description, live?.description ?? outcome?.description ?? '');
  const type = textOr(call.args?.subagent_type, live?.type ?? outcome?.type ?? '');
  const steps = live !== undefined && live.steps.length > 0 ? live.steps : kept;
  const tokens = outcome?.tokens ?? live?.tokens ?? null;
  const error = outcome?.error ?? live?.error ?? null;
  const model = outcome?.model ?? live?.model ?? null;
  const stopReason = outcome?.stopReason ?? live?.stopReason ?? null;
  const reasonKey = `task.stop.${stopReason}`;
  const loadSteps = () => {
    if (steps.length > 0 || work.busy || call.id === null) return;
    const taskId = call.id;
    work.run(async () => {
      const known = await facts.of(messageId);
      if (known === null) return;
      const path = `/threads/${encodeURIComponent(controller.threadId)}/runs/${encodeURIComponent(known.runId)}/events`;
      setKept(
        readSteps(await rest.get(`${path}?event_types=subagent.step&limit=500&task_id=${encodeURIComponent(taskId)}`)),
      );
    });
  };
  return (
    <details
      className={`tool task ${status}`}
      data-tool="task"
      data-status={status}
      onToggle={(event) => {
        if (event.currentTarget.open) loadSteps();
      }}
    >
      <summary>
        <Icon name="agent" />
        <span className="tool-name">{description === '' ? say('task.name') : description}</span>
        <span className="tool-hint">{status === 'running' ? nowOf(steps) : ''}</span>
        <span className="tool-status">
          {tokens === null ? null : (
            <span className="note">{say('task.tokens', { count: whole(tokens, language) })} · </span>
          )}
          {say(`task.status.${status}`)}
        </span>
      </summary>
      <div className="tool-body">
        <p className="note">
          {[type, model, live === undefined ? null : say('task.steps', { count: live.stepCount })]
            .filter((part) => part !== null && part !== '')
            .join(' · ')}
        </p>
        {isWordKey(reasonKey) ? <p className="note">{say(reasonKey)}</p> : null}
        <h4>{say('task.prompt')}</h4>
        <CodeBlock>{textOr(call.args?.prompt, call.argsText).slice(0, SHOWN)}</CodeBlock>
        <WorkTrouble trouble={work.trouble} />
        {work.busy ? <p className="note">{say('page.loading')}</p> : null}
        {steps.length === 0 ? null : (
          <>
            <h4>{say('task.work')}</h4>
            <ol className="steps">
              {steps.map((step) => (
                <StepLine key={step.id} step={step} />
              ))}
            </ol>
          </>
        )}
        {error === null ? null : <p className="trouble plain">{error}</p>}
        {result === null || result.text === '' ? null : (
          <>
            <h4>{say('tool.result')}</h4>
            <div className="markdown">
              <SafePart fallback={<p className="plain">{result.text}</p>}>
                <Suspense fallback={<p className="plain">{result.text}</p>}>
                  <Markdown text={result.text.slice(0, 30_000)} onFile={openFile} />
                </Suspense>
              </SafePart>
            </div>
          </>
        )}
      </div>
    </details>
  );
}

function StepLine({ step }: { readonly step: TaskStep }) {
  const { say, language } = usePage();
  if (step.kind === 'result')
    return (
      <li className={step.failed ? 'step-result trouble' : 'step-result'}>
        <details>
          <summary>{step.failed ? say('task.failedStep') : say('tool.result')}</summary>
          <pre>{step.text.slice(0, SHOWN) || say('tool.empty')}</pre>
        </details>
      </li>
    );
  return (
    <li>
      {step.text === '' ? null : <p className="plain">{step.text.slice(0, SHOWN)}</p>}
      {step.calls.map((call, index) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: calls of a step never change
        <p key={index}>
          {toolTitle(call.name, language)} <code>{call.hint}</code>
        </p>
      ))}
    </li>
  );
}

/** The newest thing that it does, in one line. */
function nowOf(steps: readonly TaskStep[]): string {
  const last = steps.findLast((step) => step.kind === 'said');
  if (last?.kind !== 'said') return '';
  return last.calls.at(-1)?.hint ?? last.text.replace(/\s+/g, ' ').slice(0, 160);
}
