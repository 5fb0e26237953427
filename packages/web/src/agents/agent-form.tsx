import { type FormEvent, useCallback, useState } from 'react';
import type { ModelEntry } from '../api/api.ts';
import type { Rest } from '../api/rest.ts';
import { Dialog } from '../parts/dialog.tsx';
import { usePage } from '../parts/page-context.tsx';
import { useLoad, useWork, WorkTrouble } from '../parts/use-work.tsx';
import { readSkills } from '../skills/skills.ts';
import { type Agent, agentBody, EFFORTS, EMPTY_AGENT, GROUPS, isName, toggled } from './agents.ts';

interface AgentFormProps {
  readonly rest: Rest;
  readonly models: readonly ModelEntry[];
  /** null = a new one. */
  readonly agent: Agent | null;
  readonly onClose: () => void;
  readonly onSaved: () => void;
}

/** Who an agent is, which model it uses, and which tools and skills it has. */
export function AgentForm({ rest, models, agent, onClose, onSaved }: AgentFormProps) {
  const { say } = usePage();
  const [draft, setDraft] = useState<Agent>(agent ?? EMPTY_AGENT);
  const loadSkills = useCallback(
    async (signal: AbortSignal) => readSkills(await rest.get('/skills', signal)).map((skill) => skill.name),
    [rest],
  );
  const skills = useLoad(loadSkills);
  const work = useWork();
  const change = (part: Partial<Agent>) => setDraft({ ...draft, ...part });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (!isName(draft.name)) return;
    work.run(async () => {
      if (agent === null) await rest.send('POST', '/agents', { name: draft.name, ...agentBody(draft) });
      else await rest.send('PUT', `/agents/${encodeURIComponent(agent.name)}`, agentBody(draft));
      onSaved();
    });
  };
  const number = (text: string): number | null => (text === '' ? null : Number(text));
  return (
    <Dialog title={agent === null ? say('agents.new') : `${say('agents.edit')}: ${agent.name}`} onClose={onClose} wide>
      <form className="fields" onSubmit={submit}>
        {agent === null ? (
          <div className="field">
            <label htmlFor="form-name">{say('agents.name')}</label>
            <input
              id="form-name"
              value={draft.name}
              maxLength={64}
              placeholder="writer"
              aria-invalid={draft.name !== '' && !isName(draft.name)}
              onChange={(event) => change({ name: event.target.value.trim() })}
            />
            <p className="note">{say('agents.name.rule')}</p>
          </div>
        ) : null}
        <div className="field">
          <label htmlFor="form-description">{say('agents.description')}</label>
          <input
            id="form-description"
            value={draft.description}
            maxLength={2_000}
            placeholder={say('agents.description.example')}
            onChange={(event) => change({ description: event.target.value })}
          />
        </div>
        <div className="field">
          <label htmlFor="form-soul">{say('agents.soul')}</label>
          <textarea
            id="form-soul"
            rows={8}
            maxLength={32_768}
            value={draft.soul}
            placeholder={say('agents.soul.example')}
            onChange={(event) => change({ soul: event.target.value })}
          />
        </div>
        <div className="columns">
          <div className="field">
            <label htmlFor="form-model">{say('composer.model')}</label>
            <select
              id="form-model"
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
          <div className="field">
            <label htmlFor="form-thinking">{say('agents.thinking')}</label>
            <select
              id="form-thinking"
              value={draft.thinking === null ? '' : String(draft.thinking)}
              onChange={(event) =>
                change({ thinking: event.target.value === '' ? null : event.target.value === 'true' })
              }
            >
              <option value="">{say('agents.asDefault')}</option>
              <option value="true">{say('agents.on')}</option>
              <option value="false">{say('agents.offWord')}</option>
            </select>
          </div>
          <div className="field">
            <label htmlFor="form-effort">{say('agents.effort')}</label>
            <select
              id="form-effort"
              value={draft.effort ?? ''}
              onChange={(event) => change({ effort: event.target.value === '' ? null : event.target.value })}
            >
              <option value="">{say('agents.asDefault')}</option>
              {EFFORTS.map((effort) => (
                <option key={effort} value={effort}>
                  {say(`agents.effort.${effort}`)}
                </option>
              ))}
            </select>
          </div>
          <div className="field">
            <label htmlFor="form-temperature">{say('agents.temperature')}</label>
            <input
              id="form-temperature"
              type="number"
              min={0}
              max={2}
              step="any"
              value={draft.temperature ?? ''}
              onChange={(event) => change({ temperature: number(event.target.value) })}
            />
          </div>
          <div className="field">
            <label htmlFor="form-tokens">{say('agents.maxTokens')}</label>
            <input
              id="form-tokens"
              type="number"
              min={1}
              max={200_000}
              value={draft.maxTokens ?? ''}
              onChange={(event) => change({ maxTokens: number(event.target.value) })}
            />
          </div>
        </div>
        <Choice
          legend={say('agents.tools')}
          all={say('agents.tools.all')}
          options={[...new Set([...GROUPS, ...(draft.groups ?? [])])]}
          chosen={draft.groups}
          onChange={(groups) => change({ groups })}
        />
        <Choice
          legend={say('page.skills')}
          all={say('agents.skills.all')}
          options={[...new Set([...(skills.value ?? []), ...(draft.skills ?? [])])]}
          chosen={draft.skills}
          onChange={(chosen) => change({ skills: chosen })}
        />
        <WorkTrouble trouble={work.trouble ?? skills.trouble} />
        <div className="dialog-bar">
          <button type="button" onClick={onClose}>
            {say('dialog.cancel')}
          </button>
          <button type="submit" className="primary" disabled={work.busy || !isName(draft.name)}>
            {say('dialog.save')}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

interface ChoiceProps {
  readonly legend: string;
  readonly all: string;
  readonly options: readonly string[];
  /** null = all of them, also those to come. */
  readonly chosen: readonly string[] | null;
  readonly onChange: (chosen: readonly string[] | null) => void;
}

function Choice({ legend, all, options, chosen, onChange }: ChoiceProps) {
  return (
    <fieldset className="choice">
      <legend>{legend}</legend>
      <label className="check">
        <input
          type="checkbox"
          checked={chosen === null}
          onChange={(event) => onChange(event.target.checked ? null : options)}
        />
        {all}
      </label>
      {chosen === null ? null : (
        <div className="checks">
          {options.map((name) => (
            <label key={name} className="check">
              <input type="checkbox" checked={chosen.includes(name)} onChange={() => onChange(toggled(chosen, name))} />
              {name}
            </label>
          ))}
        </div>
      )}
    </fieldset>
  );
}
