import type {
  AdmissionResult,
  Occurrence,
  QueuedOccurrence,
  Run,
  RunService,
  ScheduleStore,
  Surroundings,
} from '@reindeer/protocol';
import { EMPTY_REQUEST, ReindeerError, SCHEDULED_KEY } from '@reindeer/protocol';
import type { ScheduleSettings } from './settings.ts';

export interface LauncherParts {
  readonly store: ScheduleStore;
  readonly runs: Pick<RunService, 'create'>;
  readonly surroundings: Surroundings;
  readonly settings: ScheduleSettings;
}

export type Launch =
  | { readonly outcome: 'launched'; readonly run: Run }
  /** There is no run, and the occurrence says why. */
  | { readonly outcome: 'failed'; readonly error: ReindeerError }
  /** It could not be told now. Whoever looks after the lease is over tries again. */
  | { readonly outcome: 'later'; readonly error: ReindeerError };

/** What a later try may change. */
const PASSING: readonly string[] = ['over_capacity', 'queue_full', 'shutting_down', 'store_unavailable'];

/**
 * Makes the run of a queued occurrence. Repeating it is safe at any point: the key of the run is the occurrence's id, and what is asked was
 * stored with the occurrence. So a run whose bookkeeping failed is found again, never made twice.
 */
export async function launch(parts: LauncherParts, queued: QueuedOccurrence, owner: string): Promise<Launch> {
  const { store, surroundings, settings } = parts;
  const { clock, probe } = surroundings;
  const { occurrence } = queued;
  const { occurrenceId } = occurrence;
  await probe.at('schedule.before-launch', { occurrenceId });
  const answer = await admit(parts, queued);
  await probe.at('schedule.launched', { occurrenceId });
  if (answer.outcome === 'admitted' || answer.outcome === 'queued' || answer.outcome === 'reused') {
    const { run } = answer;
    const { runId, threadId } = run;
    await store.launched({ occurrenceId, owner, runId, threadId, now: clock.now() });
    return { outcome: 'launched', run };
  }
  const error = answer.outcome === 'error' ? answer.error : refusalOf(answer, occurrence);
  const passing = answer.outcome === 'conflict' || PASSING.includes(error.code);
  if (passing && clock.now() - occurrence.createdAt < settings.giveUpMs) return { outcome: 'later', error };
  // The thread that it is meant for does not come back.
  const broken = answer.outcome === 'thread_not_found';
  await store.notLaunched({ occurrenceId, owner, error: error.message, broken, now: clock.now() });
  return { outcome: 'failed', error };
}

type Answer = AdmissionResult | { readonly outcome: 'error'; readonly error: ReindeerError };

async function admit(parts: LauncherParts, { schedule, occurrence, work }: QueuedOccurrence): Promise<Answer> {
  const { occurrenceId, trigger } = occurrence;
  const { scheduleId, userId } = schedule;
  try {
    return await parts.runs.create({
      threadId: occurrence.threadId,
      userId,
      assistantId: work.assistantId,
      request: {
        ...EMPTY_REQUEST,
        input: { messages: [{ type: 'human', content: work.prompt }] },
        // Nobody is there to be asked.
        context: { ...work.context, non_interactive: true, [SCHEDULED_KEY]: true },
        streamModes: ['values', 'messages-tuple', 'custom'],
      },
      metadata: { source: 'schedule', schedule_id: scheduleId, occurrence_id: occurrenceId, trigger },
      // Behind whatever the user has going on there.
      multitaskStrategy: work.reuses ? 'enqueue' : 'reject',
      onDisconnect: 'continue',
      crashPolicy: null,
      createThread: !work.reuses,
      idempotencyKey: `schedule:${occurrenceId}`,
    });
  } catch (error) {
    if (ReindeerError.is(error)) return { outcome: 'error', error };
    throw error;
  }
}

function refusalOf(
  answer: Extract<AdmissionResult, { outcome: 'conflict' | 'thread_not_found' }>,
  { threadId }: Occurrence,
): ReindeerError {
  return answer.outcome === 'thread_not_found'
    ? new ReindeerError('not_found', `The thread ${threadId} is gone. Choose another one for the schedule.`)
    : new ReindeerError('conflict', `The thread ${threadId} takes no run now (${answer.reason}).`, { retryable: true });
}
