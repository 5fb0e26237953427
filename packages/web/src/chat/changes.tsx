import { useCallback, useEffect, useState } from 'react';
import { Dialog } from '../parts/dialog.tsx';
import { Icon } from '../parts/icons.tsx';
import { usePage } from '../parts/page-context.tsx';
import { Content } from '../parts/page-frame.tsx';
import { useLoad } from '../parts/use-work.tsx';
import { isWordKey } from '../words/words.ts';
import { type ChangeSummary, readChanges, readSummary } from './change-list.ts';
import { useChat } from './chat-context.tsx';

/** Files that a run changed, in one button; nothing when it changed none. */
export function ChangesBadge({ runId }: { readonly runId: string }) {
  const { say } = usePage();
  const { rest, controller } = useChat();
  const [summary, setSummary] = useState<ChangeSummary | null>(null);
  const [open, setOpen] = useState(false);
  const path = `/threads/${encodeURIComponent(controller.threadId)}/runs/${encodeURIComponent(runId)}/workspace-changes`;
  useEffect(() => {
    const leave = new AbortController();
    rest.get(`${path}?include_files=false`, leave.signal).then(
      (answer) => setSummary(readSummary(answer)),
      () => {},
    );
    return () => leave.abort();
  }, [rest, path]);
  if (summary === null || summary.files === 0) return null;
  return (
    <>
      <button type="button" className="quiet small changed" onClick={() => setOpen(true)}>
        <Icon name="changes" /> {say('changes.files', { count: summary.files })}
        <Lines plus={summary.additions} minus={summary.deletions} />
      </button>
      {open ? <ChangesDialog path={path} onClose={() => setOpen(false)} /> : null}
    </>
  );
}

function Lines({ plus, minus }: { readonly plus: number; readonly minus: number }) {
  const { say } = usePage();
  if (plus === 0 && minus === 0) return null;
  return (
    <span className="lines">
      <span className="only-heard">{say('changes.lines', { plus, minus })}</span>
      <span aria-hidden="true">
        {plus > 0 ? <b className="plus">+{plus}</b> : null} {minus > 0 ? <b className="minus">−{minus}</b> : null}
      </span>
    </span>
  );
}

function ChangesDialog({ path, onClose }: { readonly path: string; readonly onClose: () => void }) {
  const { say, openFile } = usePage();
  const { rest } = useChat();
  const load = useCallback(
    async (signal: AbortSignal) => readChanges(await rest.get(`${path}?include_diff=true`, signal)),
    [rest, path],
  );
  const { value, trouble, reload } = useLoad(load);
  return (
    <Dialog title={say('changes.title')} onClose={onClose} wide>
      <Content loading={value === null} trouble={trouble} onRetry={reload}>
        {value?.map((file) => {
          const why = `changes.none.${file.reason}`;
          return (
            <details key={file.path} className="change" open={value.length < 4}>
              <summary>
                <span className={`badge ${file.status}`}>{say(`changes.${file.status}`)}</span>
                <code>{file.path}</code>
                <Lines plus={file.additions} minus={file.deletions} />
              </summary>
              {file.diff === null ? (
                <p className="note">{isWordKey(why) ? say(why) : say('changes.none.other')}</p>
              ) : (
                // biome-ignore lint/a11y/noNoninteractiveTabindex: long lines must be scrollable with the keyboard
                <pre className="diff" tabIndex={0}>
                  {file.diff.map((line) => (
                    <span key={line.number} className={line.kind}>
                      {line.text}
                      {'\n'}
                    </span>
                  ))}
                </pre>
              )}
              {file.status === 'deleted' ? null : (
                <button
                  type="button"
                  onClick={() => {
                    onClose();
                    openFile(file.path);
                  }}
                >
                  {say('changes.open')}
                </button>
              )}
            </details>
          );
        })}
      </Content>
    </Dialog>
  );
}
