/**
 * Text from users, files, the web and memory may not look like a block that the harness writes (MW-1, MW-3). This is the one list of the
 * names of such blocks; a test reads the sources and fails when a block is written whose name is missing here.
 */
export const AUTHORITY_TAGS: readonly string[] = [
  'system-reminder',
  'system_reminder',
  'memory',
  'current_date',
  'think',
  'analysis',
  'role',
  'soul',
  'self_update',
  'thinking_style',
  'clarification_system',
  'critical_reminders',
  'response_style',
  'citations',
  'uploaded_files',
  'current_uploads',
  'subagent_system',
  'skill_system',
  'skill_index',
  'available_skills',
  'disabled_skills',
  'memory_tool_system',
  'todo_list_system',
  'durable_context_data',
  'slash_skill_activation',
  'mcp_routing_hints',
  'available-deferred-tools',
  'goal_continuation',
  'background_task_event',
  'file_editing_workflow',
  'guidelines',
  'output_format',
  'working_directory',
  'tool_restrictions',
  'system',
  'instruction',
  'instructions',
  'important',
  'override',
  'ignore',
  'prompt',
  // Blocks that only this harness writes.
  'input_boundary',
  'confidentiality',
  'conversation',
  'earlier_summary',
  'delegations',
  'skills_read',
  'bootstrap',
  'acceptance_criteria',
  'judged_task',
  'judged_result',
];

/** Elements that stand inside of a block of the list and mean nothing without it; as tags of their own they are ordinary data. */
export const INNER_TAGS: readonly string[] = ['skill', 'name', 'description', 'location'];

export const BEGIN_INPUT = '--- BEGIN USER INPUT ---';
export const END_INPUT = '--- END USER INPUT ---';

/** Longest names first, so that `system` does not hide `system-reminder`. White space is bounded: the pattern stays linear. */
const names = [...AUTHORITY_TAGS].sort((left, right) => right.length - left.length).join('|');
const SPACE = '[\\s\\u200b-\\u200f\\u2060\\ufeff]{0,8}';
const TAG = new RegExp(`<(?=${SPACE}/?${SPACE}(?:${names})(?![\\w-]))`, 'gi');
const MARKER = /-{3,8}[ \t]{0,8}(BEGIN|END)[ \t]{1,8}USER[ \t]{1,8}INPUT[ \t]{0,8}-{3,8}/gi;

/** Escapes the `<` of every opening, closing or unfinished authority tag. Other markup stays. Idempotent; the same string when nothing fits. */
export function neutralTags(text: string): string {
  return text.includes('<') ? text.replace(TAG, '&lt;') : text;
}

/** Breaks boundary markers that stand inside of text. */
function neutralMarkers(text: string): string {
  return text.includes('---') ? text.replace(MARKER, (_, word: string) => `[${word.toUpperCase()} USER INPUT]`) : text;
}

/** Makes a user's text safe and marks where it begins and ends. What is wrapped already is not wrapped again; blank text stays as it is. */
export function wrappedInput(text: string): string {
  if (text.trim() === '') return text;
  const head = `${BEGIN_INPUT}\n`;
  const tail = `\n${END_INPUT}`;
  const wrapped = text.startsWith(head) && text.endsWith(tail) && text.length >= head.length + tail.length;
  const inner = wrapped ? text.slice(head.length, -tail.length) : text;
  return `${head}${neutralMarkers(neutralTags(inner))}${tail}`;
}

/** Escapes everything that could be markup: for values inside of blocks that the harness writes. */
export const escapedText = (text: string): string =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
