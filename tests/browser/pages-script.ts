import type { Script, Turn } from '@reindeer/scripted';
import { zip } from '@reindeer/testkit';

const OUT = '/mnt/user-data/outputs';

/** A picture of one red dot, and a skill, as base64. */
const DOT = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==';
const SKILL = Buffer.from(
  zip([{ name: 'wave/SKILL.md', content: '---\nname: wave\ndescription: Waves at people.\n---\nWave.\n' }]),
).toString('base64');

/** Not reached, and after one more try the user has to help. */
const verdict = (prompt: string): string =>
  JSON.stringify({
    satisfied: false,
    blocker: prompt.includes('Second try') ? 'needs_user_input' : 'goal_not_met_yet',
    reason: 'The colour is missing.',
  });

/** The newest words of a person decide; a sub-agent's are its prompt. */
export const script: Script = ({ messages, tools }): Turn => {
  const at = Math.max(
    messages.findLastIndex((message) => message.role === 'user' && message.written === true),
    messages.findIndex((message) => message.role === 'user'),
  );
  const asked = messages[at]?.text ?? '';
  const results = messages.slice(at + 1).filter((message) => message.role === 'tool');
  const once = (text: string, ...toolCalls: NonNullable<Turn['toolCalls']>): Turn =>
    results.length === 0 ? { toolCalls } : { text };
  // The judge of goals and of skills, titles, what is learned: none of them has tools.
  if (tools.length === 0 && asked.includes('You judge whether a goal')) return { text: verdict(asked) };
  if (tools.length === 0 && asked.includes('short questions')) return { text: '["What about moss?"]' };
  if (tools.length === 0) return { text: '{"decision": "allow", "reason": "harmless"}' };
  const item = /^ITEM (\d)/.exec(asked)?.[1];
  if (item !== undefined)
    return item === '3'
      ? { fault: { kind: 'status', status: 400, message: 'It is poison.' } }
      : { text: `did ${item}` };
  const last = messages.at(-1);
  if (last?.role === 'user' && last.written !== true && last.text.includes('Five items'))
    return { text: 'I heard of the end.' };
  if (last?.role === 'user' && last.text.includes('goal_continuation')) return { text: 'Second try.' };
  if (asked.startsWith('SLOW')) return { text: 'done', delayMs: 1_000 };
  if (asked.startsWith('PART: wait'))
    return once('Never.', { name: 'bash', args: { description: 'd', command: 'sleep 60' } });
  if (asked.startsWith('PART'))
    return once('It is **42**.', { name: 'bash', args: { description: 'd', command: 'echo counted' } });
  if (asked.includes('delegate'))
    return once('They said 42.', {
      name: 'task',
      args: {
        description: 'Count',
        prompt: asked.includes('for long') ? 'PART: wait' : 'PART: count',
        subagent_type: 'bash',
      },
    });
  if (tools.some(({ name }) => name === 'setup_agent') && asked.includes('paint'))
    return once('Here it is.', { name: 'setup_agent', args: { soul: 'You paint.', description: 'Paints.' } });
  if (asked.includes('slow batch'))
    return once('It goes on.', {
      name: 'batch_task',
      args: {
        title: 'Slow items',
        items: Array.from({ length: 40 }, (_none, n) => ({ key: `s${n}`, prompt: `SLOW ${n}` })),
      },
    });
  if (asked.includes('batch'))
    return once('It goes on.', {
      name: 'batch_task',
      args: {
        title: 'Five items',
        items: [1, 2, 3, 4, 5].map((n) => ({ key: `item-${n}`, prompt: `ITEM ${n}` })),
        max_attempts: 1,
      },
    });
  if (asked.includes('write a note')) {
    const path = '/mnt/user-data/workspace/note.md';
    const calls = [
      { name: 'write_file', args: { description: 'd', path, content: 'Moss grows in the shade.' } },
      { name: 'read_file', args: { description: 'd', path } },
    ];
    const next = calls[results.length];
    return next === undefined ? { text: `The note says: ${results.at(-1)?.text}` } : { toolCalls: [next] };
  }
  if (asked.includes('picture')) {
    const files = [`echo ${DOT} | base64 -d > ${OUT}/dot.png`, `echo ${SKILL} | base64 -d > ${OUT}/wave.skill`];
    const calls = [
      { name: 'bash', args: { description: 'd', command: files.join(' && ') } },
      { name: 'present_files', args: { filepaths: [`${OUT}/dot.png`, `${OUT}/wave.skill`] } },
    ];
    const next = calls[results.length];
    return next === undefined ? { text: 'See.' } : { toolCalls: [next] };
  }
  if (asked.includes('table')) {
    const content = 'name,note\nRudolf,"<b>red</b>, very"\n';
    const calls = [
      { name: 'write_file', args: { description: 'd', path: `${OUT}/deer.csv`, content } },
      { name: 'present_files', args: { filepaths: [`${OUT}/deer.csv`] } },
    ];
    const next = calls[results.length];
    return next === undefined ? { text: 'Look.' } : { toolCalls: [next] };
  }
  return { text: `Heard: ${asked.slice(0, 60)}` };
};
