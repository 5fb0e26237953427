import { memo } from 'react';
import ReactMarkdown, { type Components } from 'react-markdown';
import remarkGfm from 'remark-gfm';
import { CodeBlock } from '../parts/code-block.tsx';
import { linkTarget } from './safety.ts';

/** Deeper nesting than this is shown as plain text: it can bring a renderer down. */
const MAX_NESTING = 40;

interface MarkdownProps {
  readonly text: string;
  readonly onFile: (path: string) => void;
}

/** Markdown of a model: no raw HTML, no images from elsewhere (they would tell somebody what was read), links in a new tab. */
export default memo(function Markdown({ text, onFile }: MarkdownProps) {
  if (isTooDeep(text)) return <p className="plain">{text}</p>;
  return (
    <ReactMarkdown remarkPlugins={[remarkGfm]} urlTransform={(address) => address} components={componentsFor(onFile)}>
      {text}
    </ReactMarkdown>
  );
});

function componentsFor(onFile: (path: string) => void): Components {
  return {
    a: ({ href, children }) => <SafeLink address={href} onFile={onFile} label={children} />,
    img: ({ src, alt }) => (
      <SafeLink
        address={typeof src === 'string' ? src : undefined}
        onFile={onFile}
        label={alt === undefined || alt === '' ? src : alt}
      />
    ),
    pre: ({ children }) => <CodeBlock>{children}</CodeBlock>,
    table: ({ children }) => (
      // biome-ignore lint/a11y/noNoninteractiveTabindex: a wide table must be scrollable with the keyboard
      <div className="table" tabIndex={0}>
        <table>{children}</table>
      </div>
    ),
  };
}

interface SafeLinkProps {
  readonly address: string | undefined;
  readonly label: React.ReactNode;
  readonly onFile: (path: string) => void;
}

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

function isTooDeep(text: string): boolean {
  return (
    new RegExp(`^[ \\t]*(?:(?:>|[-*+]|\\d+[.)])[ \\t]*){${MAX_NESTING},}`, 'm').test(text) ||
    /(?:\[|\(|\*|_){400,}/.test(text)
  );
}
