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
  titles: { report: (subject) => `关于${subject}的报告` },
  formFields: [
    { name: 'name', label: '雪橇名称', type: 'text', required: true, placeholder: '北极星' },
    { name: 'colour', label: '颜色', type: 'select', required: true, options: ['红色', '绿色', '蓝色'] },
    { name: 'seats', label: '座位数', type: 'number', required: false },
    { name: 'bells', label: '带铃铛', type: 'checkbox', required: false },
  ],
};
