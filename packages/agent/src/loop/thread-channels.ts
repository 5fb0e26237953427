import type { Random } from '@reindeer/protocol';
import { COMPACTION } from '../context/compaction.ts';
import { mergeReminders, REMINDERS } from '../context/dynamic-context.ts';
import { mergeGoal } from '../goals/goal.ts';
import { type Channel, lastWrite, messagesChannel, reduced, reducedFromFirst } from './channels.ts';

const MAX_DELEGATIONS = 50;
/** More than there can be skills: one that was read restricts the agent, and reading others must not lift that. */
const MAX_SKILLS = 1_000;
/** Of so many the descriptions are kept. */
const DESCRIBED_SKILLS = 8;
const MAX_DESCRIPTION = 500;
const TERMINAL = new Set(['completed', 'failed', 'cancelled', 'timed_out', 'success', 'error']);

type Entry = Record<string, unknown>;
const isObject = (value: unknown): value is Entry =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const entries = (value: unknown): Entry[] => (Array.isArray(value) ? value.filter(isObject) : []);

/** The channels of a thread (ST-1). Every reducer is pure, total, and tolerates missing sides. */
export function threadChannels(random: Random): Record<string, Channel> {
  return {
    messages: messagesChannel(random),
    // One thread has one sandbox: a write that is not `{sandbox_id}` changes nothing.
    sandbox: reducedFromFirst((left, right) =>
      isObject(right) && typeof right.sandbox_id === 'string' ? right : left,
    ),
    thread_data: lastWrite(),
    title: lastWrite(),
    artifacts: reduced(unionOfPaths, () => []),
    todos: reducedFromFirst((left, right) => (Array.isArray(right) ? right : left)),
    goal: reducedFromFirst(mergeGoal),
    uploaded_files: reducedFromFirst((left, right) => (Array.isArray(right) ? right : left)),
    viewed_images: reducedFromFirst(mergeImages),
    promoted: reducedFromFirst(mergePromoted),
    delegations: reducedFromFirst(mergeDelegations),
    skill_context: reducedFromFirst(mergeSkills),
    summary_text: lastWrite(),
    background_tasks: lastWrite(),
    /** The custom agent that this conversation made, for clients that go on there. */
    created_agent_name: lastWrite(),
    [COMPACTION]: reducedFromFirst((left, right) => (isObject(right) ? right : left)),
    // The harness's own: what it told the model about the date and the user, and before which message.
    [REMINDERS]: { ...reducedFromFirst(mergeReminders), hidden: true },
  };
}

function unionOfPaths(left: unknown, right: unknown): string[] {
  const paths = [...(Array.isArray(left) ? left : []), ...(Array.isArray(right) ? right : [])];
  return [...new Set(paths.filter((path): path is string => typeof path === 'string'))];
}

function mergeImages(left: unknown, right: unknown): unknown {
  if (!isObject(right)) return left;
  if (Object.keys(right).length === 0) return {};
  const merged: Entry = isObject(left) ? { ...left } : {};
  for (const [path, image] of Object.entries(right)) {
    if (!isObject(image)) continue;
    // Pixels never rest in state.
    const { mime_type, size, actual_path, modified_at } = image;
    merged[path] = { mime_type, size, actual_path, ...(modified_at === undefined ? {} : { modified_at }) };
  }
  return merged;
}

function mergePromoted(left: unknown, right: unknown): unknown {
  if (!isObject(right) || typeof right.catalog_hash !== 'string') return left;
  const names = Array.isArray(right.names) ? right.names : [];
  if (!isObject(left) || left.catalog_hash !== right.catalog_hash) return { ...right, names: [...new Set(names)] };
  const before = Array.isArray(left.names) ? left.names : [];
  return { catalog_hash: right.catalog_hash, names: [...new Set([...before, ...names])] };
}

function mergeDelegations(left: unknown, right: unknown): unknown {
  const merged = new Map<unknown, Entry>(entries(left).map((entry) => [entry.id, entry]));
  for (const entry of entries(right)) {
    const id = entry.id;
    const before = merged.get(id);
    if (before === undefined) {
      merged.set(id, entry);
      continue;
    }
    // A finished delegation stays finished, and keeps when and by which run it was made.
    const ended = TERMINAL.has(String(before.status)) && !TERMINAL.has(String(entry.status));
    merged.set(id, {
      ...before,
      ...entry,
      ...(ended ? { status: before.status } : {}),
      ...(before.created_at === undefined ? {} : { created_at: before.created_at }),
      ...(before.run_id === undefined ? {} : { run_id: before.run_id }),
    });
  }
  return [...merged.values()].slice(-MAX_DELEGATIONS);
}

function mergeSkills(left: unknown, right: unknown): unknown {
  const merged = new Map<unknown, Entry>();
  for (const skill of [...entries(left), ...entries(right)]) {
    const description = skill.description;
    merged.delete(skill.path);
    merged.set(skill.path, {
      ...skill,
      ...(typeof description === 'string' ? { description: description.slice(0, MAX_DESCRIPTION) } : {}),
    });
  }
  const kept = [...merged.values()].slice(-MAX_SKILLS);
  return kept.map((skill, at) =>
    at < kept.length - DESCRIBED_SKILLS ? { path: skill.path, name: skill.name } : skill,
  );
}
