import { memo } from 'react';
import ReactMarkdown, { type Components } from 'react-markdown';
import remarkGfm from 'remark-gfm';
import { CodeBlock } from '../parts/code-block.tsx';
import { useSay } from '../parts/page-context.tsx';
import { SafeLink } from './safe-link.tsx';

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
    // The boxes of a list of tasks.
    input: ({ checked }) => <Box checked={checked === true} />,
    pre: ({ children }) => <CodeBlock>{children}</CodeBlock>,
    table: ({ children }) => (
      // biome-ignore lint/a11y/noNoninteractiveTabindex: a wide table must be scrollable with the keyboard
      <div className="table" tabIndex={0}>
        <table>{children}</table>
      </div>
    ),
  };
}

function Box({ checked }: { readonly checked: boolean }) {
  const say = useSay();
  return (
    <input type="checkbox" checked={checked} disabled aria-label={say(checked ? 'todos.completed' : 'todos.pending')} />
  );
}

function isTooDeep(text: string): boolean {
  return (
    new RegExp(`^[ \\t]*(?:(?:>|[-*+]|\\d+[.)])[ \\t]*){${MAX_NESTING},}`, 'm').test(text) ||
    /(?:\[|\(|\*|_){400,}/.test(text)
  );
}
