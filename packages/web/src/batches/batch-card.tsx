import { useCallback, useEffect, useRef, useState } from 'react';
import type { Rest } from '../api/rest.ts';
import { Icon } from '../parts/icons.tsx';
import { PlaceLink, usePage } from '../parts/page-context.tsx';
import { saveFile } from '../parts/save-file.ts';
import { useWork, WorkTrouble } from '../parts/use-work.tsx';
import { timeLeft, whole } from '../words/words.ts';
import {
  type BatchItemView,
  type BatchView,
  batchPath,
  doneOf,
  ITEM_STATES,
  type ItemState,
  isOver,
  readBatch,
  readItems,
  WIRE,
} from './batch.ts';
import { useBatch } from './use-batch.ts';

const PAGE = 50;

interface BatchCardProps {
  readonly rest: Rest;
  readonly first: BatchView;
  /** Where the card stands outside of its chat: a way there. */
  readonly linked?: boolean;
  readonly onOver?: () => void;
}

/** A batch: how far it is, what failed and why, and what can be done about it. */
export function BatchCard({ rest, first, linked, onOver }: BatchCardProps) {
  const { say, language, announce } = usePage();
  const { batch, pace, trouble, told } = useBatch(rest, first);
  const work = useWork();
  const [shown, setShown] = useState<ItemState | null>(null);
  const path = batchPath(batch);
  const over = isOver(batch.status);
  const wasOpen = useRef(!isOver(first.status));
  useEffect(() => {
    if (!over || !wasOpen.current) return;
    wasOpen.current = false;
    announce(say('batch.ended', { title: batch.title }));
    onOver?.();
  }, [over, announce, say, batch.title, onOver]);
  const act = (action: string) =>
    work.run(async () => {
      const answer = readBatch(await rest.send('POST', `${path}/${action}`));
      if (answer === null) return;
      if (!isOver(answer.status)) wasOpen.current = true;
      told(answer);
    });
  const download = (format: 'csv' | 'jsonl') =>
    work.run(async () => saveFile(await (await rest.request(`${path}/results.${format}`)).blob(), `results.${format}`));
  const { counts } = batch;
  const done = doneOf(batch);
  return (
    <section className="batch" aria-label={say('batch.label', { title: batch.title })} data-status={batch.status}>
      <header>
        <Icon name="stack" />
        <h3>{batch.title}</h3>
        <span className={`badge ${batch.status}`}>{say(`batch.status.${batch.status}`)}</span>
      </header>
      <Bar batch={batch} />
      <p className="batch-line">
        <span>{say('batch.done', { done: whole(done, language), total: whole(batch.total, language) })}</span>
        {pace === null ? null : (
          <span className="note">
            {say('batch.pace', { rate: whole(pace.perMinute, language), left: timeLeft(pace.leftMs, say) })}
          </span>
        )}
        {trouble === null ? null : <span className="note">{say('batch.waiting')}</span>}
      </p>
      {counts === null ? null : (
        <div className="counts">
          {ITEM_STATES.filter((state) => counts[state] > 0).map((state) => (
            <button
              key={state}
              type="button"
              className={`count ${state}`}
              aria-pressed={shown === state}
              onClick={() => setShown(shown === state ? null : state)}
            >
              <i aria-hidden="true" /> {whole(counts[state], language)} {say(`batch.state.${state}`)}
            </button>
          ))}
        </div>
      )}
      {shown === null ? null : (
        <Items key={shown} rest={rest} path={path} state={shown} count={counts?.[shown] ?? 0} onTold={told} />
      )}
      <WorkTrouble trouble={work.trouble} />
      <div className="bar">
        {batch.status === 'queued' || batch.status === 'running' ? (
          <button type="button" disabled={work.busy} onClick={() => act('pause')}>
            <Icon name="pause" /> {say('batch.pause')}
          </button>
        ) : null}
        {batch.status === 'paused' ? (
          <button type="button" disabled={work.busy} onClick={() => act('resume')}>
            <Icon name="play" /> {say('batch.resume')}
          </button>
        ) : null}
        {over ? null : (
          <button type="button" disabled={work.busy} onClick={() => act('cancel')}>
            <Icon name="stop" /> {say('batch.cancel')}
          </button>
        )}
        {done === 0 ? null : (
          <>
            <button type="button" className="quiet" disabled={work.busy} onClick={() => download('csv')}>
              <Icon name="save" /> results.csv
            </button>
            <button type="button" className="quiet" disabled={work.busy} onClick={() => download('jsonl')}>
              <Icon name="save" /> results.jsonl
            </button>
          </>
        )}
        {linked === true ? (
          <PlaceLink to={{ at: 'chat', threadId: batch.threadId }} className="to-chat">
            {say('batch.chat')}
          </PlaceLink>
        ) : null}
      </div>
    </section>
  );
}

/** One strip of colours, as long as their shares. */
function Bar({ batch }: { readonly batch: BatchView }) {
  const { say } = usePage();
  const { counts, total } = batch;
  const share = total === 0 ? 0 : Math.floor((doneOf(batch) * 100) / total);
  return (
    <div
      className="progress"
      role="progressbar"
      aria-label={say('batch.label', { title: batch.title })}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={share}
    >
      {ITEM_STATES.filter((state) => state !== 'waiting').map((state) => (
        <i key={state} className={state} style={{ width: `${((counts?.[state] ?? 0) * 100) / Math.max(1, total)}%` }} />
      ))}
    </div>
  );
}

interface ItemsProps {
  readonly rest: Rest;
  readonly path: string;
  readonly state: ItemState;
  /** How many there are: when that changes they are read again. */
  readonly count: number;
  readonly onTold: (batch: BatchView) => void;
}

function Items({ rest, path, state, count, onTold }: ItemsProps) {
  const { say } = usePage();
  const [items, setItems] = useState<readonly BatchItemView[]>([]);
  const [limit, setLimit] = useState(PAGE);
  const work = useWork();
  const { run } = work;
  const load = useCallback(
    () =>
      run(async () => {
        const found: BatchItemView[] = [];
        for (const status of WIRE[state]) {
          const room = limit - found.length;
          if (room > 0)
            found.push(...readItems(await rest.get(`${path}/items?status=${status}&offset=0&limit=${room}`)));
        }
        setItems(found);
      }),
    [rest, path, state, limit, run],
  );
  // biome-ignore lint/correctness/useExhaustiveDependencies: another count means other items
  useEffect(load, [load, count]);
  const act = (item: BatchItemView, action: 'retry' | 'cancel') =>
    run(async () => {
      const answer = readBatch(await rest.send('POST', `${path}/items/${encodeURIComponent(item.itemId)}/${action}`));
      setItems((now) => now.filter((other) => other.itemId !== item.itemId));
      if (answer !== null) onTold(answer);
    });
  return (
    <div className="items">
      <WorkTrouble trouble={work.trouble} />
      <ul>
        {items.map((item) => (
          <li key={item.itemId}>
            <div>
              <strong>{item.key}</strong>
              {item.attempt > 1 ? (
                <span className="note"> {say('batch.attempt', { number: item.attempt })}</span>
              ) : null}
              <p className={item.error === null ? 'plain' : 'plain trouble'}>{item.error ?? item.preview ?? ''}</p>
            </div>
            {state === 'failed' ? (
              <button type="button" disabled={work.busy} onClick={() => act(item, 'retry')}>
                <Icon name="again" /> {say('batch.retry')}
                <span className="only-heard"> {item.key}</span>
              </button>
            ) : null}
            {state === 'running' || state === 'waiting' ? (
              <button type="button" disabled={work.busy} onClick={() => act(item, 'cancel')}>
                {say('batch.cancelItem')}
                <span className="only-heard"> {item.key}</span>
              </button>
            ) : null}
          </li>
        ))}
      </ul>
      {items.length === limit && limit < 500 ? (
        <button type="button" className="quiet" onClick={() => setLimit(Math.min(500, limit + PAGE))}>
          {say('threads.more')}
        </button>
      ) : null}
    </div>
  );
}
