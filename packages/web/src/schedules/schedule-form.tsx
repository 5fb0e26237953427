import { useCallback, useMemo, useState } from 'react';
import type { Api, ModelEntry } from '../api/api.ts';
import { InputField, ModelField, SelectField, TextField } from '../parts/fields.tsx';
import { FormDialog } from '../parts/form-dialog.tsx';
import { usePage } from '../parts/page-context.tsx';
import { useLoad } from '../parts/use-work.tsx';
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

/** A number of the form, kept between its bounds. */
const within = (text: string, low: number, high: number): number =>
  Math.min(high, Math.max(low, Math.trunc(Number(text))));

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
  const change = (part: Partial<Draft>) => setDraft({ ...draft, ...part });
  const changeWhen = (part: Partial<When>) => change({ when: { ...draft.when, ...part } });
  const { when } = draft;
  const lacking = lacks(draft);
  // A time of its own becomes no repeated one: the server keeps the kind.
  const rhythms = RHYTHMS.filter((rhythm) => task === null || (rhythm === 'once') === (task.cron === null));
  const submit = async () => {
    const body = taskBody(draft, task);
    if (task === null) await rest.send('POST', '/scheduled-tasks', body);
    else await rest.send('PATCH', `/scheduled-tasks/${encodeURIComponent(task.id)}`, body);
    onSaved();
  };
  return (
    <FormDialog
      title={say(task === null ? 'schedules.new' : 'schedules.edit')}
      ready={lacking === null}
      onSubmit={submit}
      onClose={onClose}
      wide
    >
      <InputField
        label={say('schedules.title')}
        value={draft.title}
        maxLength={200}
        placeholder={say('schedules.title.example')}
        onChange={(title) => change({ title })}
      />
      <TextField
        label={say('schedules.prompt')}
        rows={5}
        maxLength={100_000}
        value={draft.prompt}
        placeholder={say('schedules.prompt.example')}
        onChange={(prompt) => change({ prompt })}
      />
      <div className="columns">
        <SelectField
          label={say('schedules.rhythm')}
          value={when.rhythm}
          options={rhythms.map((rhythm) => ({ value: rhythm, label: say(`schedules.rhythm.${rhythm}`) }))}
          onChange={(rhythm) => changeWhen({ rhythm: rhythm ?? 'daily' })}
        />
        {when.rhythm === 'once' ? (
          <InputField
            label={say('schedules.date')}
            type="datetime-local"
            value={when.date}
            onChange={(date) => changeWhen({ date })}
          />
        ) : null}
        {when.rhythm === 'hourly' ? (
          <InputField
            label={say('schedules.minute')}
            type="number"
            min={0}
            max={59}
            value={Number(when.time.slice(3))}
            onChange={(text) => changeWhen({ time: `00:${String(within(text, 0, 59)).padStart(2, '0')}` })}
          />
        ) : null}
        {when.rhythm === 'daily' || when.rhythm === 'weekly' || when.rhythm === 'monthly' ? (
          <InputField
            label={say('schedules.time')}
            type="time"
            value={when.time}
            required
            onChange={(time) => changeWhen({ time: time === '' ? '00:00' : time })}
          />
        ) : null}
        {when.rhythm === 'monthly' ? (
          <InputField
            label={say('schedules.day')}
            type="number"
            min={1}
            max={31}
            value={when.dayOfMonth}
            onChange={(text) => changeWhen({ dayOfMonth: within(text, 1, 31) })}
          />
        ) : null}
        {when.rhythm === 'custom' ? (
          <InputField
            label={say('schedules.cron')}
            note={say('schedules.cron.rule')}
            value={when.cron}
            maxLength={200}
            spellCheck={false}
            aria-invalid={lacking === 'cron'}
            onChange={(cron) => changeWhen({ cron })}
          />
        ) : null}
        <SelectField
          label={say('schedules.timezone')}
          value={draft.timezone}
          options={zones.map((zone) => ({ value: zone, label: zone }))}
          onChange={(timezone) => change({ timezone: timezone ?? HERE })}
        />
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
        <SelectField
          label={say('schedules.thread')}
          none={say('schedules.thread.new')}
          value={draft.threadId}
          options={(threads.value ?? []).map((one) => ({
            value: one.threadId,
            label: one.title ?? say('threads.untitled'),
          }))}
          onChange={(threadId) => change({ threadId })}
        />
        <ModelField models={models} value={draft.model} onChange={(model) => change({ model })} />
      </div>
      <p className="note">{say('schedules.alone')}</p>
    </FormDialog>
  );
}
