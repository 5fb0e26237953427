import { useCallback, useState } from 'react';
import type { ModelEntry } from '../api/api.ts';
import type { Rest } from '../api/rest.ts';
import { InputField, ModelField, SelectField, TextField } from '../parts/fields.tsx';
import { FormDialog } from '../parts/form-dialog.tsx';
import { usePage } from '../parts/page-context.tsx';
import { useLoad } from '../parts/use-work.tsx';
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
  const change = (part: Partial<Agent>) => setDraft({ ...draft, ...part });
  const submit = async () => {
    if (agent === null) await rest.send('POST', '/agents', { name: draft.name, ...agentBody(draft) });
    else await rest.send('PUT', `/agents/${encodeURIComponent(agent.name)}`, agentBody(draft));
    onSaved();
  };
  const number = (text: string): number | null => (text === '' ? null : Number(text));
  return (
    <FormDialog
      title={agent === null ? say('agents.new') : `${say('agents.edit')}: ${agent.name}`}
      ready={isName(draft.name)}
      trouble={skills.trouble}
      onSubmit={submit}
      onClose={onClose}
      wide
    >
      {agent === null ? (
        <InputField
          label={say('agents.name')}
          note={say('agents.name.rule')}
          value={draft.name}
          maxLength={64}
          placeholder="writer"
          aria-invalid={draft.name !== '' && !isName(draft.name)}
          onChange={(text) => change({ name: text.trim() })}
        />
      ) : null}
      <InputField
        label={say('agents.description')}
        value={draft.description}
        maxLength={2_000}
        placeholder={say('agents.description.example')}
        onChange={(description) => change({ description })}
      />
      <TextField
        label={say('agents.soul')}
        rows={8}
        maxLength={32_768}
        value={draft.soul}
        placeholder={say('agents.soul.example')}
        onChange={(soul) => change({ soul })}
      />
      <div className="columns">
        <ModelField models={models} value={draft.model} onChange={(model) => change({ model })} />
        <SelectField
          label={say('agents.thinking')}
          none={say('agents.asDefault')}
          value={draft.thinking === null ? null : draft.thinking ? 'true' : 'false'}
          options={[
            { value: 'true', label: say('agents.on') },
            { value: 'false', label: say('agents.offWord') },
          ]}
          onChange={(chosen) => change({ thinking: chosen === null ? null : chosen === 'true' })}
        />
        <SelectField
          label={say('agents.effort')}
          none={say('agents.asDefault')}
          value={draft.effort}
          options={EFFORTS.map((effort) => ({ value: effort, label: say(`agents.effort.${effort}`) }))}
          onChange={(effort) => change({ effort })}
        />
        <InputField
          label={say('agents.temperature')}
          type="number"
          min={0}
          max={2}
          step="any"
          value={draft.temperature ?? ''}
          onChange={(text) => change({ temperature: number(text) })}
        />
        <InputField
          label={say('agents.maxTokens')}
          type="number"
          min={1}
          max={200_000}
          value={draft.maxTokens ?? ''}
          onChange={(text) => change({ maxTokens: number(text) })}
        />
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
    </FormDialog>
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
