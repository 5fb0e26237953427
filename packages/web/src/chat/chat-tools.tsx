import { useCallback, useEffect, useState, useSyncExternalStore } from 'react';
import type { Api } from '../api/api.ts';
import { FilesPanel } from '../files/files-panel.tsx';
import { Dialog } from '../parts/dialog.tsx';
import { Icon } from '../parts/icons.tsx';
import { usePage } from '../parts/page-context.tsx';
import { saveFile } from '../parts/save-file.ts';
import { useWork, WorkTrouble } from '../parts/use-work.tsx';
import { moneyText, whole } from '../words/words.ts';
import type { ChatController } from './controller.ts';
import { chatMarkdown, markdownName } from './export.ts';
import { readUsage, type Usage } from './usage.ts';

interface ChatToolsProps {
  readonly api: Api;
  readonly controller: ChatController;
}

/** What stands beside the title of a chat: its files and what it used. */
export function ChatTools({ api, controller }: ChatToolsProps) {
  const { say, openFile } = usePage();
  const state = useSyncExternalStore(controller.subscribe, controller.snapshot);
  const [open, setOpen] = useState<'files' | null>(null);
  const close = useCallback(() => setOpen(null), []);
  const hasTurns = state.settled.length > 0;
  if (!hasTurns) return null;
  const count = state.artifacts.length;
  return (
    <div className="head-actions">
      <UsageButton api={api} threadId={controller.threadId} idle={state.run === null} />
      <button type="button" className="quiet" aria-label={say('files.presented')} onClick={() => setOpen('files')}>
        <Icon name="file" /> <span className="word">{say('files.presented')}</span>
        {count === 0 ? null : <span className="badge">{count}</span>}
      </button>
      <ExportButton api={api} threadId={controller.threadId} title={state.title ?? say('threads.untitled')} />
      {open === 'files' ? (
        <FilesPanel
          rest={api.rest}
          threadId={controller.threadId}
          presented={state.artifacts}
          onOpen={(path) => {
            close();
            openFile(path);
          }}
          onClose={close}
        />
      ) : null}
    </div>
  );
}

/** What was said, as a file: no steps, no reasoning, nothing that was hidden. */
function ExportButton({
  api,
  threadId,
  title,
}: {
  readonly api: Api;
  readonly threadId: string;
  readonly title: string;
}) {
  const { say } = usePage();
  const work = useWork();
  const names = { you: say('export.you'), agent: say('chat.agent') };
  return (
    <>
      <button
        type="button"
        className="quiet square"
        aria-label={say('export.button')}
        title={say('export.button')}
        disabled={work.busy}
        onClick={() =>
          work.run(async () => saveFile(await chatMarkdown(api.rest, { threadId, title, names }), markdownName(title)))
        }
      >
        <Icon name="save" />
      </button>
      <WorkTrouble trouble={work.trouble} />
    </>
  );
}

function UsageButton({
  api,
  threadId,
  idle,
}: {
  readonly api: Api;
  readonly threadId: string;
  /** Read again whenever a run has ended. */
  readonly idle: boolean;
}) {
  const { say, language } = usePage();
  const [usage, setUsage] = useState<Usage | null>(null);
  const [open, setOpen] = useState(false);
  const close = useCallback(() => setOpen(false), []);
  useEffect(() => {
    if (!idle) return;
    const leave = new AbortController();
    api.rest.get(`/threads/${encodeURIComponent(threadId)}/token-usage`, leave.signal).then(
      (answer) => setUsage(readUsage(answer)),
      () => {},
    );
    return () => leave.abort();
  }, [api, threadId, idle]);
  if (usage === null || usage.total === 0) return null;
  const number = (count: number) => whole(count, language);
  return (
    <>
      <button type="button" className="quiet usage" title={say('usage.title')} onClick={() => setOpen(true)}>
        {say('task.tokens', { count: number(usage.total) })}
      </button>
      {open ? (
        <Dialog title={say('usage.title')} onClose={close}>
          <p className="note">
            {say('usage.sum', {
              input: number(usage.input),
              output: number(usage.output),
              runs: number(usage.runs),
            })}
          </p>
          <Shares
            title={say('usage.models')}
            shares={usage.models.map(({ name, tokens, cost }) => ({
              label: cost === null ? name : `${name} · ${moneyText(cost.amount, cost.currency, language)}`,
              tokens,
            }))}
          />
          <Shares
            title={say('usage.callers')}
            shares={usage.callers.map(({ caller, tokens }) => ({ label: say(`usage.caller.${caller}`), tokens }))}
          />
        </Dialog>
      ) : null}
    </>
  );
}

/** Shares as bars: seen sooner than read. */
function Shares({
  title,
  shares,
}: {
  readonly title: string;
  readonly shares: readonly { readonly label: string; readonly tokens: number }[];
}) {
  const { language } = usePage();
  const shown = shares.filter(({ tokens }) => tokens > 0);
  const most = Math.max(1, ...shown.map(({ tokens }) => tokens));
  if (shown.length === 0) return null;
  return (
    <section className="shares">
      <h3>{title}</h3>
      <dl>
        {shown.map(({ label, tokens }) => (
          <div key={label}>
            <dt>{label}</dt>
            <dd>
              <i aria-hidden="true" style={{ width: `${(tokens * 100) / most}%` }} />
              {whole(tokens, language)}
            </dd>
          </div>
        ))}
      </dl>
    </section>
  );
}
