import { useMemo, useState } from 'react';
import { usePage } from '../parts/page-context.tsx';
import { useWork, WorkTrouble } from '../parts/use-work.tsx';
import { useChat } from './chat-context.tsx';
import { type ChatMessage, readMessage } from './message.ts';
import { TurnView } from './turn-view.tsx';
import { toTurns } from './turns.ts';
import { isDictionary, isWireMessage, listOf } from './wire.ts';

const PAGES_AT_ONCE = 10;

interface EarlierProps {
  /** How many messages a summary took the place of. */
  readonly count: number;
  /** Ids of what is shown below. */
  readonly known: ReadonlySet<string>;
}

/** Messages that the agent knows by a summary only. They stand in the log still: the user can read them. */
export function Earlier({ count, known }: EarlierProps) {
  const { say } = usePage();
  const { rest, controller } = useChat();
  const [messages, setMessages] = useState<readonly ChatMessage[]>([]);
  // Where the log is read on, backwards; null = from its end, 'done' = all of it was read.
  const [cursor, setCursor] = useState<number | null | 'done'>(null);
  const work = useWork();
  const turns = useMemo(() => toTurns(messages, false), [messages]);
  const load = () =>
    work.run(async () => {
      let at = cursor;
      let found: readonly ChatMessage[] = [];
      for (let pages = 0; pages < PAGES_AT_ONCE && at !== 'done' && found.length === 0; pages += 1) {
        const before = at === null ? '' : `&before_seq=${at}`;
        const page = await rest.get(
          `/threads/${encodeURIComponent(controller.threadId)}/messages/page?limit=200${before}`,
        );
        found = earlierOf(page, known);
        const next: unknown = isDictionary(page) ? page.next_before_seq : null;
        at = typeof next === 'number' ? next : 'done';
      }
      setMessages((now) => [...found, ...now]);
      setCursor(at);
    });
  return (
    <>
      <p className="note">
        {say('chat.summarised', { count })}{' '}
        {cursor === 'done' ? null : (
          <button type="button" className="link" disabled={work.busy} onClick={load}>
            {messages.length === 0 ? say('chat.showEarlier') : say('threads.more')}
          </button>
        )}
      </p>
      <WorkTrouble trouble={work.trouble} />
      {turns.map((turn) => (
        <TurnView key={turn.id} turn={turn} busy newest={false} onAnswer={() => {}} />
      ))}
    </>
  );
}

/** The messages of a page that are not shown already, oldest first. */
export function earlierOf(page: unknown, known: ReadonlySet<string>): readonly ChatMessage[] {
  return listOf(isDictionary(page) ? page.data : null).flatMap((row, index) => {
    const wire = isDictionary(row) ? row.content : null;
    const message = isWireMessage(wire) ? readMessage(wire, index) : null;
    return message === null || known.has(message.id) ? [] : [message];
  });
}
