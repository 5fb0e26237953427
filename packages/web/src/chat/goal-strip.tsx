import { Icon } from '../parts/icons.tsx';
import { useSay } from '../parts/page-context.tsx';
import { useWork, WorkTrouble } from '../parts/use-work.tsx';
import { useChat, useChatState } from './chat-context.tsx';

/** The goal of the chat: how far it is, what is missing, and a way to take it away. */
export function GoalStrip() {
  const say = useSay();
  const { controller } = useChat();
  const goal = useChatState((state) => state.goal);
  const busy = useChatState((state) => state.run !== null);
  const work = useWork();
  if (goal === null) return null;
  return (
    <div className="goal">
      <details className="todos">
        <summary>
          {say('goal.title')}: <span className="note">{goal.objective}</span>
        </summary>
        <p className="plain">{goal.objective}</p>
        {goal.turns === 0 ? null : (
          <p className="note">{say('goal.progress', { count: goal.turns, most: goal.mostTurns })}</p>
        )}
        {goal.missing === null ? null : <p className="note plain">{goal.missing}</p>}
      </details>
      <button
        type="button"
        className="quiet square"
        aria-label={say('goal.clear')}
        title={busy ? say('commands.busy') : say('goal.clear')}
        disabled={busy || work.busy}
        onClick={() => work.run(() => controller.setGoal(null))}
      >
        <Icon name="close" />
      </button>
      <WorkTrouble trouble={work.trouble} />
    </div>
  );
}
