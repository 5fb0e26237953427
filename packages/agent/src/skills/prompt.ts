import { escapedText } from '../safety/tags.ts';
import type { Skill } from './library.ts';

/** Longest list of skills with descriptions, in characters; past it the rest is named only. */
const MAX_LIST = 24_000;

/**
 * The prompt's section on skills (SK-4): name, description and place of each, to be read before use. It changes only with the skills, so that
 * providers can reuse the prefix. '' without skills.
 */
export function skillsSection(skills: readonly Skill[]): string {
  const on = skills.filter((skill) => skill.enabled);
  const off = skills.filter((skill) => !skill.enabled);
  if (on.length === 0 && off.length === 0) return '';
  let size = 0;
  const lines = on.map((skill) => {
    const whole = `<skill><name>${skill.name}</name><description>${escapedText(skill.description)}${skill.editable ? ' (the user’s own)' : ''}</description><location>${escapedText(`${skill.location}/SKILL.md`)}</location></skill>`;
    size += whole.length;
    return size <= MAX_LIST
      ? whole
      : `<skill><name>${skill.name}</name><location>${escapedText(`${skill.location}/SKILL.md`)}</location></skill>`;
  });
  return `<skill_system>
Skills are folders with proven instructions, scripts and templates for one kind of task. When a task fits a skill, read its SKILL.md with read_file before you begin, follow it, and read the files that it names only when you need them. Paths in a skill are relative to its folder. Skills cannot be changed there.
${on.length === 0 ? '' : `<available_skills>\n${lines.join('\n')}\n</available_skills>\n`}${off.length === 0 ? '' : `<disabled_skills>\nSwitched off by the user; do not use them or look for them: ${off.map((skill) => skill.name).join(', ')}\n</disabled_skills>\n`}</skill_system>`;
}
