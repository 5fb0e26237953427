import type { Language } from './words.ts';

/** What the tools that come with Reindeer do, in a few words: English, Chinese. */
const TITLES: Readonly<Record<string, readonly [english: string, chinese: string]>> = {
  bash: ['Run a command', '运行命令'],
  ls: ['List files', '列出文件'],
  read_file: ['Read a file', '读取文件'],
  write_file: ['Write a file', '写入文件'],
  str_replace: ['Edit a file', '编辑文件'],
  glob: ['Find files', '查找文件'],
  grep: ['Search in files', '在文件中搜索'],
  view_image: ['Look at a picture', '查看图片'],
  list_uploaded_files: ['List uploaded files', '列出上传的文件'],
  present_files: ['Present files', '展示文件'],
  ask_clarification: ['Ask a question', '提问'],
  write_todos: ['Update the plan', '更新计划'],
  task: ['Hand work to a sub-agent', '交给子智能体'],
  batch_task: ['Start a batch', '启动批量任务'],
  batch_status: ['Look at a batch', '查看批量任务'],
  batch_wait: ['Wait for a batch', '等待批量任务'],
  cancel_batch: ['Cancel a batch', '取消批量任务'],
  web_search: ['Search the web', '搜索网络'],
  web_fetch: ['Open a web page', '打开网页'],
  image_search: ['Search for pictures', '搜索图片'],
  memory_search: ['Search the memory', '搜索记忆'],
  memory_add: ['Remember a fact', '记住一条事实'],
  memory_update: ['Correct a fact', '更正一条事实'],
  memory_delete: ['Forget a fact', '忘记一条事实'],
  tool_search: ['Look for tools', '查找工具'],
  setup_agent: ['Make an agent', '创建智能体'],
  update_agent: ['Change its own profile', '修改自身设定'],
};

/** What a tool is called in the page: ours by what they do, those of MCP servers and of the operator by their own names. */
export function toolTitle(name: string, language: Language): string {
  const [english, chinese] = (Object.hasOwn(TITLES, name) ? TITLES[name] : undefined) ?? [name, name];
  return language === 'zh' ? chinese : english;
}
