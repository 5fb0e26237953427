import { type ClipboardEvent, type DragEvent, type KeyboardEvent, useEffect, useRef, useState } from 'react';
import type { Api, UploadLimits } from '../api/api.ts';
import type { Storage } from '../api/token.ts';
import { asTrouble } from '../api/trouble.ts';
import { Icon } from '../parts/icons.tsx';
import { usePage } from '../parts/page-context.tsx';
import { troubleText } from '../parts/trouble-text.ts';
import { sizeText } from '../words/words.ts';
import { takeFiles } from './attachments.ts';
import type { ChatController } from './controller.ts';
import type { FileReference } from './message.ts';
import type { ChosenOptions, Toggle } from './options.ts';
import type { ActiveRun } from './state.ts';

interface ComposerProps {
  readonly api: Api;
  readonly controller: ChatController;
  readonly run: ActiveRun | null;
  readonly storage: Storage;
  readonly options: ChosenOptions;
}

const DEFAULT_LIMITS: UploadLimits = { maxFiles: 10, maxFileSize: 52_428_800, maxTotalSize: 104_857_600 };

/** Where the user writes: Enter sends, Shift+Enter begins a line; files are picked, dropped or pasted. */
export function Composer({ api, controller, run, storage, options }: ComposerProps) {
  const { say } = usePage();
  const draftKey = `reindeer.draft.${controller.threadId}`;
  const [text, setText] = useState(() => storage.getItem(draftKey) ?? '');
  const [files, setFiles] = useState<readonly File[]>([]);
  const [problems, setProblems] = useState<readonly string[]>([]);
  const [uploading, setUploading] = useState(false);
  const [dropping, setDropping] = useState(false);
  const [limits, setLimits] = useState(DEFAULT_LIMITS);
  const field = useRef<HTMLTextAreaElement>(null);
  const picker = useRef<HTMLInputElement>(null);

  useEffect(() => {
    field.current?.focus({ preventScroll: true });
    let left = false;
    api.uploadLimits(controller.threadId).then(
      (given) => {
        if (!left) setLimits(given);
      },
      // The server checks them in any case.
      () => {},
    );
    return () => {
      left = true;
    };
  }, [api, controller]);

  const write = (value: string) => {
    setText(value);
    if (value === '') storage.removeItem(draftKey);
    else storage.setItem(draftKey, value);
  };

  const add = (chosen: readonly File[]) => {
    const { taken, refused } = takeFiles(files, chosen, limits, say);
    setFiles([...files, ...taken]);
    setProblems(refused);
  };

  const canSend = run === null && !uploading && (text.trim() !== '' || files.length > 0);

  const send = async () => {
    if (!canSend) return;
    const message = text.trim();
    setProblems([]);
    let references: readonly FileReference[] = [];
    if (files.length > 0) {
      setUploading(true);
      try {
        await controller.ensureThread();
        const result = await api.upload(controller.threadId, files, new AbortController().signal);
        references = result.files;
        if (result.skipped.length > 0) setProblems([say('upload.skipped', { names: result.skipped.join(', ') })]);
      } catch (error) {
        setProblems([`${say('upload.failed')} ${troubleText(asTrouble(error), say)}`]);
        setUploading(false);
        return;
      }
      setUploading(false);
    }
    write('');
    setFiles([]);
    const taken = await controller.send(message, references);
    // What was not taken belongs back, unless something new was begun meanwhile.
    if (!taken) setText((now) => (now === '' ? message : now));
    field.current?.focus({ preventScroll: true });
  };

  const onKey = (event: KeyboardEvent) => {
    // While an input method composes, Enter chooses its suggestion.
    if (event.key !== 'Enter' || event.shiftKey || event.nativeEvent.isComposing) return;
    event.preventDefault();
    void send();
  };

  const onPaste = (event: ClipboardEvent) => {
    if (event.clipboardData.files.length === 0) return;
    event.preventDefault();
    add([...event.clipboardData.files]);
  };

  const onDrop = (event: DragEvent) => {
    event.preventDefault();
    setDropping(false);
    add([...event.dataTransfer.files]);
  };

  const toggles: readonly Toggle[] =
    options.model?.thinks === true ? ['thinking', 'plan', 'helpers'] : ['plan', 'helpers'];

  return (
    <form
      className={dropping ? 'composer dropping' : 'composer'}
      onSubmit={(event) => {
        event.preventDefault();
        void send();
      }}
      onDragOver={(event) => {
        event.preventDefault();
        setDropping(true);
      }}
      onDragLeave={() => setDropping(false)}
      onDrop={onDrop}
    >
      {dropping ? <p className="drop-note">{say('composer.drop')}</p> : null}
      {problems.length === 0 ? null : (
        <ul role="alert" className="problems">
          {problems.map((problem) => (
            <li key={problem}>{problem}</li>
          ))}
        </ul>
      )}
      {files.length === 0 ? null : (
        <ul className="attached">
          {files.map((file, index) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: the same file may be attached twice
            <li key={`${index}-${file.name}`}>
              <span>
                {file.name} <small>{sizeText(file.size)}</small>
              </span>
              <button
                type="button"
                className="quiet square"
                disabled={uploading}
                aria-label={say('composer.remove', { name: file.name })}
                onClick={() => setFiles(files.filter((_file, place) => place !== index))}
              >
                <Icon name="close" />
              </button>
            </li>
          ))}
        </ul>
      )}
      <textarea
        ref={field}
        id="message"
        rows={1}
        value={text}
        onChange={(event) => write(event.target.value)}
        onKeyDown={onKey}
        onPaste={onPaste}
        placeholder={say('composer.placeholder')}
        aria-label={say('composer.label')}
        aria-describedby="composer-hint"
        maxLength={200_000}
      />
      <div className="composer-bar">
        <input
          ref={picker}
          type="file"
          multiple
          hidden
          onChange={(event) => {
            add([...(event.target.files ?? [])]);
            event.target.value = '';
          }}
        />
        <button
          type="button"
          className="quiet square"
          aria-label={say('composer.attach.short')}
          title={say('composer.attach', { count: limits.maxFiles, size: sizeText(limits.maxFileSize) })}
          onClick={() => picker.current?.click()}
        >
          <Icon name="clip" />
        </button>
        {toggles.map((name) => (
          <button
            key={name}
            type="button"
            className="quiet toggle"
            aria-pressed={options.toggles[name]}
            title={say(`composer.${name}.help`)}
            onClick={() => options.toggle(name)}
          >
            {say(`composer.${name}`)}
          </button>
        ))}
        {options.models.length < 2 ? null : (
          <select
            aria-label={say('composer.model')}
            value={options.model?.name ?? ''}
            onChange={(event) => options.choose(event.target.value)}
          >
            {options.models.map((entry) => (
              <option key={entry.name} value={entry.name}>
                {entry.displayName}
              </option>
            ))}
          </select>
        )}
        <span id="composer-hint" className="hint">
          {uploading ? say('composer.uploading') : say('composer.hint')}
        </span>
        {run === null ? (
          <button type="submit" className="primary square" disabled={!canSend} aria-label={say('composer.send')}>
            <Icon name="send" />
          </button>
        ) : (
          <button
            type="button"
            className="primary stop"
            disabled={run.phase === 'stopping'}
            onClick={() => void controller.stop()}
          >
            <Icon name="stop" /> {run.phase === 'stopping' ? say('composer.stopping') : say('composer.stop')}
          </button>
        )}
      </div>
    </form>
  );
}
