import type { ReactNode } from 'react';
import { linkTarget } from './safety.ts';

interface SafeLinkProps {
  readonly address: string | undefined;
  readonly label: ReactNode;
  readonly onFile: (path: string) => void;
}

/** A link that somebody else wrote: to the web in a new tab, to a file of the chat, or nowhere. */
export function SafeLink({ address, label, onFile }: SafeLinkProps) {
  const target = linkTarget(address);
  switch (target.kind) {
    case 'web':
      return (
        <a href={target.address} target="_blank" rel="noopener noreferrer nofollow">
          {label}
        </a>
      );
    case 'file':
      return (
        <button type="button" className="link" onClick={() => onFile(target.path)}>
          {label}
        </button>
      );
    case 'none':
      return <span>{label}</span>;
  }
}
