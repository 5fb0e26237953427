import { useMemo } from 'react';
import { fileKind, fileName } from '../files/kinds.ts';
import { Thumbnail } from '../files/thumbnail.tsx';
import { SafeLink } from '../markdown/safe-link.tsx';
import { CodeBlock } from '../parts/code-block.tsx';
import { Icon } from '../parts/icons.tsx';
import { usePage } from '../parts/page-context.tsx';
import { toolTitle } from '../words/tools.ts';
import { useChat } from './chat-context.tsx';
import { readHits } from './hits.ts';
import { readTodos } from './todos.ts';
import type { CallView } from './turns.ts';
import { presentedFiles } from './turns.ts';
import { listOf } from './wire.ts';

/** Text beyond this would only slow the page down; the file or the log has the rest. */
const SHOWN = 30_000;

/** One tool call: what it is, how it stands, and, folded away, its arguments and result. */
export function ToolCard({ view }: { readonly view: CallView }) {
  const { say, language } = usePage();
  const { call, result, status } = view;
  const files = presentedFiles(view);
  return (
    <>
      <details className={`tool ${status}`} data-tool={call.name} data-status={status}>
        <summary>
          <Icon name="tool" />
          <span className="tool-name">{toolTitle(call.name, language) || '…'}</span>
          <span className="tool-hint">{hintOf(view)}</span>
          <span className="tool-status">{say(`tool.status.${status}`)}</span>
        </summary>
        <div className="tool-body">
          {status === 'unknown' || status === 'no-result' ? <p className="note">{say(`tool.${status}.help`)}</p> : null}
          <h4>{say('tool.arguments')}</h4>
          <Arguments view={view} />
          {result === null ? null : (
            <>
              <h4>{say('tool.result')}</h4>
              <Result tool={call.name} text={result.text} />
            </>
          )}
        </div>
      </details>
      {files.length === 0 ? null : <FileCards paths={files} />}
    </>
  );
}

/** What a search found as links, anything else as it is. */
function Result({ tool, text }: { readonly tool: string; readonly text: string }) {
  const { say, openFile } = usePage();
  const hits = useMemo(() => readHits(tool, text), [tool, text]);
  if (hits === null) return <CodeBlock>{text === '' ? say('tool.empty') : cut(text)}</CodeBlock>;
  return (
    <ol className="hits">
      {hits.map((hit, index) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: a page may be found twice, and a result never changes
        <li key={index}>
          <SafeLink address={hit.address} label={hit.title} onFile={openFile} />
          <p className="note">{hit.snippet === '' ? hit.address : hit.snippet}</p>
        </li>
      ))}
    </ol>
  );
}

function Arguments({ view }: { readonly view: CallView }) {
  const { call } = view;
  if (call.args === null) return <CodeBlock>{cut(call.argsText)}</CodeBlock>;
  const entries = Object.entries(call.args).filter(([name]) => name !== 'description');
  return (
    <dl className="arguments">
      {entries.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>
            {typeof value === 'string' && !value.includes('\n') && value.length < 200 ? (
              <code>{value}</code>
            ) : (
              <CodeBlock>{cut(typeof value === 'string' ? value : JSON.stringify(value, null, 2))}</CodeBlock>
            )}
          </dd>
        </div>
      ))}
    </dl>
  );
}

/** The argument that says most, in one line. */
function hintOf({ call }: CallView): string {
  const args = call.args ?? {};
  if (call.name === 'write_todos')
    return readTodos(listOf(args.todos)).find((todo) => todo.status === 'in_progress')?.content ?? '';
  for (const name of [
    'command',
    'path',
    'image_path',
    'pattern',
    'filepaths',
    'query',
    'url',
    'description',
    'content',
  ]) {
    const value = args[name];
    if (typeof value === 'string' && value !== '') return value.slice(0, 400).replace(/\s+/g, ' ').slice(0, 160);
    if (Array.isArray(value)) return value.map((entry) => fileName(String(entry))).join(', ');
  }
  return '';
}

function cut(text: string): string {
  return text.length <= SHOWN ? text : `${text.slice(0, SHOWN)}\n… (+${text.length - SHOWN})`;
}

export function FileCards({ paths }: { readonly paths: readonly string[] }) {
  const { say, openFile } = usePage();
  const { api, controller } = useChat();
  return (
    <ul className="files" aria-label={say('files.presented')}>
      {paths.map((path) => (
        <li key={path}>
          <button
            type="button"
            className="file"
            onClick={() => openFile(path)}
            aria-label={say('files.open', { name: fileName(path) })}
          >
            {fileKind(path) === 'image' ? (
              <Thumbnail api={api} threadId={controller.threadId} path={path} />
            ) : (
              <Icon name="file" />
            )}
            <span>{fileName(path)}</span>
          </button>
        </li>
      ))}
    </ul>
  );
}
