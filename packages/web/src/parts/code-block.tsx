import { type ReactNode, useRef } from 'react';
import { CopyButton } from './copy-button.tsx';

/** Code with a button that copies it. */
export function CodeBlock({ children }: { readonly children: ReactNode }) {
  const code = useRef<HTMLPreElement>(null);
  return (
    <div className="code">
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: long lines must be scrollable with the keyboard */}
      <pre ref={code} tabIndex={0}>
        {children}
      </pre>
      <CopyButton text={() => code.current?.textContent ?? ''} />
    </div>
  );
}
