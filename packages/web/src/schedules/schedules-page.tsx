import { useCallback, useEffect, useState } from 'react';
import type { Api, ModelEntry } from '../api/api.ts';
import { Confirm } from '../parts/confirm.tsx';
import { Dialog } from '../parts/dialog.tsx';
import { Icon } from '../parts/icons.tsx';
import { PlaceLink, usePage } from '../parts/page-context.tsx';
import { Content, PageFrame } from '../parts/page-frame.tsx';
import { useLookAgain } from '../parts/use-look-again.ts';
import { useLoad, useWork, WorkTrouble } from '../parts/use-work.tsx';
import { isWordKey, timeText } from '../words/words.ts';
import { ScheduleForm } from './schedule-form.tsx';
import { lookAfter, readTaskRuns, readTasks, type Task, whenText } from './schedules.ts';

type Asking = { readonly what: 'create' } | { readonly what: 'edit' | 'delete' | 'runs'; readonly task: Task };

interface SchedulesPageProps {
  readonly api: Api;
  readonly models: readonly ModelEntry[];
  /** Runs of tasks began or ended: there may be new chats. */
  readonly onRuns: () => void;
}

/** What runs by itself: made, changed, paused, run now, and what became of each time. */
export default function SchedulesPage({ api, models, onRuns }: SchedulesPageProps) {
  const { say } = usePage();
  const { rest } = api;
  const load = useCallback(
    async (signal: AbortSignal) => readTasks(await rest.get('/scheduled-tasks?limit=200', signal)),
    [rest],
  );
  const { value, trouble, reload } = useLoad(load);
  const [asking, setAsking] = useState<Asking | null>(null);
  const close = () => setAsking(null);
  useLookAgain(
    reload,
    useCallback(() => lookAfter(value ?? [], Date.now()), [value]),
  );
  const runs = value?.map((task) => `${task.id} ${task.runCount} ${task.active}`).join('\n');
  useEffect(() => {
    if (runs !== undefined) onRuns();
  }, [runs, onRuns]);
  return (
    <PageFrame
      title={say('page.schedules')}
      about={say('schedules.about')}
      actions={
        <button type="button" className="quiet" onClick={reload}>
          {say('page.reload')}
        </button>
      }
    >
      <div className="bar">
        <button type="button" className="primary" onClick={() => setAsking({ what: 'create' })}>
          <Icon name="plus" /> {say('schedules.new')}
        </button>
      </div>
      <Content loading={value === null} trouble={trouble} onRetry={reload}>
        {value?.length === 0 ? <p className="empty">{say('schedules.none')}</p> : null}
        <ul className="cards">
          {value?.map((task) => (
            <li key={task.id} className="panel">
              <TaskCard api={api} task={task} onAsk={setAsking} onChanged={reload} />
            </li>
          ))}
        </ul>
      </Content>
      {asking?.what === 'create' || asking?.what === 'edit' ? (
        <ScheduleForm
          api={api}
          models={models}
          task={asking.what === 'edit' ? asking.task : null}
          onClose={close}
          onSaved={() => {
            close();
            reload();
          }}
        />
      ) : null}
      {asking?.what === 'runs' ? <RunsDialog api={api} task={asking.task} onClose={close} /> : null}
      {asking?.what === 'delete' ? (
        <Confirm
          title={say('schedules.delete.title')}
          action={say('schedules.delete')}
          onClose={close}
          onConfirm={async () => {
            await rest.send('DELETE', pathOf(asking.task));
            reload();
          }}
        >
          <p>{say('schedules.delete.text', { title: asking.task.title })}</p>
        </Confirm>
      ) : null}
    </PageFrame>
  );
}

const pathOf = (task: Task): string => `/scheduled-tasks/${encodeURIComponent(task.id)}`;

interface TaskCardProps {
  readonly api: Api;
  readonly task: Task;
  readonly onAsk: (asking: Asking) => void;
  readonly onChanged: () => void;
}

function TaskCard({ api, task, onAsk, onChanged }: TaskCardProps) {
  const { say, language } = usePage();
  const work = useWork();
  const act = (action: 'pause' | 'resume' | 'trigger') =>
    work.run(async () => {
      await api.rest.send('POST', `${pathOf(task)}/${action}`);
      onChanged();
    });
  const isOver = task.status === 'completed' || task.status === 'cancelled' || task.status === 'failed';
  return (
    <>
      <div className="panel-head">
        <h2>
          <Icon name="clock" /> {task.title}
        </h2>
        <span className={`badge ${task.status}`}>{say(`schedules.status.${task.status}`)}</span>
        <div className="row-actions">
          <button
            type="button"
            className="quiet square"
            aria-label={`${say('schedules.edit')}: ${task.title}`}
            title={say('schedules.edit')}
            onClick={() => onAsk({ what: 'edit', task })}
          >
            <Icon name="pencil" />
          </button>
          <button
            type="button"
            className="quiet square"
            aria-label={`${say('schedules.delete')}: ${task.title}`}
            title={say('schedules.delete')}
            onClick={() => onAsk({ what: 'delete', task })}
          >
            <Icon name="trash" />
          </button>
        </div>
      </div>
      <p>
        {whenText(task, say, language)} <span className="note">{task.timezone}</span>
      </p>
      {task.nextAt === null ? null : (
        <p className="note">{say('schedules.next', { time: timeText(task.nextAt, language) })}</p>
      )}
      {task.lastError === null ? null : <p className="trouble">{task.lastError}</p>}
      <WorkTrouble trouble={work.trouble} />
      <div className="bar">
        <button type="button" disabled={work.busy || task.active} onClick={() => act('trigger')}>
          <Icon name="play" /> {say('schedules.trigger')}
        </button>
        {task.status === 'paused' ? (
          <button type="button" disabled={work.busy} onClick={() => act('resume')}>
            {say('schedules.resume')}
          </button>
        ) : isOver ? null : (
          <button type="button" disabled={work.busy} onClick={() => act('pause')}>
            <Icon name="pause" /> {say('schedules.pause')}
          </button>
        )}
        <button type="button" className="quiet" onClick={() => onAsk({ what: 'runs', task })}>
          {say('schedules.runs', { count: task.runCount })}
        </button>
        {task.threadId === null ? null : (
          <PlaceLink to={{ at: 'chat', threadId: task.threadId }} className="to-chat">
            {say('schedules.toChat')}
          </PlaceLink>
        )}
      </div>
    </>
  );
}

/** What became of its times, newest first. */
function RunsDialog({ api, task, onClose }: { readonly api: Api; readonly task: Task; readonly onClose: () => void }) {
  const { say, language } = usePage();
  const load = useCallback(
    async (signal: AbortSignal) => readTaskRuns(await api.rest.get(`${pathOf(task)}/runs?limit=100`, signal)),
    [api, task],
  );
  const { value, trouble, reload } = useLoad(load);
  return (
    <Dialog title={task.title} onClose={onClose}>
      <Content loading={value === null} trouble={trouble} onRetry={reload}>
        {value?.length === 0 ? <p className="note">{say('schedules.runs.none')}</p> : null}
        <ul className="rows">
          {value?.map((run) => {
            const key = `schedules.run.${run.status}`;
            return (
              <li key={run.id}>
                <div className="row-text">
                  <strong>{isWordKey(key) ? say(key) : run.status}</strong>{' '}
                  <span className="note">
                    {timeText(run.scheduledFor, language)} {run.isManual ? say('schedules.byHand') : ''}
                  </span>
                  {run.error === null ? null : <p className="note">{run.error}</p>}
                </div>
                {run.threadId === null ? null : (
                  <PlaceLink to={{ at: 'chat', threadId: run.threadId }}>{say('schedules.toChat')}</PlaceLink>
                )}
              </li>
            );
          })}
        </ul>
      </Content>
    </Dialog>
  );
}
