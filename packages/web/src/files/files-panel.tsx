import { useCallback } from 'react';
import type { Rest } from '../api/rest.ts';
import { isDictionary, listOf, textOr } from '../chat/wire.ts';
import { Dialog } from '../parts/dialog.tsx';
import { Icon } from '../parts/icons.tsx';
import { usePage } from '../parts/page-context.tsx';
import { Content } from '../parts/page-frame.tsx';
import { useLoad } from '../parts/use-work.tsx';
import { sizeText } from '../words/words.ts';
import { fileName } from './kinds.ts';

interface FilesPanelProps {
  readonly rest: Rest;
  readonly threadId: string;
  /** Paths of what the agent has presented, the newest last. */
  readonly presented: readonly string[];
  readonly onOpen: (path: string) => void;
  readonly onClose: () => void;
}

/** All files of a chat that the user may want: what the agent presented, and what was uploaded. */
export function FilesPanel({ rest, threadId, presented, onOpen, onClose }: FilesPanelProps) {
  const { say } = usePage();
  const load = useCallback(
    async (signal: AbortSignal) =>
      readUploads(await rest.get(`/threads/${encodeURIComponent(threadId)}/uploads/list`, signal)),
    [rest, threadId],
  );
  const { value, trouble, reload } = useLoad(load);
  return (
    <Dialog title={say('files.presented')} onClose={onClose}>
      <section>
        <h3>{say('files.made')}</h3>
        {presented.length === 0 ? <p className="note">{say('files.made.none')}</p> : null}
        <ul className="file-list">
          {presented.toReversed().map((path) => (
            <li key={path}>
              <FileRow path={path} size={null} onOpen={onOpen} />
            </li>
          ))}
        </ul>
      </section>
      <section>
        <h3>{say('files.uploaded')}</h3>
        <Content loading={value === null} trouble={trouble} onRetry={reload}>
          {value?.length === 0 ? <p className="note">{say('files.uploaded.none')}</p> : null}
          <ul className="file-list">
            {value?.map((file) => (
              <li key={file.path}>
                <FileRow path={file.path} size={file.size} onOpen={onOpen} />
              </li>
            ))}
          </ul>
        </Content>
      </section>
    </Dialog>
  );
}

function FileRow({
  path,
  size,
  onOpen,
}: {
  readonly path: string;
  readonly size: number | null;
  readonly onOpen: (path: string) => void;
}) {
  const { say } = usePage();
  const name = fileName(path);
  return (
    <button type="button" className="file" aria-label={say('files.open', { name })} onClick={() => onOpen(path)}>
      <Icon name="file" />
      <span>{name}</span>
      {size === null ? null : <small className="note">{sizeText(size)}</small>}
    </button>
  );
}

function readUploads(value: unknown): readonly { readonly path: string; readonly size: number | null }[] {
  return listOf(isDictionary(value) ? value.files : null)
    .filter(isDictionary)
    .map((file) => ({
      path: textOr(file.virtual_path, textOr(file.path, '')),
      size: typeof file.size === 'number' ? file.size : null,
    }))
    .filter((file) => file.path !== '');
}
