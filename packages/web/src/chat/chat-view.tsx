import { useCallback, useEffect, useMemo, useRef, useSyncExternalStore } from 'react';
import type { Api } from '../api/api.ts';
import type { Storage } from '../api/token.ts';
import { Icon } from '../parts/icons.tsx';
import { useEndNotice } from '../parts/notice.ts';
import { PlaceLink, usePage } from '../parts/page-context.tsx';
import { troubleText } from '../parts/trouble-text.ts';
import { NEW_CHAT } from '../route.ts';
import { ApprovalCard } from './approval-card.tsx';
import { ChatProvider } from './chat-context.tsx';
import { Composer } from './composer.tsx';
import type { ChatController } from './controller.ts';
import { Earlier } from './earlier.tsx';
import { GoalStrip } from './goal-strip.tsx';
import type { ChosenOptions } from './options.ts';
import type { Question } from './question.ts';
import { allMessages, type ChatState, retryPlan } from './state.ts';
import { Suggestions } from './suggestions.tsx';
import { TodoList } from './todo-list.tsx';
import { TurnFacts } from './turn-facts.ts';
import { TurnView } from './turn-view.tsx';
import { toTurns } from './turns.ts';
import { useScroll } from './use-scroll.ts';

interface ChatViewProps {
  readonly api: Api;
  readonly controller: ChatController;
  readonly storage: Storage;
  /** What this browser keeps beyond the tab. */
  readonly local: Storage;
  readonly options: ChosenOptions;
  readonly onTitle: (title: string | null) => void;
  readonly onAgent: (agent: string | null) => void;
  /** The chat is there, under this id. */
  readonly onThread: (threadId: string) => void;
}

/** One chat: its messages, what its run is doing, and the composer. */
export function ChatView(props: ChatViewProps) {
  const { api, controller, storage, options, onTitle, onAgent, onThread } = props;
  const { say } = usePage();
  const state = useSyncExternalStore(controller.subscribe, controller.snapshot);
  const messages = useMemo(() => allMessages(state), [state]);
  const turns = useMemo(() => toTurns(messages, state.run !== null), [messages, state.run]);
  const known = useMemo(() => new Set(messages.map((message) => message.id)), [messages]);
  const scroll = useScroll(turns);
  useAnnouncements(state, turns);
  useEndNotice(props.local, state);
  useEffect(() => onTitle(state.title), [onTitle, state.title]);
  const { agent } = controller;
  useEffect(() => onAgent(agent), [onAgent, agent]);
  const isThere = controller.exists && (state.run?.id ?? null) !== null;
  useEffect(() => {
    if (isThere) onThread(controller.threadId);
  }, [isThere, controller, onThread]);
  const onAnswer = useCallback(
    (question: Question, reply: { kind: 'option' | 'text'; value: string; optionId?: string }) => {
      void controller.answer(question, reply);
    },
    [controller],
  );
  const isNew = turns.length === 0 && !state.loading && state.loadError === null;
  const parts = useMemo(
    () => ({ api, rest: api.rest, controller, facts: new TurnFacts(api.rest, controller.threadId) }),
    [api, controller],
  );
  return (
    <ChatProvider value={parts}>
      <div className="chat">
        <div className="scroll" ref={scroll.area} onScroll={scroll.onScroll}>
          <section className="messages" aria-label={say('chat.label')} ref={scroll.content}>
            {state.loading && turns.length === 0 ? <p className="note">{say('chat.loading')}</p> : null}
            {isNew ? (
              <Welcome demo={options.model?.demo === true} onPick={(text) => void controller.send(text, [])} />
            ) : null}
            {scroll.first > 0 ? (
              <button type="button" className="quiet older" onClick={scroll.showOlder}>
                {say('chat.older')}
              </button>
            ) : state.summarised > 0 ? (
              <Earlier count={state.summarised} known={known} />
            ) : null}
            {turns.slice(scroll.first).map((turn) => (
              <TurnView
                key={turn.id}
                turn={turn}
                busy={state.run !== null}
                newest={turn === turns.findLast((other) => other.kind === turn.kind)}
                atWork={state.run !== null && turn === turns.at(-1)}
                onAnswer={onAnswer}
              />
            ))}
            {state.interrupts.length > 0 && state.run === null ? (
              <ApprovalCard
                key={state.interrupts.map((interrupt) => interrupt.id).join()}
                interrupts={state.interrupts}
                busy={state.run !== null}
                onResume={(answers) => void controller.resume(answers)}
              />
            ) : null}
            {state.madeAgent === null || state.run !== null ? null : <MadeAgent name={state.madeAgent} />}
            <RunStatus state={state} controller={controller} />
          </section>
        </div>
        {scroll.away ? (
          <button type="button" className="latest square" aria-label={say('chat.latest')} onClick={scroll.toEnd}>
            <Icon name="down" />
          </button>
        ) : null}
        <div className="foot">
          <GoalStrip />
          {state.todos.length > 0 ? <TodoList todos={state.todos} /> : null}
          <Suggestions />
          <Composer
            key={controller.threadId}
            api={api}
            controller={controller}
            run={state.run}
            storage={storage}
            options={options}
          />
          <p className="hint center">{say('composer.note')}</p>
        </div>
      </div>
    </ChatProvider>
  );
}

/** An agent was made in this chat: what can be done with it now. */
function MadeAgent({ name }: { readonly name: string }) {
  const { say } = usePage();
  return (
    <section className="question">
      <h3>{say('agents.made', { name })}</h3>
      <div className="bar">
        <PlaceLink to={{ at: 'new', agent: name, bootstrap: false }} className="button">
          {say('agents.talk', { name })}
        </PlaceLink>
        <PlaceLink to={{ at: 'agents' }}>{say('page.agents')}</PlaceLink>
      </div>
    </section>
  );
}

const DEMO_WISHES = ['welcome.1', 'welcome.2', 'welcome.3'] as const;
const WISHES = ['welcome.research', 'welcome.table', 'welcome.page'] as const;

interface WelcomeProps {
  /** The demo model knows its script only. */
  readonly demo: boolean;
  readonly onPick: (text: string) => void;
}

function Welcome({ demo, onPick }: WelcomeProps) {
  const { say } = usePage();
  return (
    <div className="welcome">
      <h2>{say('welcome.title')}</h2>
      <p>{say('welcome.text')}</p>
      <div className="options">
        {(demo ? DEMO_WISHES : WISHES).map((key) => (
          <button key={key} type="button" onClick={() => onPick(say(key))}>
            {say(key)}
          </button>
        ))}
      </div>
    </div>
  );
}

/** What the run is doing now, or how the last one ended and what can be done about it. */
function RunStatus({ state, controller }: { readonly state: ChatState; readonly controller: ChatController }) {
  const { say } = usePage();
  const { run, ended, notice, loadError, stopTrouble } = state;
  if (run !== null) {
    const text =
      run.phase === 'running' && notice !== null
        ? say('run.retrying', {
            seconds: Math.ceil(notice.waitMs / 1000),
            attempt: notice.attempt,
            max: notice.maxAttempts,
          })
        : say(`run.${run.phase === 'running' ? 'working' : run.phase}`);
    return (
      <>
        <p className="status working" data-phase={run.phase}>
          <span className="dots" aria-hidden="true">
            <i />
            <i />
            <i />
          </span>
          {text}
        </p>
        {stopTrouble === null ? null : (
          <p role="alert" className="trouble">
            {troubleText(stopTrouble, say)}
          </p>
        )}
      </>
    );
  }
  if (loadError !== null) {
    return (
      <div role="alert" className="status trouble">
        <p>{troubleText(loadError, say)}</p>
        {loadError.kind === 'not-found' ? (
          <PlaceLink to={NEW_CHAT} className="button">
            {say('threads.new')}
          </PlaceLink>
        ) : (
          <button type="button" onClick={() => void controller.open()}>
            {say('run.reload')}
          </button>
        )}
      </div>
    );
  }
  if (ended === null || ended.how === 'success') return null;
  if (ended.how === 'stopped') {
    return (
      <div className="status note">
        <p>{say('run.stopped')}</p>
        {retryPlan(state)?.how === 'continue' ? (
          <button type="button" onClick={() => void controller.retry()}>
            {say('run.continue')}
          </button>
        ) : null}
      </div>
    );
  }
  // The failure of a model is told by its own message already.
  const last = allMessages(state).at(-1);
  const told = last?.kind === 'ai' && last.failed;
  const headline = {
    failed: told ? say('run.failed') : null,
    refused: null,
    timeout: say('run.timeout'),
    lost: say('run.lost'),
    'stop-slow': say('run.stopSlow'),
  }[ended.how];
  const plan = retryPlan(state);
  const lost = ended.how === 'lost' || ended.how === 'stop-slow';
  return (
    <div role="alert" className="status trouble">
      {headline === null ? null : <p>{headline}</p>}
      {ended.trouble === null || told ? null : <p>{troubleText(ended.trouble, say)}</p>}
      {lost ? (
        <button type="button" onClick={() => void controller.open()}>
          {say('run.reload')}
        </button>
      ) : // What was not taken is in the composer again: to try again is to send it.
      plan === null || (ended.how === 'refused' && plan.how === 'resend') ? null : (
        <button type="button" onClick={() => void controller.retry()}>
          {say('run.retry')}
        </button>
      )}
    </div>
  );
}

/** Tells screen readers what happens, sentence by sentence instead of token by token. */
function useAnnouncements(state: ChatState, turns: ReturnType<typeof toTurns>): void {
  const { say, announce } = usePage();
  const phase = state.run?.phase ?? null;
  const before = useRef<string | null>(null);
  useEffect(() => {
    const was = before.current;
    before.current = phase;
    if (phase === 'starting') announce(say('run.working'));
    else if (phase === 'stopping') announce(say('run.stopping'));
    else if (phase === 'reconnecting') announce(say('run.reconnecting'));
    else if (phase === null && was !== null) {
      const last = turns.at(-1);
      const text = last?.kind === 'agent' ? (last.steps.at(-1)?.message.text ?? '') : '';
      if (state.ended?.how === 'stopped') announce(say('run.stopped'));
      else if (state.ended?.how === 'success') announce(`${say('run.finished')} ${text.slice(0, 500)}`);
    }
  }, [phase, turns, state.ended, announce, say]);
}
