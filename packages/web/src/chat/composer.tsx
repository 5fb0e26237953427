import { type ClipboardEvent, type DragEvent, type KeyboardEvent, useEffect, useRef, useState } from 'react';
import type { Api, UploadLimits } from '../api/api.ts';
import type { Storage } from '../api/token.ts';
import { asTrouble } from '../api/trouble.ts';
import { Icon } from '../parts/icons.tsx';
import { usePage } from '../parts/page-context.tsx';
import { troubleText } from '../parts/trouble-text.ts';
import { sizeText } from '../words/words.ts';
import { takeFiles } from './attachments.ts';
import { CommandHelp, CommandList, MENU_ID, offerId, useCommandMenu } from './command-menu.tsx';
import { readCommand } from './commands.ts';
import { OptionButtons } from './composer-bar.tsx';
import type { ChatController } from './controller.ts';
import { draftOf } from './draft.ts';
import type { FileReference } from './message.ts';
import type { ChosenOptions } from './options.ts';
import { recalled, saidBefore } from './recall.ts';
import { type ActiveRun, allMessages } from './state.ts';
import { useCommands } from './use-commands.ts';

interface ComposerProps {
  readonly api: Api;
  readonly controller: ChatController;
  readonly run: ActiveRun | null;
  readonly storage: Storage;
  readonly options: ChosenOptions;
}

const DEFAULT_LIMITS: UploadLimits = { maxFiles: 10, maxFileSize: 52_428_800, maxTotalSize: 104_857_600 };

/** Where the user writes: Enter sends, Shift+Enter begins a line, a slash begins a command; files are picked, dropped or pasted. */
export function Composer({ api, controller, run, storage, options }: ComposerProps) {
  const { say } = usePage();
  const [draft] = useState(() => draftOf(storage, controller));
  const [text, setText] = useState(draft.text);
  const [files, setFiles] = useState<readonly File[]>([]);
  const [problems, setProblems] = useState<readonly string[]>([]);
  const [uploading, setUploading] = useState(false);
  const [dropping, setDropping] = useState(false);
  const [limits, setLimits] = useState(DEFAULT_LIMITS);
  const field = useRef<HTMLTextAreaElement>(null);
  const picker = useRef<HTMLInputElement>(null);
  /** Of what was written before: which one came up last. */
  const place = useRef(0);

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
    draft.keep(value);
  };
  const menu = useCommandMenu(api.rest, text, write);
  const commands = useCommands(controller);

  const add = (chosen: readonly File[]) => {
    const { taken, refused } = takeFiles(files, chosen, limits, say);
    setFiles([...files, ...taken]);
    setProblems(refused);
  };

  const canSend = run === null && !uploading && (text.trim() !== '' || files.length > 0);

  const send = async () => {
    const command = files.length === 0 ? readCommand(text) : null;
    if (command !== null) {
      await commands.run(command, { busy: run !== null, done: () => field.current?.value === text && write('') });
      return;
    }
    if (!canSend) return;
    const message = text.trim();
    setProblems([]);
    commands.forget();
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
    if (!taken)
      setText((now) => {
        if (now !== '') return now;
        draft.keep(message);
        return message;
      });
    field.current?.focus({ preventScroll: true });
  };

  /** @returns true = the key was for what was written before */
  const recall = (event: KeyboardEvent): boolean => {
    const said = saidBefore(allMessages(controller.snapshot()));
    const isPlain = !event.shiftKey && !event.nativeEvent.isComposing && field.current?.selectionStart === text.length;
    const next = isPlain ? recalled(said, place.current, text, event.key) : null;
    if (next === null) return false;
    place.current = next;
    commands.forget();
    write(said[next] ?? '');
    return true;
  };

  const onKey = (event: KeyboardEvent) => {
    if (menu.onKey(event) || (event.key.startsWith('Arrow') && recall(event))) {
      event.preventDefault();
      return;
    }
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
      {problems.length + commands.problems.length === 0 ? null : (
        <ul role="alert" className="problems">
          {[...problems, ...commands.problems].map((problem) => (
            <li key={problem}>{problem}</li>
          ))}
        </ul>
      )}
      {commands.notice === null ? null : (
        <p role="status" className="note">
          {commands.notice}
        </p>
      )}
      <CommandList menu={menu} />
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
        onChange={(event) => {
          commands.forget();
          write(event.target.value);
        }}
        onKeyDown={onKey}
        onPaste={onPaste}
        placeholder={say('composer.placeholder')}
        aria-label={say('composer.label')}
        aria-describedby="composer-hint"
        aria-autocomplete="list"
        aria-controls={menu.offered.length === 0 ? undefined : MENU_ID}
        aria-activedescendant={menu.offered.length === 0 ? undefined : offerId(menu.chosen)}
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
        <OptionButtons options={options} />
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
            onClick={() => {
              // This button goes away: whoever works with the keyboard would be nowhere.
              field.current?.focus({ preventScroll: true });
              void controller.stop();
            }}
          >
            <Icon name="stop" /> {run.phase === 'stopping' ? say('composer.stopping') : say('composer.stop')}
          </button>
        )}
      </div>
      {commands.helping ? <CommandHelp skills={menu.skills} onClose={commands.closeHelp} /> : null}
    </form>
  );
}
