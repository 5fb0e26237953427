import { useStream } from '@langchain/langgraph-sdk/react';
import { useState } from 'react';
import { createRoot } from 'react-dom/client';

/** A page that does nothing but use the official hook, as somebody's own front end would. */
function Probe() {
  const [threadId, setThreadId] = useState(() => new URLSearchParams(location.search).get('thread'));
  const [text, setText] = useState('');
  const stream = useStream<{ messages: { type: string; id?: string; content: unknown }[] }>({
    apiUrl: `${location.origin}/api`,
    apiKey: null,
    assistantId: 'lead_agent',
    threadId,
    onThreadId: (id) => {
      history.replaceState(null, '', `?thread=${id}`);
      setThreadId(id);
    },
    reconnectOnMount: true,
    fetchStateHistory: { limit: 1 },
  });
  return (
    <>
      <input aria-label="Text" value={text} onChange={(event) => setText(event.target.value)} />
      <button type="button" onClick={() => void stream.submit({ messages: [{ type: 'human', content: text }] })}>
        Submit
      </button>
      <button type="button" onClick={() => void stream.stop()}>
        Stop
      </button>
      <p data-loading={stream.isLoading}>{stream.isLoading ? 'loading' : 'idle'}</p>
      <p role="alert">{stream.error === undefined || stream.error === null ? '' : String(stream.error)}</p>
      <ol>
        {stream.messages.map((message) => (
          <li key={message.id} data-type={message.type}>
            {typeof message.content === 'string' ? message.content : JSON.stringify(message.content)}
          </li>
        ))}
      </ol>
    </>
  );
}

createRoot(document.body.appendChild(document.createElement('main'))).render(<Probe />);
