import { lazy, Suspense, useEffect, useState } from 'react';
import type { Api } from '../api/api.ts';
import { asTrouble } from '../api/trouble.ts';
import type { Trouble } from '../chat/state.ts';
import { CopyButton } from '../parts/copy-button.tsx';
import { Dialog } from '../parts/dialog.tsx';
import { Icon } from '../parts/icons.tsx';
import { usePage } from '../parts/page-context.tsx';
import { SafePart } from '../parts/safe-part.tsx';
import { saveFile } from '../parts/save-file.ts';
import { troubleText } from '../parts/trouble-text.ts';
import { useWork, WorkTrouble } from '../parts/use-work.tsx';
import { install } from '../skills/skills.ts';
import { sizeText } from '../words/words.ts';
import { decodeText, type FileKind, fileKind, fileName, mediaType } from './kinds.ts';

const Table = lazy(() => import('./table.tsx'));
const Markdown = lazy(() => import('../markdown/markdown.tsx'));

/** Text beyond this is cut; media beyond the other bound are offered for download only. */
const TEXT_BYTES = 1024 * 1024;
const MEDIA_BYTES = 64 * 1024 * 1024;

type Content =
  | { readonly kind: 'loading' }
  | { readonly kind: 'failed'; readonly trouble: Trouble }
  | { readonly kind: 'text'; readonly text: string; readonly size: number | null; readonly shown: number }
  | { readonly kind: 'media'; readonly address: string }
  | { readonly kind: 'none' };

interface ViewerProps {
  readonly api: Api;
  readonly threadId: string;
  readonly path: string;
  readonly onClose: () => void;
}

/** A file of the thread, fetched with the token and shown so that nothing of it can run or load anything. */
export function FileViewer({ api, threadId, path, onClose }: ViewerProps) {
  const { say } = usePage();
  const kind = fileKind(path);
  const [asSource, setAsSource] = useState(false);
  const content = useContent(api, threadId, path, kind);
  const canToggle = content.kind === 'text' && (kind === 'markdown' || kind === 'page' || kind === 'table');
  return (
    <Dialog title={fileName(path)} onClose={onClose} wide>
      <div className="viewer-bar">
        {canToggle ? (
          <button type="button" className="quiet" aria-pressed={asSource} onClick={() => setAsSource(!asSource)}>
            {asSource ? say('files.preview') : say('files.source')}
          </button>
        ) : null}
        {content.kind === 'text' ? <CopyButton text={() => content.text} /> : null}
        <DownloadButton api={api} threadId={threadId} path={path} />
        {kind === 'skill' ? <InstallButton api={api} threadId={threadId} path={path} /> : null}
      </div>
      <div className="viewer">
        <Shown content={content} kind={asSource ? 'text' : kind} name={fileName(path)} />
      </div>
    </Dialog>
  );
}

function Shown({ content, kind, name }: { readonly content: Content; readonly kind: FileKind; readonly name: string }) {
  const { say, openFile } = usePage();
  switch (content.kind) {
    case 'loading':
      return <p role="status">{say('files.loading')}</p>;
    case 'failed':
      return (
        <p role="alert" className="trouble">
          {say('files.failed')} {troubleText(content.trouble, say)}
        </p>
      );
    case 'none':
      return <p>{say('files.noPreview')}</p>;
    case 'media':
      if (kind === 'audio') {
        // biome-ignore lint/a11y/useMediaCaption: a file of the user has no captions
        return <audio controls src={content.address} />;
      }
      if (kind === 'video') {
        // biome-ignore lint/a11y/useMediaCaption: a file of the user has no captions
        return <video controls src={content.address} />;
      }
      if (kind === 'paper') return <iframe src={content.address} title={name} referrerPolicy="no-referrer" />;
      return <img src={content.address} alt={name} />;
    case 'text': {
      const plain = (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: long text must be scrollable with the keyboard
        <pre className="source" tabIndex={0}>
          {content.text}
        </pre>
      );
      const cut =
        content.size !== null && content.size > content.shown ? (
          <p className="note">{say('files.cut', { shown: sizeText(content.shown), size: sizeText(content.size) })}</p>
        ) : null;
      if (kind === 'markdown' || kind === 'skill') {
        return (
          <>
            {cut}
            <div className="markdown">
              <SafePart fallback={plain}>
                <Suspense fallback={plain}>
                  <Markdown text={content.text} onFile={openFile} />
                </Suspense>
              </SafePart>
            </div>
          </>
        );
      }
      if (kind === 'table') {
        return (
          <>
            {cut}
            <SafePart fallback={plain}>
              <Suspense fallback={plain}>
                <Table text={content.text} tabs={/\.tsv$/i.test(name)} />
              </Suspense>
            </SafePart>
          </>
        );
      }
      if (kind === 'page') {
        return (
          <>
            {cut}
            <p className="note">{say('files.sandboxed')}</p>
            {/* An empty sandbox: no scripts, no forms, an origin of its own. */}
            <iframe sandbox="" srcDoc={content.text} title={name} referrerPolicy="no-referrer" />
          </>
        );
      }
      return (
        <>
          {cut}
          {plain}
        </>
      );
    }
  }
}

function useContent(api: Api, threadId: string, path: string, kind: FileKind): Content {
  const [content, setContent] = useState<Content>({ kind: 'loading' });
  useEffect(() => {
    const leave = new AbortController();
    let address: string | null = null;
    const isMedia = kind === 'image' || kind === 'audio' || kind === 'video' || kind === 'paper';
    setContent({ kind: 'loading' });
    const load = async (): Promise<Content> => {
      // Of a skill its instructions are shown, out of the archive.
      const shown = kind === 'skill' ? `${path}/SKILL.md` : path;
      const file = await api.file(threadId, shown, isMedia ? MEDIA_BYTES : TEXT_BYTES, leave.signal);
      if (isMedia) {
        if (file.size !== null && file.size > file.blob.size) return { kind: 'none' };
        // The browser's own viewer gets what is a PDF and nothing else.
        if (kind === 'paper' && !(await file.blob.slice(0, 5).text()).startsWith('%PDF-')) return { kind: 'none' };
        address = URL.createObjectURL(new Blob([file.blob], { type: mediaType(path) }));
        return { kind: 'media', address };
      }
      const bytes = new Uint8Array(await file.blob.arrayBuffer());
      const text = decodeText(bytes);
      return text === null ? { kind: 'none' } : { kind: 'text', text, size: file.size, shown: bytes.length };
    };
    load().then(
      (loaded) => {
        if (!leave.signal.aborted) setContent(loaded);
        else if (address !== null) URL.revokeObjectURL(address);
      },
      (error: unknown) => {
        if (!leave.signal.aborted) setContent({ kind: 'failed', trouble: asTrouble(error) });
      },
    );
    return () => {
      leave.abort();
      if (address !== null) URL.revokeObjectURL(address);
    };
  }, [api, threadId, path, kind]);
  return content;
}

function DownloadButton({
  api,
  threadId,
  path,
}: {
  readonly api: Api;
  readonly threadId: string;
  readonly path: string;
}) {
  const { say } = usePage();
  const [trouble, setTrouble] = useState<Trouble | null>(null);
  const [busy, setBusy] = useState(false);
  const download = async () => {
    setBusy(true);
    setTrouble(null);
    try {
      const file = await api.file(threadId, path, null, new AbortController().signal);
      saveFile(file.blob, fileName(path));
    } catch (error) {
      setTrouble(asTrouble(error));
    } finally {
      setBusy(false);
    }
  };
  return (
    <>
      <button type="button" className="quiet" disabled={busy} onClick={() => void download()}>
        <Icon name="save" /> {busy ? say('files.loading') : say('files.download')}
      </button>
      {trouble === null ? null : (
        <span role="alert" className="trouble">
          {troubleText(trouble, say)}
        </span>
      )}
    </>
  );
}

/** A skill that lies in the chat becomes one of the user's. */
function InstallButton({
  api,
  threadId,
  path,
}: {
  readonly api: Api;
  readonly threadId: string;
  readonly path: string;
}) {
  const { say } = usePage();
  const work = useWork();
  const [installed, setInstalled] = useState<string | null>(null);
  return (
    <>
      <button
        type="button"
        disabled={work.busy || installed !== null}
        onClick={() => work.run(async () => setInstalled(await install(api, threadId, path)))}
      >
        <Icon name="skill" /> {say('skills.installThis')}
      </button>
      {installed === null ? null : <span role="status">{say('skills.installed', { name: installed })}</span>}
      <WorkTrouble trouble={work.trouble} />
    </>
  );
}
