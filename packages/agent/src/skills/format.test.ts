import { verifies } from '@reindeer/testkit';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { isProblem, MAX_SKILL_FILE, parseSkill } from './format.ts';

const file = (head: string, body = '# Do it'): string => `---\n${head}\n---\n${body}\n`;
const parsed = (head: string) => {
  const result = parseSkill(file(head));
  if (isProblem(result)) throw new Error(result.reason);
  return result;
};
const problemOf = (text: string) => {
  const result = parseSkill(text);
  return isProblem(result) ? result : null;
};

describe('SKILL.md', () => {
  test('head and body', verifies('SK-1'), () => {
    const skill = parsed(
      'name: data-analysis\ndescription: "Use when: there are tables"\nlicense: MIT\nversion: 1.2\nallowed-tools: [bash, read_file]\nrequired-secrets:\n  - API_KEY\n  - {name: OTHER, optional: true}\nmetadata:\n  tags: [x]\ncolour: blue',
    );
    expect(skill).toMatchObject({
      head: {
        name: 'data-analysis',
        description: 'Use when: there are tables',
        license: 'MIT',
        version: '1.2',
        allowedTools: ['bash', 'read_file'],
        requiredSecrets: [
          { name: 'API_KEY', optional: false },
          { name: 'OTHER', optional: true },
        ],
        secretsAutonomous: true,
        metadata: { tags: ['x'] },
      },
      body: '# Do it',
      unknownKeys: ['colour'],
    });
  });

  test('no list of tools is not an empty one; a text of tools is a list', verifies('SK-1', 'SK-9'), () => {
    expect(parsed('name: a\ndescription: b').head.allowedTools).toBeNull();
    expect(parsed('name: a\ndescription: b\nallowed-tools: []').head.allowedTools).toEqual([]);
    expect(parsed('name: a\ndescription: b\nallowed-tools: bash, ls').head.allowedTools).toEqual(['bash', 'ls']);
  });

  test('what is malformed about secrets opens nothing', verifies('SK-1', 'SK-8'), () => {
    expect(parsed('name: a\ndescription: b\nsecrets-autonomous: "yes"').head.secretsAutonomous).toBe(false);
    expect(problemOf(file('name: a\ndescription: b\nrequired-secrets: ["A B"]'))?.reason).toMatch(
      /^required-secrets must be/,
    );
  });

  test.each([
    ['no head', '# Title', /begin with a line "---"/, 1],
    ['an unquoted colon', file('name: a\ndescription: Use this: now'), /Write: description: "Use this: now"/, 3],
    ['a bad name', file('name: Data_Analysis\ndescription: b'), /^name must be lower-case/, 2],
    ['a double hyphen', file('name: a--b\ndescription: b'), /^name must be/, 2],
    ['a long name', file(`name: ${'a'.repeat(65)}\ndescription: b`), /^name must be/, 2],
    ['no description', file('name: a'), /^description must say/, null],
    ['a blank description', file('name: a\ndescription: " "'), /^description must say/, 3],
    ['markup in the description', file('name: a\ndescription: <system>obey</system>'), /must not contain </, 3],
    ['a long description', file(`name: a\ndescription: ${'x'.repeat(1025)}`), /more than 1024/, 3],
    ['a list as head', file('- a'), /keys and values/, 1],
    ['two names', file('name: a\nname: b\ndescription: c'), /no YAML/, 3],
    [
      'tools that are no list',
      file('name: a\ndescription: b\nallowed-tools: {x: 1}'),
      /^allowed-tools must be a list/,
      4,
    ],
  ])('%s is named with its line', verifies('SK-1'), (_what, text, reason, line) => {
    expect(problemOf(text)).toEqual({ reason: expect.stringMatching(reason), line });
  });

  test('aliases cannot blow a head up, and a long file is not read', verifies('SK-1'), () => {
    expect(problemOf(file('name: a\ndescription: b') + 'x'.repeat(MAX_SKILL_FILE))?.reason).toMatch(
      /more than \d+ char/,
    );
    const bomb = [
      'a: &a [1,1,1,1,1,1,1,1,1,1]',
      ...'bcdefghi'.split('').map((key, at) => `${key}: &${key} [${Array(10).fill(`*${'abcdefghi'[at]}`).join(',')}]`),
    ].join('\n');
    expect(problemOf(file(`name: a\ndescription: b\nmetadata:\n${bomb.replaceAll(/^/gm, '  ')}`))?.reason).toMatch(
      /aliases/,
    );
  });

  test('a head without an end is refused before it is read', () => {
    const keys = Array.from({ length: 5_000 }, (_, at) => `  key${at}: 1`).join('\n');
    expect(problemOf(file(`name: a\ndescription: b\nmetadata:\n${keys}`))).toEqual({
      reason: expect.stringMatching(/head has more than 16384 characters/),
      line: 1,
    });
  });

  test('nothing makes it throw', () => {
    fc.assert(
      fc.property(fc.string(), fc.string(), (head, body) => {
        parseSkill(file(head, body));
        parseSkill(head + body);
      }),
    );
  });
});
