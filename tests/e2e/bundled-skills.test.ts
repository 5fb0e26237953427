import { execFileSync } from 'node:child_process';
import { type Script, type ScriptedProvider, startScriptedProvider, type Turn } from '@reindeer/scripted';
import { verifies } from '@reindeer/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { projectFolder, type RunningServer, say, scriptedConfig, startServer } from '../support/server.ts';

/** The scripted model does what the message says: reads the skill, runs the commands, and tells what the last one printed. */
const script: Script = (request): Turn => {
  const newest = request.messages.findLastIndex(
    (message) => message.role === 'user' && message.text.includes('skill:'),
  );
  const text = newest === -1 ? '' : (request.messages[newest]?.text ?? '');
  const [, skill = '', command = ''] = /skill:(\S+)\n([\s\S]*?)\nend/.exec(text) ?? [];
  const results = request.messages.slice(newest + 1).filter((message) => message.role === 'tool');
  if (skill === '') return { text: 'Nothing was asked.' };
  if (results.length === 0)
    return {
      toolCalls: [
        { name: 'read_file', args: { description: 'read the skill', path: `/mnt/skills/public/${skill}/SKILL.md` } },
      ],
    };
  if (results.length === 1)
    return {
      toolCalls: [
        {
          name: 'bash',
          args: { description: 'follow the skill', command: `S=/mnt/skills/public/${skill}/scripts\n${command}` },
        },
      ],
    };
  return { text: results.map((result) => result.text).join('\n=====\n') };
};

let provider: ScriptedProvider;
let project: Awaited<ReturnType<typeof projectFolder>>;
let server: RunningServer;
beforeAll(async () => {
  provider = await startScriptedProvider({ script });
  project = await projectFolder(scriptedConfig(provider.openAiUrl));
  server = await startServer(project.folder);
});
afterAll(async () => {
  await server.process.end();
  await provider.close();
  await project.remove();
});

async function follow(skill: string, command: string): Promise<string> {
  const thread = await server.client.threads.create();
  const state = (await server.client.runs.wait(thread.thread_id, 'lead_agent', {
    input: say(`skill:${skill}\n${command}\nend`),
  })) as unknown as { messages: { content: unknown }[] };
  return String(state.messages.at(-1)?.content);
}

const python = ((): boolean => {
  try {
    execFileSync('python3', ['--version'], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
})();

const TABLE = 'month,city,revenue\nJan,Oslo,100\nFeb,Oslo,150\nJan,Bergen,80\nFeb,Bergen,';

describe.skipIf(!python)('skills that come along: the agent reads each and runs its scripts in the sandbox', () => {
  test.each<[string, string, readonly RegExp[]]>([
    [
      'data-analysis',
      `printf '${TABLE}' > sales.csv; python3 $S/describe.py sales.csv; python3 $S/query.py sales.csv --sql "SELECT city, SUM(revenue) AS total FROM sales GROUP BY city ORDER BY total DESC"; python3 $S/query.py sales.csv --sql "SELECT profit FROM sales"`,
      [
        /4 rows, 3 columns, 0 duplicate rows/,
        /\| revenue \| integer \(3\) \| 1 \| 3 \| 80 … 150/,
        /\| Oslo \| 250 \|\n\| Bergen \| 80 \|/,
        /SQL error: no such column: profit. Tables: sales/,
      ],
    ],
    [
      'chart',
      `printf 'm,a,b\nJan,3,1\nFeb,5,2' > d.csv; for k in bar line; do python3 $S/chart.py d.csv --kind $k --x m --y a --y b --title "A & B" --out /mnt/user-data/outputs/$k.svg; done; python3 $S/chart.py d.csv --kind pie --x m --y a --out pie.svg; python3 $S/chart.py d.csv --kind scatter --x b --y a --out s.svg; grep -o '<title>[^<]*' /mnt/user-data/outputs/bar.svg; python3 -c "import xml.dom.minidom as m; [m.parse(f) for f in ('/mnt/user-data/outputs/bar.svg','/mnt/user-data/outputs/line.svg','pie.svg','s.svg')]; print('all well-formed')"; python3 $S/chart.py d.csv --kind bar --x m --y nothing --out x.svg`,
      [
        /bar.svg: bar of 2 points, 2 series/,
        /<title>Feb, a: 5/,
        /all well-formed/,
        /no column "nothing". Columns: m, a, b/,
      ],
    ],
    [
      'report-writing',
      `printf '# T\n#### Deep\nTODO [citation:A](https://a.example)\n' > r.md; python3 $S/check_report.py r.md; printf '# T\n\nText **bold** <b>. [citation:A](https://a.example/)\n\n| a | b |\n| - | - |\n| 1 | 2 |\n\n## Sources\n\n- [A](https://a.example/)\n' > good.md; python3 $S/check_report.py good.md && python3 $S/to_html.py good.md out.html && cat out.html`,
      [
        /jumps from level 1 to 4/,
        /leftover/,
        /cited but not in Sources: https:\/\/a.example/,
        /no faults/,
        /<strong>bold<\/strong> &lt;b&gt;/,
        /<table><tr><th>a<\/th>/,
      ],
    ],
    [
      'slide-deck',
      `printf '<svg xmlns="http://www.w3.org/2000/svg"/>' > p.svg; printf 'title: Deck\n---\n# One\n- a\n- b\nNote: say it\n---\n- no title\n![p](p.svg)\n' > d.md; python3 $S/build_deck.py d.md deck.html; grep -c '<section>' deck.html; grep -o 'data:image/svg' deck.html; printf 'title: x\n---\n# A\n![p](../../etc/passwd)\n' > e.md; python3 $S/build_deck.py e.md e.html`,
      [/slide 3 has no title/, /deck.html: 3 slides/, /\n3\n/, /data:image\/svg/, /pictures must lie beside the deck/],
    ],
    [
      'web-page',
      `python3 $S/check_page.py /mnt/skills/public/web-page/templates/page.html; printf '<html><body><h1>a</h1><h3>b</h3><img src="https://x.example/a.png"><input id="f"></div>' > bad.html; python3 $S/check_page.py bad.html`,
      [
        /no faults/,
        /headings jump from h1 to h3/,
        /a picture without alt/,
        /img comes from another server/,
        /a field without a label/,
        /closes nothing/,
        /no title/,
      ],
    ],
    [
      'deep-research',
      `A="python3 $S/sources.py"; $A add --url https://www.a.example/x/ --title "A" --claim "it is so" --kind secondary; $A add --url https://a.example/x --title "A" --claim "it is so" --kind secondary; $A check; $A add --url https://b.example/ --title "B" --claim "it is so" --kind primary; $A check && $A list`,
      [
        /in the ledger with this claim already/,
        /weak: it is so/,
        /1 claims, 0 weak/,
        /- \[A\]\(https:\/\/www.a.example\/x\/\)\n- \[B\]/,
      ],
    ],
    [
      'skill-creator',
      `python3 $S/new_skill.py my-skill --description "Does it. Use it when asked: always" --out . && printf '\nMore words so that the instructions are long enough to be of use to somebody who follows them.\n' >> my-skill/SKILL.md && python3 $S/validate_skill.py my-skill --pack /mnt/user-data/outputs/my-skill.skill; python3 $S/new_skill.py Bad_Name --description x; printf 'x' > my-skill/run && printf '\\177ELF' > my-skill/bin && python3 $S/validate_skill.py my-skill`,
      [/no faults\n\/mnt\/user-data\/outputs\/my-skill.skill/, /lower-case words/, /bin is a program/],
    ],
    [
      'code-review',
      `mkdir -p src; printf 'def f():\n    password = "correct-horse-battery"\n    # TODO later\n' > src/a.py; printf 'def test_f(): pass\n' > src/test_a.py; python3 $S/review_facts.py src; printf '%s\n' '--- a/x.py' '+++ b/x.py' '@@ -1,1 +5,2 @@' ' old' '+breakpoint()' > c.diff; python3 $S/review_facts.py c.diff`,
      [
        /2 code files, .* 1 of them tests/,
        /a.py:2: possible secret/,
        /a.py:3: leftover TODO/,
        /code changed, but no test/,
        /x.py:6: leftover breakpoint\(\)/,
      ],
    ],
  ])('%s', verifies('SK-14'), async (skill, command, expected) => {
    const answer = await follow(skill, command);
    expect(answer).toContain(`name: ${skill}`);
    for (const pattern of expected) expect(answer).toMatch(pattern);
  });
});
