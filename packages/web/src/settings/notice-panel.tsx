import { useState } from 'react';
import type { Storage } from '../api/token.ts';
import { switchNotices, wantsNotices } from '../parts/notice.ts';
import { usePage } from '../parts/page-context.tsx';
import { Switch } from '../parts/page-frame.tsx';

/** Notifications of this browser; it is asked when they are switched on, never before. */
export function NoticePanel({ local }: { readonly local: Storage }) {
  const { say } = usePage();
  const [on, setOn] = useState(() => wantsNotices(local));
  const [refused, setRefused] = useState<'denied' | 'unsupported' | null>(null);
  const change = async (wanted: boolean) => {
    const outcome = await switchNotices(local, wanted);
    setOn(outcome === 'on');
    setRefused(outcome === 'denied' || outcome === 'unsupported' ? outcome : null);
  };
  return (
    <section className="panel">
      <h2>{say('notify.title')}</h2>
      <div className="panel-head">
        <p>{say('notify.label')}</p>
        <Switch label={say('notify.label')} on={on} onChange={(wanted) => void change(wanted)} />
      </div>
      {refused === null ? null : (
        <p role="alert" className="trouble">
          {say(`notify.${refused}`)}
        </p>
      )}
    </section>
  );
}
