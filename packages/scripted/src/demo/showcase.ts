import type { JsonObject } from '@reindeer/protocol';
import type { Turn } from '../script.ts';
import { callOf, hasFailed, offers, root, type Scene, shorten } from './scene.ts';

/** Writes a plan, does its two steps, and ticks them off. */
export function plan(scene: Scene): Turn {
  const { words, results } = scene;
  if (!offers(scene, 'write_todos')) return { text: words.needsToggle(words.planToggle) };
  const last = results.at(-1);
  if (last !== undefined && hasFailed(last)) return { text: words.stepFailed(last.toolName ?? '?', last.text) };
  const written = results.filter((result) => result.toolName === 'write_todos').length;
  const looked = results.length > written;
  const todos = words.planSteps.map((content, index) => {
    const open = looked ? 'completed' : index === 0 ? 'in_progress' : 'pending';
    return { content, status: open } satisfies JsonObject;
  });
  if (written === 0 || (looked && written === 1))
    return { text: looked ? '' : words.planIntroduction, toolCalls: [callOf(scene, 'write_todos', { todos })] };
  if (!looked) return { toolCalls: [callOf(scene, 'ls', { path: root(scene) })] };
  return { text: words.planDone };
}

/** Two sub-agents side by side. They are the demo model again, and understand the same requests. */
export function delegate(scene: Scene): Turn {
  const { words, results } = scene;
  if (!offers(scene, 'task')) return { text: words.needsToggle(words.helpersToggle) };
  if (results.length === 0)
    return {
      text: words.delegating,
      toolCalls: words.tasks.map(({ description, prompt }) => ({
        name: 'task',
        args: { description, prompt, subagent_type: 'general-purpose' },
      })),
    };
  return { text: words.delegated(results.map((result) => shorten(result.text, 300))) };
}

/** Five items, each by a sub-agent of its own, and their table. */
export function batch(scene: Scene): Turn {
  const { words, results } = scene;
  if (!offers(scene, 'batch_task')) return { text: words.needsToggle(words.helpersToggle) };
  const last = results.at(-1);
  if (last === undefined)
    return {
      text: words.batchIntroduction,
      toolCalls: [
        {
          name: 'batch_task',
          args: {
            title: words.batchTitle,
            prompt: words.batchPrompt,
            items: words.batchItems.map((name, index) => ({ key: `${index + 1}`, values: { name } })),
          },
        },
      ],
    };
  if (hasFailed(last)) return { text: words.stepFailed(last.toolName ?? '?', last.text) };
  const id = /\b[0-9a-f]{8}-[0-9a-f-]{27}\b/.exec(results[0]?.text ?? '')?.[0];
  if (last.toolName === 'batch_task' && id !== undefined && offers(scene, 'batch_wait'))
    return { toolCalls: [{ name: 'batch_wait', args: { batch_id: id, timeout_seconds: 120 } }] };
  return { text: words.batchDone(last.text) };
}

/** The skill that was named, else the first one that the prompt lists. */
export function skillOf(scene: Scene): { readonly name: string; readonly path: string } | null {
  const prompt = scene.request.messages.filter((message) => message.role === 'system').map((message) => message.text);
  const listed = [
    ...prompt.join('\n').matchAll(/<name>([^<]{1,100})<\/name>[^\n]*?<location>([^<]{1,300})<\/location>/g),
  ];
  const skills = listed.map(([, name = '', path = '']) => ({ name, path }));
  return skills.find(({ name }) => scene.asked.includes(name)) ?? skills[0] ?? null;
}

/** A file that came with the message: the Markdown beside it where it was converted. */
export function uploadOf(scene: Scene): string | null {
  const list = /<current_uploads>([\s\S]{0,50000}?)<\/current_uploads>/.exec(scene.raw)?.[1] ?? '';
  const paths = [...list.matchAll(/\/mnt\/user-data\/uploads\/[^\n]{1,255}/g)].map(([path]) => path);
  return paths.find((path) => path.endsWith('.md')) ?? paths[0] ?? null;
}
