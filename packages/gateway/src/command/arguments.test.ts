import { describe, expect, test } from 'vitest';
import { helpText, parseCommand } from './arguments.ts';

describe('the command line', () => {
  test('commands with their options', () => {
    expect(parseCommand(['serve', '--port', '0', '--check'])).toMatchObject({ name: 'serve', port: 0, check: true });
    expect(parseCommand(['run', 'do it', '--json', '--thread=t1', '--model', 'm'])).toMatchObject({
      name: 'run',
      prompt: 'do it',
      json: true,
      thread: 't1',
      model: 'm',
      attach: false,
    });
    expect(parseCommand(['backup', 'x.db'])).toMatchObject({ name: 'backup', file: 'x.db' });
    expect(parseCommand(['sandboxes', 'stop', 'a', '--force'])).toMatchObject({ action: 'stop', id: 'a', force: true });
    expect(parseCommand(['sandboxes', 'prune', '--idle=5'])).toMatchObject({ action: 'prune', idle: 5 });
    expect(parseCommand(['doctor'])).toMatchObject({ name: 'doctor', json: false });
    expect(parseCommand([])).toEqual({ name: 'help', topic: undefined });
    expect(parseCommand(['run', '--help'])).toEqual({ name: 'help', topic: 'run' });
    expect(parseCommand(['--version'])).toEqual({ name: 'version' });
    expect(helpText('serve')).toContain('--check');
    expect(helpText('constructor')).toBe(helpText(undefined));
  });

  test.each([
    [['sevre'], 'Did you mean "serve"?'],
    [['constructor'], 'There is no command "constructor"'],
    [['serve', '--prot', '1'], 'Did you mean "--port"?'],
    [['serve', '--port', 'http'], 'not a port'],
    [['serve', '--port'], 'See reindeer serve --help'],
    [['serve', 'now'], 'one word too many'],
    [['run'], 'Say what to do'],
    [['run', 'two', 'words'], 'Put quotes'],
    [['backup'], 'Say where'],
    [['sandboxes'], 'list, stop or prune'],
    [['sandboxes', 'prun'], 'Did you mean "prune"?'],
    [['sandboxes', 'stop'], 'Say which one'],
    [['sandboxes', 'stop', 'a', 'b'], 'one word too many'],
    [['sandboxes', 'prune', '--idle', 'long'], 'no number of seconds'],
    [['--port', '1'], 'Options follow a command'],
    [['batch', 'start', 'x.csv', '--prompt', '{{a}}', '--detach'], '--detach needs --attach'],
  ])('%j is explained', (words, text) => {
    expect(() => parseCommand(words)).toThrow(text);
  });
});
