import type { Skill } from '../skills/library.ts';

/** A public skill that is switched on and restricts nothing. */
export const sampleSkill = (name: string, more: Partial<Skill> = {}): Skill => ({
  name,
  description: `About ${name}`,
  license: null,
  version: null,
  author: null,
  compatibility: null,
  allowedTools: null,
  requiredSecrets: [],
  secretsAutonomous: true,
  metadata: {},
  category: 'public',
  enabled: true,
  editable: false,
  path: name,
  location: `/mnt/skills/public/${name}`,
  folder: `/nowhere/${name}`,
  body: 'Steps',
  text: `---\nname: ${name}\ndescription: About ${name}\n---\nSteps`,
  signature: name,
  ...more,
});
