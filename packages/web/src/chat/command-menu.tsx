import { type KeyboardEvent, useEffect, useState } from 'react';
import type { Rest } from '../api/rest.ts';
import { moved } from '../parts/choice.ts';
import { Dialog } from '../parts/dialog.tsx';
import { usePage } from '../parts/page-context.tsx';
import { readSkills, type Skill } from '../skills/skills.ts';
import { isWordKey } from '../words/words.ts';
import { begunCommand, COMMANDS, callable, type Offer, offers } from './commands.ts';

export const MENU_ID = 'command-menu';
export const offerId = (index: number): string => `${MENU_ID}-${index}`;

export interface CommandMenu {
  readonly offered: readonly Offer[];
  /** Which of them Enter takes. */
  readonly chosen: number;
  /** True = the key was for the list. */
  readonly onKey: (event: KeyboardEvent) => boolean;
  readonly take: (offer: Offer) => void;
  readonly skills: readonly Skill[];
}

/** The list that opens when a text begins with a slash. Skills are read when it opens. */
export function useCommandMenu(rest: Rest, text: string, write: (text: string) => void): CommandMenu {
  const begun = begunCommand(text);
  const isBegun = begun !== null;
  const [skills, setSkills] = useState<readonly Skill[]>([]);
  const [chosen, setChosen] = useState(0);
  // Escape closes it until something else is written.
  const [closed, setClosed] = useState(false);
  useEffect(() => {
    if (!isBegun) return;
    const leave = new AbortController();
    rest.get('/skills', leave.signal).then(
      (found) => setSkills(readSkills(found)),
      // The commands of the page are offered without them.
      () => {},
    );
    return () => leave.abort();
  }, [rest, isBegun]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: another text is another list
  useEffect(() => {
    setChosen(0);
    setClosed(false);
  }, [text]);
  const offered = begun === null || closed ? [] : offers(begun, skills);
  const take = (offer: Offer) => write(`/${offer.name} `);
  const at = Math.min(chosen, offered.length - 1);
  const onKey = (event: KeyboardEvent): boolean => {
    const offer = offered[at];
    if (offer === undefined || event.nativeEvent.isComposing || event.shiftKey) return false;
    const next = moved(at, offered.length, event.key);
    if (next !== null) {
      setChosen(next);
      return true;
    }
    switch (event.key) {
      case 'Tab':
        take(offer);
        return true;
      case 'Enter':
        // A name that is written out is sent.
        if (offer.name === begun) return false;
        take(offer);
        return true;
      case 'Escape':
        setClosed(true);
        return true;
      default:
        return false;
    }
  };
  return { offered, chosen: at, onKey, take, skills };
}

export function CommandList({ menu }: { readonly menu: CommandMenu }) {
  const { say } = usePage();
  if (menu.offered.length === 0) return null;
  return (
    <div className="commands" role="listbox" id={MENU_ID} aria-label={say('commands.label')}>
      {menu.offered.map((offer, index) => (
        // biome-ignore lint/a11y/useKeyWithClickEvents: the keys are the message field's
        // biome-ignore lint/a11y/useFocusableInteractive: as above
        <div
          key={offer.name}
          id={offerId(index)}
          role="option"
          className="offer"
          aria-selected={index === menu.chosen}
          // The focus stays where the user writes.
          onMouseDown={(event) => event.preventDefault()}
          onClick={() => menu.take(offer)}
        >
          <code>/{offer.name}</code>{' '}
          <span className="offer-text">{offer.skill?.description ?? helpOf(offer.name, say)}</span>
          {offer.skill === null ? null : <small className="badge">{say('commands.skill')}</small>}
        </div>
      ))}
    </div>
  );
}

function helpOf(name: string, say: ReturnType<typeof usePage>['say']): string {
  const key = `commands.${name}`;
  return isWordKey(key) ? say(key) : '';
}

/** Everything that can be written after a slash. */
export function CommandHelp({ skills, onClose }: { readonly skills: readonly Skill[]; readonly onClose: () => void }) {
  const { say } = usePage();
  const called = callable(skills);
  return (
    <Dialog title={say('commands.help.title')} onClose={onClose}>
      <dl className="command-help">
        {COMMANDS.map((name) => (
          <div key={name}>
            <dt>
              <code>/{name}</code>
            </dt>
            <dd>{helpOf(name, say)}</dd>
          </div>
        ))}
      </dl>
      {called.length === 0 ? null : (
        <>
          <h3>{say('commands.help.skills')}</h3>
          <dl className="command-help">
            {called.map(({ name, description }) => (
              <div key={name}>
                <dt>
                  <code>/{name}</code>
                </dt>
                <dd>{description}</dd>
              </div>
            ))}
          </dl>
        </>
      )}
    </Dialog>
  );
}
