import { EFFORTS } from '../api/api.ts';
import { usePage } from '../parts/page-context.tsx';
import { type ChosenOptions, effortOf, type Toggle, takesEffort } from './options.ts';

/** How the next run is to work: what it may do, with which model, and how hard that thinks. */
export function OptionButtons({ options }: { readonly options: ChosenOptions }) {
  const { say } = usePage();
  const toggles: readonly Toggle[] =
    options.model?.thinks === true ? ['thinking', 'plan', 'helpers'] : ['plan', 'helpers'];
  return (
    <>
      {toggles.map((name) => (
        <button
          key={name}
          type="button"
          className="quiet toggle"
          aria-pressed={options.toggles[name]}
          title={say(`composer.${name}.help`)}
          onClick={() => options.toggle(name)}
        >
          {say(`composer.${name}`)}
        </button>
      ))}
      {takesEffort(options) ? (
        <select
          aria-label={say('composer.effort')}
          value={options.effort ?? ''}
          onChange={(event) => options.setEffort(effortOf(event.target.value))}
        >
          <option value="">{say('composer.effort.usual')}</option>
          {EFFORTS.map((effort) => (
            <option key={effort} value={effort}>
              {say(`composer.effort.${effort}`)}
            </option>
          ))}
        </select>
      ) : null}
      {options.models.length < 2 ? null : (
        <select
          aria-label={say('composer.model')}
          value={options.model?.name ?? ''}
          onChange={(event) => options.choose(event.target.value)}
        >
          {options.models.map((entry) => (
            <option key={entry.name} value={entry.name}>
              {entry.displayName}
            </option>
          ))}
        </select>
      )}
    </>
  );
}
