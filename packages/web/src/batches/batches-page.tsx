import { useCallback } from 'react';
import type { Rest } from '../api/rest.ts';
import { useSay } from '../parts/page-context.tsx';
import { Content, PageFrame } from '../parts/page-frame.tsx';
import { useLoad } from '../parts/use-work.tsx';
import { readBatches } from './batch.ts';
import { BatchCard } from './batch-card.tsx';

/** All batches of the user, newest first; those at work move by themselves. */
export default function BatchesPage({ rest }: { readonly rest: Rest }) {
  const say = useSay();
  const load = useCallback(
    async (signal: AbortSignal) => readBatches(await rest.get('/subagent-batches?limit=50', signal)),
    [rest],
  );
  const { value, trouble, reload } = useLoad(load);
  return (
    <PageFrame
      title={say('page.batches')}
      about={say('batches.about')}
      actions={
        <button type="button" className="quiet" onClick={reload}>
          {say('page.reload')}
        </button>
      }
    >
      <Content loading={value === null} trouble={trouble} onRetry={reload}>
        {value?.length === 0 ? <p className="empty">{say('batches.none')}</p> : null}
        {value?.map((batch) => (
          <BatchCard key={batch.batchId} rest={rest} first={batch} linked />
        ))}
      </Content>
    </PageFrame>
  );
}
