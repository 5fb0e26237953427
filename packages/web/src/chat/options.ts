import { useMemo, useRef, useState } from 'react';
import type { ModelEntry, RunOptions } from '../api/api.ts';
import type { Storage } from '../api/token.ts';

const KEYS = {
  model: 'reindeer.model',
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
  readonly choose: (model: string) => void;
  readonly toggle: (name: Toggle) => void;
  /** As of now, for whoever holds on to it. */
  readonly now: () => { readonly model: string | null; readonly options: RunOptions };
}

export function useOptions(local: Storage, models: readonly ModelEntry[]): ChosenOptions {
  const [wanted, setWanted] = useState(() => local.getItem(KEYS.model));
  const [toggles, setToggles] = useState<Readonly<Record<Toggle, boolean>>>(() => ({
    plan: local.getItem(KEYS.plan) === 'on',
    helpers: local.getItem(KEYS.helpers) === 'on',
    thinking: local.getItem(KEYS.thinking) !== 'off',
  }));
  // A name that is not offered any more must not be sent.
  const model = models.find((entry) => entry.name === wanted) ?? models[0] ?? null;
  const newest = useRef({ model, toggles });
  newest.current = { model, toggles };
  return useMemo(
    () => ({
      models,
      model,
      toggles,
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
      now: () => {
        const { model: chosen, toggles: on } = newest.current;
        return {
          model: chosen?.name ?? null,
          options: {
            ...(on.plan ? { plan: true } : {}),
            ...(on.helpers ? { helpers: true } : {}),
            ...(chosen?.thinks === true ? { thinking: on.thinking } : {}),
          },
        };
      },
    }),
    [local, models, model, toggles],
  );
}
