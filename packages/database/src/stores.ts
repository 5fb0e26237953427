import type {
  AttemptAnswer,
  AttemptStore,
  Fact,
  FactBody,
  FactPage,
  FeedbackStore,
  Log,
  RunStore,
  ScheduleStore,
  ThreadStore,
  ToolJournal,
} from '@reindeer/protocol';
import type { StoredPage } from './log/scripts.ts';
import type { Call } from './scripts.ts';

/** The ports of the protocol over a database's scripts: what each method says is in `protocol/stores.ts`. */

export function threadStore(call: Call): ThreadStore {
  return {
    create: (input) => call('threads.create', input),
    get: (input) => call('threads.get', input),
    search: (input) => call('threads.search', input),
    update: (input) => call('threads.update', input),
    delete: (input) => call('threads.delete', input),
    copy: (input) => call('threads.copy', input),
  };
}

/** @param first as `call`, ahead of what waits: for renewals
 * @param renew where a renewal is more than one call */
export function runStore(
  call: Call,
  first: Call,
  renew: RunStore['renew'] = (input) => first('runs.renew', input),
): RunStore {
  return {
    admit: (input) => call('runs.admit', input),
    start: (input) => call('runs.start', input),
    finalize: (input) => call('runs.finalize', input),
    requestCancel: (input) => call('runs.requestCancel', input),
    renew,
    claimOrphans: (input) => call('runs.claimOrphans', input),
    takeQueued: (input) => call('runs.takeQueued', input),
    freeQueues: (limit) => call('runs.freeQueues', { limit }),
    get: (runId) => call('runs.get', { runId }),
    list: (input) => call('runs.list', input),
    active: (threadId) => call('runs.active', { threadId }),
    release: (fence) => call('runs.release', fence),
    relinquish: (fence) => call('runs.relinquish', fence),
    remove: (input) => call('runs.remove', input),
  };
}

export function logStore(call: Call, onAppend: Log['onAppend']): Log {
  return {
    epoch: () => call('database.epoch', {}),
    read: async (input) => parsed(input.threadId, await call('log.read', input)),
    firstSeq: (input) => call('log.firstSeq', input),
    append: (input) => call('log.append', input),
    messages: async (input) => parsed(input.threadId, await call('log.messages', input)),
    find: (input) => call('log.find', input),
    onAppend,
  };
}

function parsed(threadId: string, page: StoredPage): FactPage {
  const facts = page.facts.map((fact): Fact => ({ ...fact, threadId, body: JSON.parse(fact.body) as FactBody }));
  return { ...page, facts };
}

export function feedbackStore(call: Call): FeedbackStore {
  return {
    put: (input) => call('feedback.put', input),
    list: (input) => call('feedback.list', input),
    remove: (input) => call('feedback.remove', input),
  };
}

export function scheduleStore(call: Call): ScheduleStore {
  return {
    create: (input) => call('schedules.create', input),
    get: (input) => call('schedules.get', input),
    list: (input) => call('schedules.list', input),
    update: (input) => call('schedules.update', input),
    remove: (input) => call('schedules.remove', input),
    due: (input) => call('schedules.due', input),
    nextDue: () => call('schedules.nextDue', {}),
    take: (input) => call('schedules.take', input),
    takeOver: (input) => call('schedules.takeOver', input),
    launched: (input) => call('schedules.launched', input),
    notLaunched: (input) => call('schedules.notLaunched', input),
    settle: (input) => call('schedules.settle', input),
    occurrences: (input) => call('schedules.occurrences', input),
  };
}

/** `durable` writes are those that acknowledge something: with one of them a whole call is. */
export function attemptStore(call: Call): AttemptStore {
  return {
    begin: async (input) => {
      const answer = await call('attempts.begin', input);
      return answer.outcome === 'begun' ? { ...answer, log: parsed(input.threadId, answer.log) } : answer;
    },
    write: async (writes) => {
      const durable = writes.some(({ kind }) => kind === 'begin' || kind === 'finish');
      const answers = await call(durable ? 'attempts.record' : 'attempts.write', { writes });
      return answers.map((answer, index) => {
        const write = writes[index];
        if (write?.kind !== 'finish' || !('result' in answer) || answer.result !== null) return answer as AttemptAnswer;
        return { outcome: 'ok', result: write.input.result };
      });
    },
  };
}

export function journalStore(call: Call): ToolJournal {
  return {
    begin: (input) => call('journal.begin', input),
    finish: async (input) => {
      const answer = await call('journal.finish', input);
      return answer.outcome === 'fenced' ? answer : { outcome: 'ok', result: answer.result ?? input.result };
    },
    retract: (input) => call('journal.retract', input),
    unfinished: (threadId) => call('journal.unfinished', { threadId }),
  };
}
