import type { JsonObject } from '@reindeer/protocol';

/** What the demo model says, in one place and in both languages. */
export interface DemoWords {
  readonly label: string;
  readonly help: string;
  readonly noBash: string;
  readonly reportThinking: (subject: string) => string;
  readonly reportLook: string;
  readonly reportWrite: string;
  readonly reportPresent: string;
  readonly reportDone: (subject: string, path: string) => string;
  readonly report: (subject: string, looked: string) => string;
  readonly stepFailed: (tool: string, message: string) => string;
  readonly listing: (result: string) => string;
  readonly ran: (command: string, result: string) => string;
  readonly fileIs: (path: string, result: string) => string;
  readonly parallel: (results: readonly string[]) => string;
  readonly askQuestion: string;
  readonly askContext: string;
  readonly askOptions: readonly string[];
  readonly answered: (reply: string) => string;
  readonly story: string;
  /** A tool that this run does not offer. */
  readonly notOffered: (tool: string) => string;
  /** Something that the page switches on. */
  readonly needsToggle: (name: string) => string;
  readonly planToggle: string;
  readonly helpersToggle: string;
  readonly planIntroduction: string;
  readonly planSteps: readonly string[];
  readonly planDone: string;
  readonly delegating: string;
  readonly tasks: readonly { readonly description: string; readonly prompt: string }[];
  readonly delegated: (results: readonly string[]) => string;
  readonly batchIntroduction: string;
  readonly batchTitle: string;
  readonly batchPrompt: string;
  readonly batchItems: readonly string[];
  readonly batchDone: (result: string) => string;
  /** When the server tells of the end of one. */
  readonly batchOver: (title: string) => string;
  readonly called: (tool: string, result: string) => string;
  readonly tools: (names: readonly string[]) => string;
  readonly noSkill: string;
  readonly skillIs: (name: string, text: string) => string;
  readonly uploads: (result: string) => string;
  readonly remembered: (fact: string) => string;
  /** To whoever cannot answer. */
  readonly nobody: (asked: string) => string;
  /** What to try next. */
  readonly next: readonly string[];
  readonly titles: { readonly report: (subject: string) => string };
  readonly formFields: readonly JsonObject[];
}

const LABEL_ENGLISH = 'Demo model — scripted, not a real AI.';
const LABEL_CHINESE = '演示模型——按脚本应答，并非真正的 AI。';

export const ENGLISH: DemoWords = {
  label: LABEL_ENGLISH,
  help: `${LABEL_ENGLISH} I only know a few requests, but the tools that I call really run:

- **write a report about reindeer**: looks around, writes a file and presents it
- **list files**: shows your files
- **run: uname -a**: runs a command
- **read report.md**: shows a file
- **in parallel**: three tools at once
- **ask me**: a question with buttons; **ask me a form**: a form
- **tell a story**: a long answer, to try the stop button
- **make a plan**: a plan that is ticked off (switch on **Plan** below)
- **use sub-agents**: two at once; **start a batch**: five items, each by one (switch on **Helpers**)
- **read the attached file**: what you attach, also PDF and Office files
- **use a skill**: reads the instructions of one
- **remember that I like lichen**: how memory works
- **call: TOOL {"key": "value"}**: any tool, those of MCP servers too; **which tools** lists them

To work with a real model, set \`OPENAI_API_KEY\` (with \`OPENAI_BASE_URL\` for any compatible service) or \`ANTHROPIC_API_KEY\` in the environment, or add an entry under \`models:\` in \`config.yaml\`, and start again.`,
  noBash: `${LABEL_ENGLISH} This machine has no sandbox that can run commands, so the tool \`bash\` is not offered. Ask me to **list files** or to **write a report** instead; \`reindeer doctor\` says how to add a sandbox.`,
  reportThinking: (subject) =>
    `The user wants a report about ${subject}. I look around first, then write the file, then present it.`,
  reportLook: 'I will look around first.',
  reportWrite: 'Now I write the report.',
  reportPresent: 'The file is written; I present it.',
  reportDone: (subject, path) =>
    `The report about **${subject}** is ready: \`${path}\`. Open it from the card above.\n\n_${LABEL_ENGLISH} The text is a template, but the commands and the file are real._`,
  report: (subject, looked) => `# Report: ${subject}

This report was written by the demo model of Reindeer. It is scripted and knows nothing about ${subject}; what is real is the work around it.

## What happened

1. The agent looked around in its sandbox.
2. It wrote this file.
3. It presented the file, so that you can open it.

## What the agent saw

\`\`\`
${looked}
\`\`\`

| Step | Tool | Real? |
| --- | --- | --- |
| Look around | \`bash\` or \`ls\` | yes |
| Write | \`write_file\` | yes |
| Present | \`present_files\` | yes |
| The prose | none | no, a template |
`,
  stepFailed: (tool, message) => `The tool \`${tool}\` failed, so I stop here. It said:\n\n\`\`\`\n${message}\n\`\`\``,
  listing: (result) => `These are your files:\n\n\`\`\`\n${result}\n\`\`\``,
  ran: (command, result) => `\`${command}\` answered:\n\n\`\`\`\n${result}\n\`\`\``,
  fileIs: (path, result) => `\`${path}\`:\n\n\`\`\`\n${result}\n\`\`\``,
  parallel: (results) =>
    `${results.length} tools ran side by side:\n\n${results.map((line) => `- ${line}`).join('\n')}`,
  askQuestion: 'Which colour should the sleigh have?',
  askContext: 'The demo model asks this to show how a question looks.',
  askOptions: ['Red', 'Green', 'Blue'],
  answered: (reply) => `You answered: **${reply}**. A real model would go on from here.`,
  story: `${LABEL_ENGLISH} Here is a long answer, so that you can try the stop button.\n\n${Array.from(
    { length: 40 },
    (_, index) => `${index + 1}. The reindeer takes step ${index + 1} through the snow and looks around for lichen.`,
  ).join('\n')}`,
  notOffered: (tool) =>
    `${LABEL_ENGLISH} There is no tool \`${tool}\` in this run. Ask **which tools** there are; **Helpers** and **Plan** below the message add some, and MCP servers (page **Tools**) bring theirs.`,
  needsToggle: (name) =>
    `${LABEL_ENGLISH} This needs **${name}**: switch it on below the message and ask again. (An API client sends \`context: {"subagent_enabled": true, "is_plan_mode": true}\`.)`,
  planToggle: 'Plan',
  helpersToggle: 'Helpers',
  planIntroduction: 'I write the plan first; you see it above the message field.',
  planSteps: ['Look at the files', 'Say what is there'],
  planDone: `The plan is done.\n\n_${LABEL_ENGLISH} The plan and the look at the files were real._`,
  delegating: 'I hand this to two sub-agents. They work side by side, each with its own context.',
  tasks: [
    { description: 'List the files', prompt: 'list files' },
    { description: 'Look at the machine', prompt: 'run: uname -sr && date -u' },
  ],
  delegated: (results) =>
    `Both sub-agents are back. They said:\n\n${results.map((text) => `> ${text}`).join('\n>\n')}\n\n_${LABEL_ENGLISH} The sub-agents play from the same script; their commands were real._`,
  batchIntroduction:
    'I start a batch: five items, each done by a sub-agent of its own. It would go on if I were stopped.',
  batchTitle: 'Words for five reindeer',
  batchPrompt: 'run: echo "{{name}} has $(printf %s {{name}} | wc -c) letters"',
  batchItems: ['Dasher', 'Dancer', 'Prancer', 'Vixen', 'Comet'],
  batchDone: (result) =>
    `The batch is over:\n\n${result}\n\n_${LABEL_ENGLISH} A real model would read, judge or write in each item._`,
  batchOver: (title) => `Reindeer tells me that the batch “${title}” is over. Its card above has the results.`,
  called: (tool, result) => `\`${tool}\` answered:\n\n\`\`\`\n${result}\n\`\`\``,
  tools: (names) => `This run offers ${names.length} tools: ${names.map((name) => `\`${name}\``).join(', ')}.`,
  noSkill: `${LABEL_ENGLISH} No skill is switched on. The page **Skills** lists them.`,
  skillIs: (name, text) =>
    `The skill **${name}** begins:\n\n> ${text}\n\nA real model would follow it. _${LABEL_ENGLISH}_`,
  uploads: (result) => `${result}\n\nAttach a file to your message, and I show what is in it.`,
  remembered: (fact) =>
    `${LABEL_ENGLISH} It learns nothing by itself, as a real model does from what you say. You can write it down on the page **Memory** (“Add a fact”): ${fact}. From then on every conversation knows it.`,
  nobody: (asked) => `${LABEL_ENGLISH} A real model would now do this: ${asked}`,
  next: ['write a report about reindeer', 'list files', 'in parallel', 'ask me a form', 'use a skill', 'tell a story'],
  titles: { report: (subject) => `Report about ${subject}` },
  formFields: [
    { name: 'name', label: 'Name of the sleigh', type: 'text', required: true, placeholder: 'Northern Star' },
    { name: 'colour', label: 'Colour', type: 'select', required: true, options: ['Red', 'Green', 'Blue'] },
    { name: 'seats', label: 'Seats', type: 'number', required: false },
    { name: 'bells', label: 'With bells', type: 'checkbox', required: false },
  ],
};

export const CHINESE: DemoWords = {
  label: LABEL_CHINESE,
  help: `${LABEL_CHINESE} 我只认识几种请求，但我调用的工具会真正运行：

- **写一份关于驯鹿的报告**：查看环境、写文件并展示
- **列出文件**：显示您的文件
- **运行：uname -a**：运行一条命令
- **读取 report.md**：显示一个文件
- **并行**：同时运行三个工具
- **问我**：带按钮的问题；**问我表单**：一张表单
- **讲个故事**：一段长回答，可试用停止按钮
- **做个计划**：逐项完成的计划（请先打开下方的**计划**）
- **使用子智能体**：两个同时工作；**批量任务**：五项，每项由一个子智能体完成（请先打开**助手**）
- **读取附件**：您附上的文件，也包括 PDF 和 Office 文件
- **使用技能**：读取一项技能的说明
- **记住我喜欢地衣**：记忆如何工作
- **调用：TOOL {"key": "value"}**：任何工具，包括 MCP 服务器的工具；**哪些工具**列出所有工具

要使用真正的模型，请在环境变量中设置 \`OPENAI_API_KEY\`（兼容服务另设 \`OPENAI_BASE_URL\`）或 \`ANTHROPIC_API_KEY\`，或在 \`config.yaml\` 的 \`models:\` 下添加一项，然后重新启动。`,
  noBash: `${LABEL_CHINESE} 这台机器没有可以运行命令的沙箱，因此没有提供 \`bash\` 工具。可以让我**列出文件**或**写一份报告**；\`reindeer doctor\` 会说明如何添加沙箱。`,
  reportThinking: (subject) => `用户想要一份关于${subject}的报告。我先查看环境，再写文件，最后展示。`,
  reportLook: '我先查看一下环境。',
  reportWrite: '现在写报告。',
  reportPresent: '文件已写好，我来展示。',
  reportDone: (subject, path) =>
    `关于**${subject}**的报告已完成：\`${path}\`。请从上面的卡片打开。\n\n_${LABEL_CHINESE} 文字是模板，但命令和文件都是真的。_`,
  report: (subject, looked) => `# 报告：${subject}

本报告由 Reindeer 的演示模型撰写。它按脚本应答，对${subject}一无所知；真实的是围绕它的工作。

## 经过

1. 智能体在沙箱中查看了环境。
2. 它写了这个文件。
3. 它展示了文件，您可以打开。

## 智能体看到的内容

\`\`\`
${looked}
\`\`\`
`,
  stepFailed: (tool, message) => `工具 \`${tool}\` 失败，我就此停止。它的信息是：\n\n\`\`\`\n${message}\n\`\`\``,
  listing: (result) => `这些是您的文件：\n\n\`\`\`\n${result}\n\`\`\``,
  ran: (command, result) => `\`${command}\` 的结果：\n\n\`\`\`\n${result}\n\`\`\``,
  fileIs: (path, result) => `\`${path}\`：\n\n\`\`\`\n${result}\n\`\`\``,
  parallel: (results) => `${results.length} 个工具并行运行：\n\n${results.map((line) => `- ${line}`).join('\n')}`,
  askQuestion: '雪橇应该是什么颜色？',
  askContext: '演示模型提出这个问题，是为了展示提问的样子。',
  askOptions: ['红色', '绿色', '蓝色'],
  answered: (reply) => `您的回答是：**${reply}**。真正的模型会从这里继续。`,
  story: `${LABEL_CHINESE} 这是一段长回答，您可以试用停止按钮。\n\n${Array.from(
    { length: 40 },
    (_, index) => `${index + 1}. 驯鹿在雪地里走了第 ${index + 1} 步，四处寻找地衣。`,
  ).join('\n')}`,
  notOffered: (tool) =>
    `${LABEL_CHINESE} 本次运行没有工具 \`${tool}\`。可以问我有**哪些工具**；消息下方的**助手**和**计划**会增加一些，MCP 服务器（**工具**页面）也会带来工具。`,
  needsToggle: (name) =>
    `${LABEL_CHINESE} 这需要**${name}**：请在消息下方打开它，然后再问一次。（API 客户端发送 \`context: {"subagent_enabled": true, "is_plan_mode": true}\`。）`,
  planToggle: '计划',
  helpersToggle: '助手',
  planIntroduction: '我先写计划，您可以在消息框上方看到它。',
  planSteps: ['查看文件', '说明有什么'],
  planDone: `计划已完成。\n\n_${LABEL_CHINESE} 计划和查看文件都是真的。_`,
  delegating: '我把工作交给两个子智能体，它们各有自己的上下文，同时工作。',
  tasks: [
    { description: '列出文件', prompt: '列出文件' },
    { description: '查看机器', prompt: '运行：uname -sr && date -u' },
  ],
  delegated: (results) =>
    `两个子智能体都回来了。它们说：\n\n${results.map((text) => `> ${text}`).join('\n>\n')}\n\n_${LABEL_CHINESE} 子智能体按同一脚本应答，但命令是真的。_`,
  batchIntroduction: '我启动一个批量任务：五项，每项由一个子智能体完成。即使我被停止，它也会继续。',
  batchTitle: '五只驯鹿',
  batchPrompt: '运行：echo "{{name}} $(printf %s {{name}} | wc -m)"',
  batchItems: ['Dasher', 'Dancer', 'Prancer', 'Vixen', 'Comet'],
  batchDone: (result) => `批量任务已结束：\n\n${result}\n\n_${LABEL_CHINESE} 真正的模型会在每一项中阅读、判断或写作。_`,
  batchOver: (title) => `Reindeer 通知我：批量任务“${title}”已结束，结果见上面的卡片。`,
  called: (tool, result) => `\`${tool}\` 的结果：\n\n\`\`\`\n${result}\n\`\`\``,
  tools: (names) => `本次运行有 ${names.length} 个工具：${names.map((name) => `\`${name}\``).join('、')}。`,
  noSkill: `${LABEL_CHINESE} 没有打开任何技能。**技能**页面列出所有技能。`,
  skillIs: (name, text) => `技能 **${name}** 的开头是：\n\n> ${text}\n\n真正的模型会照着做。_${LABEL_CHINESE}_`,
  uploads: (result) => `${result}\n\n请在消息中附上文件，我会显示其内容。`,
  remembered: (fact) =>
    `${LABEL_CHINESE} 它不会像真正的模型那样从谈话中学习。您可以在**记忆**页面自己写下来：${fact}。之后每次对话都会知道它。`,
  nobody: (asked) => `${LABEL_CHINESE} 真正的模型现在会做：${asked}`,
  next: ['写一份关于驯鹿的报告', '列出文件', '并行', '问我表单', '使用技能', '讲个故事'],
  titles: { report: (subject) => `关于${subject}的报告` },
  formFields: [
    { name: 'name', label: '雪橇名称', type: 'text', required: true, placeholder: '北极星' },
    { name: 'colour', label: '颜色', type: 'select', required: true, options: ['红色', '绿色', '蓝色'] },
    { name: 'seats', label: '座位数', type: 'number', required: false },
    { name: 'bells', label: '带铃铛', type: 'checkbox', required: false },
  ],
};
