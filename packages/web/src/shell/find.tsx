import { type KeyboardEvent, useCallback, useEffect, useMemo, useState } from 'react';
import type { Api } from '../api/api.ts';
import { moved } from '../parts/choice.ts';
import { Dialog } from '../parts/dialog.tsx';
import { usePage } from '../parts/page-context.tsx';
import { useLoad, WorkTrouble } from '../parts/use-work.tsx';
import { NEW_CHAT, PAGES, type Place, pathOf } from '../route.ts';
import { besides, fitting } from './fitting.ts';
import { useFoundInChats } from './use-found-in-chats.ts';

/** As many as one answer of the server holds. */
const READ = 1_000;
const LIST = 'found';

const chat = (threadId: string, name: string, snippet = '') => ({
  name,
  place: { at: 'chat', threadId } as Place,
  page: false,
  snippet,
});

/** Control+K or Command+K, unless something lies over the page already. */
export function useFindKey(open: (finding: boolean) => void): void {
  useEffect(() => {
    const onKey = (event: globalThis.KeyboardEvent) => {
      if (event.key.toLowerCase() !== 'k' || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey)
        return;
      if (document.querySelector('dialog[open]') !== null) return;
      event.preventDefault();
      open(true);
    };
    addEventListener('keydown', onKey);
    return () => removeEventListener('keydown', onKey);
  }, [open]);
}

/** Chats and pages by their names, and chats by what is said in them, with the keyboard. */
export function FindDialog({ api, onClose }: { readonly api: Api; readonly onClose: () => void }) {
  const { say, go } = usePage();
  const [text, setText] = useState('');
  const [chosen, setChosen] = useState(0);
  const { value, trouble } = useLoad(useCallback(() => api.searchThreads(READ, 0), [api]));
  const inside = useFoundInChats(api, text);
  const places = useMemo(
    () => [
      { name: say('threads.new'), place: NEW_CHAT, page: true, snippet: '' },
      ...PAGES.map((page) => ({ name: say(`page.${page}`), place: { at: page } as Place, page: true, snippet: '' })),
      ...(value ?? []).map(({ threadId, title }) => chat(threadId, title ?? say('threads.untitled'))),
    ],
    [value, say],
  );
  const named = fitting(text, places);
  const found = [
    ...named,
    ...besides(
      named.map(({ place }) => pathOf(place)),
      inside.found.chats.map(({ threadId, title, snippet }) =>
        chat(threadId, title ?? say('threads.untitled'), snippet),
      ),
      ({ place }) => pathOf(place),
    ),
  ];
  const at = Math.min(chosen, found.length - 1);
  const open = (place: Place) => {
    onClose();
    go(place);
  };
  const onKey = (event: KeyboardEvent) => {
    if (event.nativeEvent.isComposing) return;
    const next = moved(at, found.length, event.key);
    const entry = found[at];
    if (next !== null) setChosen(next);
    else if (event.key === 'Enter' && entry !== undefined) open(entry.place);
    else return;
    event.preventDefault();
  };
  return (
    <Dialog title={say('find.title')} onClose={onClose}>
      <input
        type="text"
        role="combobox"
        className="wide-field"
        aria-label={say('find.label')}
        aria-expanded={found.length > 0}
        aria-controls={LIST}
        aria-activedescendant={found.length === 0 ? undefined : `${LIST}-${at}`}
        aria-autocomplete="list"
        placeholder={say('find.label')}
        value={text}
        maxLength={200}
        onChange={(event) => {
          setText(event.target.value);
          setChosen(0);
        }}
        onKeyDown={onKey}
      />
      <WorkTrouble trouble={trouble ?? inside.trouble} />
      <div className="commands found" role="listbox" id={LIST} aria-label={say('find.title')}>
        {found.map((entry, index) => (
          // biome-ignore lint/a11y/useKeyWithClickEvents: the keys are the field's
          // biome-ignore lint/a11y/useFocusableInteractive: as above
          <div
            key={pathOf(entry.place)}
            id={`${LIST}-${index}`}
            role="option"
            className="offer"
            aria-selected={index === at}
            onClick={() => open(entry.place)}
          >
            <span className="offer-text">
              {entry.name}
              {entry.snippet === '' ? null : <small className="snippet">{entry.snippet}</small>}
            </span>
            {entry.page ? <small className="badge">{say('find.page')}</small> : null}
          </div>
        ))}
      </div>
      <p className="note">
        {inside.looking ? say('find.looking') : found.length === 0 ? say('find.none') : say('find.hint')}
        {inside.found.complete ? null : ` ${say('find.newest')}`}
      </p>
    </Dialog>
  );
}
