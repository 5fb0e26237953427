import type { JsonObject } from '@reindeer/protocol';
import type { Script, ScriptMessage, Turn } from '../script.ts';
import { answerAside } from './aside.ts';
import { type Intent, isChinese, ownWords, readIntent } from './intents.ts';
import { callOf, hasFailed, nameOf, offers, place, root, type Scene, shorten, shown } from './scene.ts';
import { batch, delegate, plan, skillOf, uploadOf } from './showcase.ts';
import { CHINESE, ENGLISH } from './words.ts';

/** How the demo model presents itself wherever models are listed. */
export const DEMO_MODEL = {
  name: 'demo',
  displayName: 'Demo model',
  description: 'Demo model — scripted, not a real AI. It shows the product at work without a key.',
} as const;

/** Milliseconds between pieces: slow enough to see the stream, quick enough not to bore. */
const PACE = { delayMs: 12, pieceSize: 10 } as const;

/** How the server tells that a batch has ended. */
const BATCH_OVER = /^\[Automatic notice[^\]\n]{0,100}\] The batch "([^"\n]{0,300})"/;

/**
 * The model that Reindeer offers when no key is configured. It keeps nothing: what to do next follows from the newest message of
 * the user and the tool results after it. It never claims to be an AI and uses only tools that are offered.
 */
export const demoScript: Script = (request) => {
  const isUser = (message: ScriptMessage): boolean => message.role === 'user';
  const written = request.messages.findLastIndex((message) => isUser(message) && message.written === true);
  const newest = written >= 0 ? written : request.messages.findLastIndex(isUser);
  const asked = ownWords(request.messages[newest]?.text ?? '');
  const words = isChinese(asked) ? CHINESE : ENGLISH;
  const aside = answerAside(request, asked, words);
  if (aside !== null) return { text: aside };

  const scene: Scene = {
    request,
    words,
    asked,
    raw: request.messages[newest]?.text ?? '',
    before: request.messages.slice(0, Math.max(newest, 0)),
    results: request.messages.slice(newest + 1).filter((message) => message.role === 'tool'),
  };
  // What the server tells of itself is no request: the one before it is done already.
  const over = BATCH_OVER.exec(request.messages.at(-1)?.text ?? '')?.[1];
  if (over !== undefined) return { ...PACE, text: words.batchOver(over) };
  const question = lastQuestion(scene);
  if (question) return { ...PACE, text: words.answered(shorten(asked)) };
  return { ...PACE, ...play(scene, readIntent(asked)) };
};

function play(scene: Scene, intent: Intent): Turn {
  const { words, results } = scene;
  const last = results.at(-1);
  const answerTo = (tool: string, call: JsonObject, text: (result: string) => string, introduction?: string): Turn => {
    if (!offers(scene, tool)) return { text: tool === 'bash' ? words.noBash : words.notOffered(tool) };
    if (last === undefined)
      return { ...(introduction === undefined ? {} : { text: introduction }), toolCalls: [callOf(scene, tool, call)] };
    return { text: hasFailed(last) ? words.stepFailed(tool, shown(last.text)) : text(shown(last.text)) };
  };
  switch (intent.kind) {
    case 'report':
      return report(scene, intent.subject);
    case 'run':
      return answerTo('bash', { command: intent.command }, (result) => words.ran(shorten(intent.command), result));
    case 'list':
      return answerTo('ls', { path: root(scene) }, words.listing);
    case 'read':
      return answerTo('read_file', { path: place(scene, intent.path) }, (result) => words.fileIs(intent.path, result));
    case 'parallel':
      return parallel(scene);
    case 'ask':
      if (!offers(scene, 'ask_clarification')) return { text: words.help };
      return {
        toolCalls: [
          callOf(scene, 'ask_clarification', {
            question: words.askQuestion,
            clarification_type: 'approach_choice',
            context: words.askContext,
            ...(intent.form ? { fields: words.formFields } : { options: words.askOptions }),
          }),
        ],
      };
    case 'story':
      return { text: words.story, delayMs: 25 };
    case 'plan':
      return plan(scene);
    case 'delegate':
      return delegate(scene);
    case 'batch':
      return batch(scene);
    case 'call':
      return answerTo(nameOf(scene, intent.tool), intent.args, (result) => words.called(intent.tool, result));
    case 'tools':
      return { text: words.tools(scene.request.tools.map(({ name }) => name).toSorted()) };
    case 'skill': {
      const skill = skillOf(scene);
      if (skill === null) return { text: words.noSkill };
      return answerTo('read_file', { path: skill.path }, (result) => words.skillIs(skill.name, shorten(result, 600)));
    }
    case 'upload': {
      const path = uploadOf(scene);
      return path === null
        ? answerTo('list_uploaded_files', {}, words.uploads)
        : answerTo('read_file', { path }, (result) => words.fileIs(path, result));
    }
    case 'remember':
      return { text: words.remembered(intent.fact) };
    case 'other':
      // To a sub-agent, an item of a batch or a scheduled run nobody listens: what could be asked for is of no use there.
      return { text: offers(scene, 'ask_clarification') ? words.help : words.nobody(shorten(scene.asked)) };
  }
}

/** Look around, write, present, say so; one step per turn, told apart by the tool results so far. */
function report(scene: Scene, subject: string): Turn {
  const { words, results } = scene;
  if (!offers(scene, 'write_file')) return { text: words.help };
  const last = results.at(-1);
  if (last !== undefined && hasFailed(last)) return { text: words.stepFailed(last.toolName ?? '?', shown(last.text)) };
  const path = place(scene, 'report.md');
  const done = new Set(results.map((result) => result.toolName));
  const look = offers(scene, 'bash') ? 'bash' : offers(scene, 'ls') ? 'ls' : null;

  if (look !== null && !done.has(look)) {
    const call: JsonObject = look === 'bash' ? { command: 'uname -sr && date -u && pwd && ls' } : { path: root(scene) };
    return { reasoning: words.reportThinking(subject), text: words.reportLook, toolCalls: [callOf(scene, look, call)] };
  }
  if (!done.has('write_file')) {
    const looked = results.find((result) => result.toolName === look)?.text ?? '';
    const content = words.report(subject, shown(looked).replaceAll('```', "'''"));
    return { text: words.reportWrite, toolCalls: [callOf(scene, 'write_file', { path, content })] };
  }
  if (offers(scene, 'present_files') && !done.has('present_files')) {
    return { text: words.reportPresent, toolCalls: [callOf(scene, 'present_files', { filepaths: [path] })] };
  }
  return { text: words.reportDone(subject, path) };
}

function parallel(scene: Scene): Turn {
  const { words, results } = scene;
  const calls = offers(scene, 'bash')
    ? ['sleep 1; echo one', 'sleep 1; echo two', 'sleep 1; echo three'].map((command) =>
        callOf(scene, 'bash', { command }),
      )
    : [
        ...(offers(scene, 'ls') ? [callOf(scene, 'ls', { path: root(scene) })] : []),
        ...(offers(scene, 'glob') ? [callOf(scene, 'glob', { path: root(scene), pattern: '**/*' })] : []),
        ...(offers(scene, 'grep')
          ? [callOf(scene, 'grep', { path: root(scene), pattern: 'reindeer', literal: true })]
          : []),
      ];
  if (calls.length === 0) return { text: words.help };
  if (results.length === 0) return { toolCalls: calls };
  return {
    text: words.parallel(
      results.map((result) => `\`${result.toolName ?? '?'}\`: ${shorten(result.text.trim() || '—')}`),
    ),
  };
}

/** The turn before was a question of ours, so this message is the reply. */
function lastQuestion(scene: Scene): boolean {
  if (scene.results.length > 0) return false;
  const last = scene.before.at(-1);
  return last?.role === 'tool' && last.toolName === 'ask_clarification';
}
