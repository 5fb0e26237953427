import { describe, expect, test } from 'vitest';
import { createLogger, maskText } from './log.ts';

const lines = (pretty: boolean, level: 'debug' | 'info' = 'info') => {
  const out: string[] = [];
  return { out, log: createLogger({ level, pretty, write: (line) => out.push(line) }) };
};

describe('log', () => {
  test('masks by name and by look', () => {
    const { out, log } = lines(false);
    log.error('Call with Bearer abcdef123456 failed', {
      api_key: 'sk-live-1234567890',
      nested: { password: 'hunter2', note: 'see https://me:pass@host/x and http://h/#token=abcdef' },
      total_tokens: 12,
      text: 'key sk-proj-abcdefgh1234 here',
    });
    const [line] = out;
    for (const secret of ['abcdef', 'hunter2', 'me:pass', 'live-1234', 'proj-abc']) expect(line).not.toContain(secret);
    expect(JSON.parse(line ?? '')).toMatchObject({ level: 50, api_key: '***', total_tokens: 12 });
    expect(maskText('nothing to hide: token count 5')).toBe('nothing to hide: token count 5');
  });

  test('levels and lines for people', () => {
    const { out, log } = lines(true);
    log.debug('not shown');
    log.info('Serving', { port: 1 });
    log.warn('plain');
    expect(out).toEqual([
      expect.stringMatching(/^\d\d:\d\d:\d\d info {2}Serving {2}port=1\n$/),
      expect.stringMatching(/warn {2}plain\n$/),
    ]);
  });
});
