import { useEffect, useState } from 'react';
import { useSay } from './page-context.tsx';

export function CopyButton({ text }: { readonly text: () => string }) {
  const say = useSay();
  const [copied, setCopied] = useState(false);
  useEffect(() => {
    if (!copied) return;
    const timer = setTimeout(() => setCopied(false), 2_000);
    return () => clearTimeout(timer);
  }, [copied]);
  const copy = () => {
    // Not there on plain http from another machine: then the text can still be selected.
    navigator.clipboard?.writeText(text()).then(
      () => setCopied(true),
      () => {},
    );
  };
  return (
    <button type="button" className="quiet copy" onClick={copy} aria-live="polite">
      {copied ? say('chat.copied') : say('chat.copy')}
    </button>
  );
}
