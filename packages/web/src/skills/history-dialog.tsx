import { useCallback } from 'react';
import type { Rest } from '../api/rest.ts';
import { Dialog } from '../parts/dialog.tsx';
import { usePage } from '../parts/page-context.tsx';
import { Content } from '../parts/page-frame.tsx';
import { useLoad, useWork, WorkTrouble } from '../parts/use-work.tsx';
import { isWordKey, timeText } from '../words/words.ts';
import { readHistory } from './skills.ts';

interface HistoryDialogProps {
  readonly rest: Rest;
  readonly name: string;
  readonly onClose: () => void;
  readonly onChanged: () => void;
}

/** What became of a skill, newest first, and a way back. */
export function HistoryDialog({ rest, name, onClose, onChanged }: HistoryDialogProps) {
  const { say, language } = usePage();
  const path = `/skills/custom/${encodeURIComponent(name)}`;
  const load = useCallback(
    async (signal: AbortSignal) => readHistory(await rest.get(`${path}/history`, signal)).toReversed(),
    [rest, path],
  );
  const { value, trouble, reload } = useLoad(load);
  const work = useWork();
  return (
    <Dialog title={`${name} · ${say('skills.history')}`} onClose={onClose}>
      <Content loading={value === null} trouble={trouble} onRetry={reload}>
        <WorkTrouble trouble={work.trouble} />
        {value?.length === 0 ? <p className="note">{say('skills.history.none')}</p> : null}
        <ul className="rows">
          {value?.map((change) => {
            const key = `skills.action.${change.action}`;
            return (
              <li key={change.index}>
                <div className="row-text">
                  <strong>{isWordKey(key) ? say(key) : change.action}</strong>{' '}
                  <span className="note">{timeText(change.at, language)}</span>
                </div>
                {change.hasBefore ? (
                  <button
                    type="button"
                    disabled={work.busy}
                    onClick={() =>
                      work.run(async () => {
                        await rest.send('POST', `${path}/rollback`, { history_index: change.index });
                        onChanged();
                        reload();
                      })
                    }
                  >
                    {say('skills.back')}
                  </button>
                ) : null}
              </li>
            );
          })}
        </ul>
      </Content>
    </Dialog>
  );
}
