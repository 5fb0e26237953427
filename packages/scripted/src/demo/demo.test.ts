import { describe, expect, test } from 'vitest';
import { nameToolResults, type ScriptMessage, type ScriptTool, type Turn } from '../script.ts';
import { demoScript } from './demo.ts';
import { readIntent } from './intents.ts';

const PATHS = 'Absolute path below /mnt/user-data.';
const properties = { description: { type: 'string' }, path: { type: 'string', description: PATHS } };
const ALL = ['bash', 'ls', 'read_file', 'write_file', 'glob', 'grep', 'present_files', 'ask_clarification'];
const offer = (names: readonly string[], description = PATHS): ScriptTool[] =>
  names.map((name) => ({
    name,
    description,
    parameters: {
      type: 'object',
      properties: name === 'present_files' ? { filepaths: {} } : description === PATHS ? properties : {},
    },
  }));

/** Plays a request to its end with tools that answer `out`, as the agent would. */
function play(
  text: string,
  tools = offer(ALL),
  result: (name: string) => { text: string; failed?: boolean } = () => ({ text: 'out' }),
) {
  const messages: ScriptMessage[] = [message('user', text)];
  const played: Turn[] = [];
  for (let step = 0; step < 10; step += 1) {
    const turn = demoScript({
      caller: 'default',
      model: 'demo',
      messages: nameToolResults(messages),
      tools,
      attempt: 1,
    });
    played.push(turn);
    const calls = (turn.toolCalls ?? []).map((call, index) => ({
      id: `${step}-${index}`,
      name: call.name,
      args: call.args as object,
    }));
    if (calls.length === 0)
      return { turns: played, calls: played.flatMap((entry) => entry.toolCalls ?? []), text: turn.text ?? '' };
    messages.push({ ...message('assistant', turn.text ?? ''), toolCalls: calls as ScriptMessage['toolCalls'] });
    for (const call of calls) {
      const { text: output, failed } = result(call.name);
      messages.push({ ...message('tool', output), toolCallId: call.id, failed: failed ?? false });
    }
  }
  throw new Error('The demo model never came to an end.');
}

function message(role: ScriptMessage['role'], text: string): ScriptMessage {
  return { role, text, toolCalls: [], toolCallId: null, toolName: null, failed: false, reasoning: null };
}

describe('the demo model', () => {
  test('writes, presents and says where', () => {
    const played = play('Please write a report about reindeer.', offer(ALL), (name) => ({
      text: name === 'bash' ? 'Linux 6.1' : 'OK',
    }));
    expect(played.calls.map((call) => call.name)).toEqual(['bash', 'write_file', 'present_files']);
    const [, write, present] = played.calls.map((call) => call.args as Record<string, unknown>);
    expect(write?.path).toBe('/mnt/user-data/outputs/report.md');
    expect(write?.content).toContain('Linux 6.1');
    expect(write?.description).toBeTypeOf('string');
    expect(present).toEqual({ filepaths: ['/mnt/user-data/outputs/report.md'] });
    expect(played.text).toContain('/mnt/user-data/outputs/report.md');
    expect(played.text).toContain('not a real AI');
  });

  test('uses file tools only where no command can run, and says so when asked for one', () => {
    const tools = offer(ALL.filter((name) => name !== 'bash'));
    expect(play('write a report about moss', tools).calls.map((call) => call.name)).toEqual([
      'ls',
      'write_file',
      'present_files',
    ]);
    const refused = play('run: ls', tools);
    expect(refused.calls).toEqual([]);
    expect(refused.text).toContain('reindeer doctor');
    expect(play('in parallel', tools).calls.map((call) => call.name)).toEqual(['ls', 'glob', 'grep']);
  });

  test('uses relative paths where the tools say so', () => {
    const tools = offer(ALL, 'A path relative to the working folder.');
    expect(play('list files', tools).calls).toEqual([{ name: 'ls', args: { path: '..' } }]);
    const write = play('write a report about moss', tools).calls.find((call) => call.name === 'write_file');
    expect(write?.args).toMatchObject({ path: '../outputs/report.md' });
  });

  test('runs a command as it stands and repeats the result', () => {
    const played = play('run: echo "a b"\n', offer(ALL), () => ({ text: 'a b' }));
    expect(played.calls).toMatchObject([{ name: 'bash', args: { command: 'echo "a b"' } }]);
    expect(played.text).toContain('a b');
  });

  test('tells a failure as one', () => {
    const played = play('write a report about ice', offer(ALL), () => ({ text: 'no space left', failed: true }));
    expect(played.calls.map((call) => call.name)).toEqual(['bash']);
    expect(played.text).toContain('no space left');
    expect(played.text).toContain('failed');
  });

  test('takes the message after its question as the reply', () => {
    const asked = demoScript({
      caller: 'd',
      model: 'demo',
      messages: [message('user', 'ask me')],
      tools: offer(ALL),
      attempt: 1,
    });
    expect(asked.toolCalls).toMatchObject([{ name: 'ask_clarification', args: { options: ['Red', 'Green', 'Blue'] } }]);
    const form = demoScript({
      caller: 'd',
      model: 'demo',
      messages: [message('user', 'ask me a form')],
      tools: offer(ALL),
      attempt: 1,
    });
    expect(form.toolCalls).toMatchObject([
      { args: { fields: [{ name: 'name' }, { name: 'colour' }, { name: 'seats' }, { name: 'bells' }] } },
    ]);
    const messages = nameToolResults([
      message('user', 'ask me'),
      { ...message('assistant', ''), toolCalls: [{ id: 'q', name: 'ask_clarification', args: {} }] },
      { ...message('tool', 'Which colour?'), toolCallId: 'q' },
      message('user', 'Green'),
    ]);
    expect(demoScript({ caller: 'd', model: 'demo', messages, tools: offer(ALL), attempt: 1 }).text).toContain(
      '**Green**',
    );
  });

  test('speaks the language of the user and ignores what the harness adds', () => {
    const played = play('<uploaded_files>\n- a.txt (in parallel)\n</uploaded_files>\n写一份关于驯鹿的报告');
    expect(played.text).toContain('并非真正的 AI');
    expect(played.calls.map((call) => call.name)).toEqual(['bash', 'write_file', 'present_files']);
  });

  test('else says honestly what it is and how to add a real model', () => {
    const played = play('What is the meaning of life?');
    expect(played.text).toContain('not a real AI');
    expect(played.text).toContain('OPENAI_API_KEY');
    expect(played.calls).toEqual([]);
  });

  test('delegates, plans and starts a batch where it is offered, and says how to switch it on where not', () => {
    for (const text of ['use sub-agents', 'make a plan', 'start a batch'])
      expect(play(text).text).toMatch(/switch it on/);
    const tools = offer([...ALL, 'task', 'write_todos', 'batch_task', 'batch_wait']);
    expect(play('use sub-agents', tools).calls.map((call) => call.name)).toEqual(['task', 'task']);
    const planned = play('make a plan', tools).calls;
    expect(planned.map((call) => call.name)).toEqual(['write_todos', 'ls', 'write_todos']);
    expect(JSON.stringify(planned.at(-1)?.args)).not.toMatch(/pending|in_progress/);
    const id = '01234567-89ab-cdef-0123-456789abcdef';
    const batch = play('start a batch', tools, () => ({ text: `Started batch ${id} "x"` }));
    expect(batch.calls.map((call) => call.name)).toEqual(['batch_task', 'batch_wait']);
    expect(batch.calls[1]?.args).toMatchObject({ batch_id: id });
  });

  test('an item of a batch is done as it was asked, and is not told what else could be asked', () => {
    const tools = offer(['bash']);
    const item = '\n\n(Item "1" of the batch "Words".)';
    expect(play(`run: echo a${item}`, tools).calls).toMatchObject([{ args: { command: 'echo a' } }]);
    expect(play(`judge Anna${item}`, tools).text).toMatch(/would now do this: judge Anna$/);
  });

  test('hears of the end of a batch without beginning it again', () => {
    const notice =
      '[Automatic notice, not written by the user] The batch "Words" (b-1) is over: completed.\nDo not start it again.';
    const turn = demoScript({
      caller: 'd',
      model: 'demo',
      messages: [
        { ...message('user', 'start a batch'), written: true },
        message('assistant', 'It goes on.'),
        { ...message('user', notice), written: false },
      ],
      tools: offer([...ALL, 'batch_task']),
      attempt: 1,
    });
    expect(turn.toolCalls).toBeUndefined();
    expect(turn.text).toContain('“Words” is over');
  });

  test('calls any tool, those of MCP servers by the end of their name', () => {
    const tools = offer([...ALL, 'everything_echo']);
    expect(play('call: echo {"message":"hi"}', tools).calls).toEqual([
      { name: 'everything_echo', args: expect.objectContaining({ message: 'hi' }) },
    ]);
    expect(play('call: nothing', tools).text).toContain('no tool `nothing`');
  });

  test('reads what was attached, and a skill by its name', () => {
    const list = `<current_uploads>
- a.pdf (1 KiB): /mnt/user-data/uploads/a.pdf
    /mnt/user-data/uploads/a.md
</current_uploads>
read the attached file`;
    expect(play(list).calls).toMatchObject([{ name: 'read_file', args: { path: '/mnt/user-data/uploads/a.md' } }]);
    const spaced = list
      .replace('a.pdf (', 'two words (1).txt (')
      .replaceAll('/a.pdf', '/two words (1).txt')
      .replace(/^.*a\.md\n/m, '');
    expect(play(spaced).calls).toMatchObject([{ args: { path: '/mnt/user-data/uploads/two words (1).txt' } }]);
  });

  test('answers what the harness asks beside the conversation', () => {
    const ask = (text: string) =>
      demoScript({ caller: 'd', model: 'demo', messages: [message('user', text)], tools: [], attempt: 1 }).text ?? '';
    const next = (said: string): string[] =>
      JSON.parse(
        ask(
          `Answer a JSON array of strings.\n\n<conversation>\nUser: ${said}\nAssistant: in parallel\n</conversation>`,
        ),
      );
    expect(next('List files')).toEqual(['write a report about reindeer', 'in parallel', 'ask me a form']);
    expect(next('列出文件')).toEqual(['写一份关于驯鹿的报告', '并行', '问我表单']);
  });

  test('makes a title when it is asked for one without tools', () => {
    const title = (text: string) =>
      demoScript({
        caller: 'default',
        model: 'demo',
        messages: [message('system', 'Write a short title.'), message('user', text)],
        tools: [],
        attempt: 1,
      }).text;
    expect(title('write a report about moss')).toBe('Report about moss');
    expect(title('x'.repeat(80))).toHaveLength(50);
  });
});

test.each([
  ['Write a report on the history of sleighs.', { kind: 'report', subject: 'the history of sleighs' }],
  ['could you write me a short report', { kind: 'report', subject: 'reindeer' }],
  ['list my files', { kind: 'list' }],
  ['run: rm -rf x && ls', { kind: 'run', command: 'rm -rf x && ls' }],
  ['read outputs/report.md', { kind: 'read', path: 'outputs/report.md' }],
  ['运行：ls -la', { kind: 'run', command: 'ls -la' }],
  ['do three things in parallel', { kind: 'parallel' }],
  ['please ask me a form', { kind: 'ask', form: true }],
  ['tell a story', { kind: 'story' }],
  ['use sub-agents', { kind: 'delegate' }],
  ['start a batch', { kind: 'batch' }],
  ['make a plan', { kind: 'plan' }],
  ['Read the attached file', { kind: 'upload' }],
  ['which tools are there?', { kind: 'tools' }],
  ['call: echo {"message": "hi"}', { kind: 'call', tool: 'echo', args: { message: 'hi' } }],
  ['call: now', { kind: 'call', tool: 'now', args: {} }],
  ['Please remember that I like lichen.', { kind: 'remember', fact: 'I like lichen' }],
  ['记住我喜欢地衣', { kind: 'remember', fact: '我喜欢地衣' }],
  ['hello', { kind: 'other' }],
])('reads "%s"', (text, intent) => {
  expect(readIntent(text)).toEqual(intent);
});
