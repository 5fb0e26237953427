import { useMemo, useRef, useState } from 'react';
import { EFFORTS, type Effort, type ModelEntry, type RunOptions } from '../api/api.ts';
import type { Storage } from '../api/token.ts';

const KEYS = {
  model: 'reindeer.model',
  effort: 'reindeer.effort',
  plan: 'reindeer.plan',
  helpers: 'reindeer.helpers',
  thinking: 'reindeer.thinking',
} as const;
export type Toggle = 'plan' | 'helpers' | 'thinking';

/** How the next run is to work; kept in the browser. */
export interface ChosenOptions {
  readonly models: readonly ModelEntry[];
  /** null = the server's default. */
  readonly model: ModelEntry | null;
  readonly toggles: Readonly<Record<Toggle, boolean>>;
  /** null = as the server is set. */
  readonly effort: Effort | null;
  readonly choose: (model: string) => void;
  readonly toggle: (name: Toggle) => void;
  readonly setEffort: (effort: Effort | null) => void;
  /** As of now, for whoever holds on to it. */
  readonly now: () => { readonly model: string | null; readonly options: RunOptions };
}

type Chosen = Pick<ChosenOptions, 'model' | 'toggles' | 'effort'>;

export function useOptions(local: Storage, models: readonly ModelEntry[]): ChosenOptions {
  const [wanted, setWanted] = useState(() => local.getItem(KEYS.model));
  const [effort, keepEffort] = useState(() => effortOf(local.getItem(KEYS.effort)));
  const [toggles, setToggles] = useState<Readonly<Record<Toggle, boolean>>>(() => ({
    plan: local.getItem(KEYS.plan) === 'on',
    helpers: local.getItem(KEYS.helpers) === 'on',
    thinking: local.getItem(KEYS.thinking) !== 'off',
  }));
  // A name that is not offered any more must not be sent.
  const model = models.find((entry) => entry.name === wanted) ?? models[0] ?? null;
  const newest = useRef<Chosen>({ model, toggles, effort });
  newest.current = { model, toggles, effort };
  return useMemo(
    () => ({
      models,
      model,
      toggles,
      effort,
      choose: (name) => {
        local.setItem(KEYS.model, name);
        setWanted(name);
      },
      toggle: (name) => {
        const next = { ...newest.current.toggles, [name]: !newest.current.toggles[name] };
        local.setItem(KEYS[name], next[name] ? 'on' : 'off');
        newest.current = { ...newest.current, toggles: next };
        setToggles(next);
      },
      setEffort: (next) => {
        if (next === null) local.removeItem(KEYS.effort);
        else local.setItem(KEYS.effort, next);
        newest.current = { ...newest.current, effort: next };
        keepEffort(next);
      },
      now: () => ({ model: newest.current.model?.name ?? null, options: runOptions(newest.current) }),
    }),
    [local, models, model, toggles, effort],
  );
}

export function effortOf(text: string | null): Effort | null {
  return EFFORTS.find((effort) => effort === text) ?? null;
}

/** Can the model be told now how hard to think? One whose thinking is off does not think hard. */
export function takesEffort({ model, toggles }: Pick<Chosen, 'model' | 'toggles'>): boolean {
  return model?.effort === true && (!model.thinks || toggles.thinking);
}

/** What is sent with a run: only what its model knows. */
export function runOptions(chosen: Chosen): RunOptions {
  const { model, toggles, effort } = chosen;
  return {
    ...(toggles.plan ? { plan: true } : {}),
    ...(toggles.helpers ? { helpers: true } : {}),
    ...(model?.thinks === true ? { thinking: toggles.thinking } : {}),
    ...(effort !== null && takesEffort(chosen) ? { effort } : {}),
  };
}
