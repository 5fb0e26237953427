import { type FormEvent, useCallback, useMemo, useState } from 'react';
import type { Api, ModelEntry } from '../api/api.ts';
import { Dialog } from '../parts/dialog.tsx';
import { usePage } from '../parts/page-context.tsx';
import { useLoad, useWork, WorkTrouble } from '../parts/use-work.tsx';
import {
  type Draft,
  dayName,
  EMPTY_WHEN,
  lacks,
  RHYTHMS,
  type Task,
  taskBody,
  type When,
  whenOf,
} from './schedules.ts';

interface ScheduleFormProps {
  readonly api: Api;
  readonly models: readonly ModelEntry[];
  /** null = a new one. */
  readonly task: Task | null;
  readonly onClose: () => void;
  readonly onSaved: () => void;
}

const HERE = Intl.DateTimeFormat().resolvedOptions().timeZone;
/** Monday first. */
const WEEK = [1, 2, 3, 4, 5, 6, 0];

/** What is to be done, and when. */
export function ScheduleForm({ api, models, task, onClose, onSaved }: ScheduleFormProps) {
  const { say, language } = usePage();
  const { rest } = api;
  const [draft, setDraft] = useState<Draft>(() =>
    task === null
      ? { title: '', prompt: '', when: EMPTY_WHEN, timezone: HERE, threadId: null, model: null }
      : { ...task, when: whenOf(task) },
  );
  const loadThreads = useCallback(() => api.searchThreads(50, 0), [api]);
  const threads = useLoad(loadThreads);
  const zones = useMemo(
    () => [...new Set([draft.timezone, HERE, 'UTC', ...Intl.supportedValuesOf('timeZone')])],
    [draft.timezone],
  );
  const work = useWork();
  const change = (part: Partial<Draft>) => setDraft({ ...draft, ...part });
  const changeWhen = (part: Partial<When>) => change({ when: { ...draft.when, ...part } });
  const { when } = draft;
  const lacking = lacks(draft);
  // A time of its own becomes no repeated one: the server keeps the kind.
  const rhythms = RHYTHMS.filter((rhythm) => task === null || (rhythm === 'once') === (task.cron === null));
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (lacking !== null) return;
    work.run(async () => {
      const body = taskBody(draft, task);
      if (task === null) await rest.send('POST', '/scheduled-tasks', body);
      else await rest.send('PATCH', `/scheduled-tasks/${encodeURIComponent(task.id)}`, body);
      onSaved();
    });
  };
  return (
    <Dialog title={say(task === null ? 'schedules.new' : 'schedules.edit')} onClose={onClose} wide>
      <form className="fields" onSubmit={submit}>
        <div className="field">
          <label htmlFor="schedule-title">{say('schedules.title')}</label>
          <input
            id="schedule-title"
            value={draft.title}
            maxLength={200}
            placeholder={say('schedules.title.example')}
            onChange={(event) => change({ title: event.target.value })}
          />
        </div>
        <div className="field">
          <label htmlFor="schedule-prompt">{say('schedules.prompt')}</label>
          <textarea
            id="schedule-prompt"
            rows={5}
            maxLength={100_000}
            value={draft.prompt}
            placeholder={say('schedules.prompt.example')}
            onChange={(event) => change({ prompt: event.target.value })}
          />
        </div>
        <div className="columns">
          <div className="field">
            <label htmlFor="schedule-rhythm">{say('schedules.rhythm')}</label>
            <select
              id="schedule-rhythm"
              value={when.rhythm}
              onChange={(event) =>
                changeWhen({ rhythm: RHYTHMS.find((rhythm) => rhythm === event.target.value) ?? 'daily' })
              }
            >
              {rhythms.map((rhythm) => (
                <option key={rhythm} value={rhythm}>
                  {say(`schedules.rhythm.${rhythm}`)}
                </option>
              ))}
            </select>
          </div>
          {when.rhythm === 'once' ? (
            <div className="field">
              <label htmlFor="schedule-date">{say('schedules.date')}</label>
              <input
                id="schedule-date"
                type="datetime-local"
                value={when.date}
                onChange={(event) => changeWhen({ date: event.target.value })}
              />
            </div>
          ) : null}
          {when.rhythm === 'hourly' ? (
            <div className="field">
              <label htmlFor="schedule-minute">{say('schedules.minute')}</label>
              <input
                id="schedule-minute"
                type="number"
                min={0}
                max={59}
                value={Number(when.time.slice(3))}
                onChange={(event) =>
                  changeWhen({
                    time: `00:${String(Math.min(59, Math.max(0, Math.trunc(Number(event.target.value))))).padStart(2, '0')}`,
                  })
                }
              />
            </div>
          ) : null}
          {when.rhythm === 'daily' || when.rhythm === 'weekly' || when.rhythm === 'monthly' ? (
            <div className="field">
              <label htmlFor="schedule-time">{say('schedules.time')}</label>
              <input
                id="schedule-time"
                type="time"
                value={when.time}
                required
                onChange={(event) => changeWhen({ time: event.target.value === '' ? '00:00' : event.target.value })}
              />
            </div>
          ) : null}
          {when.rhythm === 'monthly' ? (
            <div className="field">
              <label htmlFor="schedule-day">{say('schedules.day')}</label>
              <input
                id="schedule-day"
                type="number"
                min={1}
                max={31}
                value={when.dayOfMonth}
                onChange={(event) =>
                  changeWhen({ dayOfMonth: Math.min(31, Math.max(1, Math.trunc(Number(event.target.value)))) })
                }
              />
            </div>
          ) : null}
          {when.rhythm === 'custom' ? (
            <div className="field">
              <label htmlFor="schedule-cron">{say('schedules.cron')}</label>
              <input
                id="schedule-cron"
                value={when.cron}
                maxLength={200}
                spellCheck={false}
                aria-invalid={lacking === 'cron'}
                onChange={(event) => changeWhen({ cron: event.target.value })}
              />
              <p className="note">{say('schedules.cron.rule')}</p>
            </div>
          ) : null}
          <div className="field">
            <label htmlFor="schedule-zone">{say('schedules.timezone')}</label>
            <select
              id="schedule-zone"
              value={draft.timezone}
              onChange={(event) => change({ timezone: event.target.value })}
            >
              {zones.map((zone) => (
                <option key={zone} value={zone}>
                  {zone}
                </option>
              ))}
            </select>
          </div>
        </div>
        {when.rhythm === 'weekly' ? (
          <fieldset className="choice">
            <legend>{say('schedules.days')}</legend>
            <div className="checks">
              {WEEK.map((day) => (
                <label key={day} className="check">
                  <input
                    type="checkbox"
                    checked={when.days.includes(day)}
                    onChange={() =>
                      changeWhen({
                        days: when.days.includes(day) ? when.days.filter((one) => one !== day) : [...when.days, day],
                      })
                    }
                  />
                  {dayName(day, language)}
                </label>
              ))}
            </div>
          </fieldset>
        ) : null}
        <div className="columns">
          <div className="field">
            <label htmlFor="schedule-thread">{say('schedules.thread')}</label>
            <select
              id="schedule-thread"
              value={draft.threadId ?? ''}
              onChange={(event) => change({ threadId: event.target.value === '' ? null : event.target.value })}
            >
              <option value="">{say('schedules.thread.new')}</option>
              {draft.threadId !== null && threads.value?.every((one) => one.threadId !== draft.threadId) !== false ? (
                <option value={draft.threadId}>{draft.threadId}</option>
              ) : null}
              {threads.value?.map((one) => (
                <option key={one.threadId} value={one.threadId}>
                  {one.title ?? say('threads.untitled')}
                </option>
              ))}
            </select>
          </div>
          <div className="field">
            <label htmlFor="schedule-model">{say('composer.model')}</label>
            <select
              id="schedule-model"
              value={draft.model ?? ''}
              onChange={(event) => change({ model: event.target.value === '' ? null : event.target.value })}
            >
              <option value="">{say('agents.asDefault')}</option>
              {draft.model !== null && !models.some((model) => model.name === draft.model) ? (
                <option value={draft.model}>{draft.model}</option>
              ) : null}
              {models.map((model) => (
                <option key={model.name} value={model.name}>
                  {model.displayName}
                </option>
              ))}
            </select>
          </div>
        </div>
        <p className="note">{say('schedules.alone')}</p>
        <WorkTrouble trouble={work.trouble} />
        <div className="dialog-bar">
          <button type="button" onClick={onClose}>
            {say('dialog.cancel')}
          </button>
          <button type="submit" className="primary" disabled={work.busy || lacking !== null}>
            {say('dialog.save')}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
