import { useEffect, useState } from 'react';
import { usePage } from '../parts/page-context.tsx';
import { useChat, useChatState } from './chat-context.tsx';
import type { ChatMessage } from './message.ts';
import { allMessages } from './state.ts';
import { isDictionary, listOf } from './wire.ts';

/** Messages that are told; the newest say most about what comes next. */
const TOLD = 6;
const LONGEST = 4_000;

/** Next questions, after an answer that was seen to come in; nothing where the server makes none. */
export function Suggestions() {
  const { say } = usePage();
  const { rest, controller } = useChat();
  const ended = useChatState((state) => (state.run === null ? state.ended : null));
  const [offered, setOffered] = useState<readonly string[]>([]);
  useEffect(() => {
    setOffered([]);
    const state = controller.snapshot();
    // A chat that is merely opened asks nothing of a model.
    if (ended?.how !== 'success' || state.interrupts.length > 0) return;
    const messages = toldOf(allMessages(state));
    if (messages.at(-1)?.role !== 'assistant') return;
    const leave = new AbortController();
    const ask = async () => {
      const config = await rest.get('/suggestions/config', leave.signal);
      if (!isDictionary(config) || config.enabled !== true || leave.signal.aborted) return;
      const n = typeof config.max_suggestions === 'number' ? config.max_suggestions : 3;
      const path = `/threads/${encodeURIComponent(controller.threadId)}/suggestions`;
      const answer = await rest.send('POST', path, { messages, n });
      if (!leave.signal.aborted)
        setOffered(listOf(isDictionary(answer) ? answer.suggestions : null).filter((text) => typeof text === 'string'));
    };
    // They are an offer: without them nothing is missing.
    ask().catch(() => {});
    return () => leave.abort();
  }, [rest, controller, ended]);
  if (offered.length === 0) return null;
  return (
    <ul className="suggestions" aria-label={say('chat.suggestions')}>
      {offered.map((text) => (
        <li key={text}>
          <button type="button" onClick={() => void controller.send(text, [])}>
            {text}
          </button>
        </li>
      ))}
    </ul>
  );
}

/** What was said, without steps and tools. A question that waits for its answer ends in a tool message: then nothing is offered. */
export function toldOf(messages: readonly ChatMessage[]): readonly { role: 'user' | 'assistant'; content: string }[] {
  const last = messages.at(-1);
  if (last?.kind !== 'ai') return [];
  return messages
    .flatMap((message) => {
      if (message.kind === 'tool' || message.hidden || message.text === '') return [];
      const role = message.kind === 'human' ? ('user' as const) : ('assistant' as const);
      return [{ role, content: message.text.slice(0, LONGEST) }];
    })
    .slice(-TOLD);
}
