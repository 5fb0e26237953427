import { useEffect, useState } from 'react';
import type { Api } from '../api/api.ts';
import { mediaType } from './kinds.ts';

const LARGEST = 12 * 1024 * 1024;

/** A picture of the chat where it was presented: looked at without opening anything. Nothing when it cannot be had. */
export function Thumbnail({
  api,
  threadId,
  path,
}: {
  readonly api: Pick<Api, 'file'>;
  readonly threadId: string;
  readonly path: string;
}) {
  const [address, setAddress] = useState<string | null>(null);
  useEffect(() => {
    const leave = new AbortController();
    let made: string | null = null;
    api.file(threadId, path, LARGEST, leave.signal).then(
      ({ blob, size }) => {
        if (leave.signal.aborted || (size !== null && size > blob.size)) return;
        made = URL.createObjectURL(new Blob([blob], { type: mediaType(path) }));
        setAddress(made);
      },
      () => {},
    );
    return () => {
      leave.abort();
      if (made !== null) URL.revokeObjectURL(made);
    };
  }, [api, threadId, path]);
  return address === null ? null : <img className="thumbnail" src={address} alt="" />;
}
