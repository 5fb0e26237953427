import { verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { checkCommand } from './command.ts';
import { checkEnvironment, scrubEnvironment } from './environment.ts';

test('what looks like a secret does not pass', verifies('SL-13'), () => {
  const secret = [
    'OPENAI_API_KEY',
    'aws_secret_access',
    'GITHUB_TOKEN',
    'DB_PASSWORD',
    'GOOGLE_APPLICATION_CREDENTIALS',
    'SENTRY_DSN',
    'DATABASE_URL',
    'REDIS_URL',
    'GH_PAT',
    'MYSQL_PWD',
    'AMQP_URL',
    'SSH_AUTH_SOCK',
  ];
  const plain = { PATH: '/bin', HOME: '/home/x', LANG: 'C.UTF-8', EDITOR: 'vi' };
  const host = { ...plain, ...Object.fromEntries(secret.map((name) => [name, 'hidden'])), UNSET: undefined };
  expect(scrubEnvironment(host)).toEqual(plain);
});

test('an added name must be a POSIX identifier, and its value is never shown', verifies('SL-14'), () => {
  checkEnvironment({ MY_API_KEY: 'value', _x1: '' });
  for (const name of ['1A', 'A-B', 'A B', '', 'A=B', 'Ä', 'A\n']) {
    expect(() => checkEnvironment({ [name]: 'the value' }), name).toThrow(/not a valid environment variable name/);
    expect(() => checkEnvironment({ [name]: 'the value' })).not.toThrow(/the value/);
  }
  expect(() => checkEnvironment({ A: 'x\0y' })).toThrow('NUL');
});

test('commands that cannot run are refused before anything starts', () => {
  checkCommand('echo hi');
  expect(() => checkCommand('  \n')).toThrow('empty');
  expect(() => checkCommand('a\0b')).toThrow('NUL');
  expect(() => checkCommand('x'.repeat(120_001))).toThrow('script file');
});
