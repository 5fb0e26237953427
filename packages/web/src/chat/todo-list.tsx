import { useSay } from '../parts/page-context.tsx';
import type { Todo } from './todos.ts';

const MARKS = { completed: '✓', in_progress: '▸', pending: '○' } as const;

/** The agent's plan, folded: how far it is, and step by step when opened. */
export function TodoList({ todos }: { readonly todos: readonly Todo[] }) {
  const say = useSay();
  const done = todos.filter((todo) => todo.status === 'completed').length;
  const current = todos.find((todo) => todo.status === 'in_progress');
  return (
    <details className="todos">
      <summary>
        {say('todos.title', { done, all: todos.length })}
        {current === undefined ? null : <span className="note"> {current.content}</span>}
      </summary>
      <ol>
        {todos.map((todo, index) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: steps have no id, and the list comes as a whole
          <li key={index} data-status={todo.status}>
            <span aria-hidden="true">{MARKS[todo.status]} </span>
            {todo.content}
            <span className="only-heard"> ({say(`todos.${todo.status}`)})</span>
          </li>
        ))}
      </ol>
    </details>
  );
}
