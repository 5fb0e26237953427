import { isDictionary, listOf, textOr } from './wire.ts';

export interface ChangeSummary {
  readonly files: number;
  readonly additions: number;
  readonly deletions: number;
}

export interface ChangedFile {
  readonly path: string;
  readonly status: 'created' | 'modified' | 'deleted' | 'symlink';
  readonly additions: number;
  readonly deletions: number;
  readonly diff: readonly DiffLine[] | null;
  /** Why there is no diff. */
  readonly reason: string;
}

export interface DiffLine {
  readonly number: number;
  readonly kind: 'plus' | 'minus' | 'place' | 'same';
  readonly text: string;
}

const MOST_LINES = 2_000;

/** null = the run has not ended, or nothing is known of its changes. */
export function readSummary(value: unknown): ChangeSummary | null {
  const summary = isDictionary(value) && value.available === true ? value.summary : null;
  if (!isDictionary(summary)) return null;
  const { created, modified, deleted, symlink_created: links, additions, deletions } = summary;
  return {
    files: [created, modified, deleted, links].reduce<number>((sum, count) => sum + numberOf(count), 0),
    additions: numberOf(additions),
    deletions: numberOf(deletions),
  };
}

export function readChanges(value: unknown): readonly ChangedFile[] {
  return listOf(isDictionary(value) ? value.files : null)
    .filter(isDictionary)
    .map((file) => ({
      path: pathOf(textOr(file.path, '')),
      status: statusOf(file.status),
      additions: numberOf(file.additions),
      deletions: numberOf(file.deletions),
      diff: typeof file.diff === 'string' && file.diff !== '' ? readDiff(file.diff) : null,
      reason: textOr(file.diff_unavailable_reason, ''),
    }))
    .filter((file) => file.path !== '');
}

/** The lines of a unified diff, which comes without a head. */
export function readDiff(diff: string): readonly DiffLine[] {
  return diff
    .replace(/\n$/, '')
    .split('\n')
    .slice(0, MOST_LINES)
    .map((text, number) => ({
      number,
      kind: text.startsWith('+') ? 'plus' : text.startsWith('-') ? 'minus' : text.startsWith('@@') ? 'place' : 'same',
      text,
    }));
}

const pathOf = (path: string): string => (path === '' || path.startsWith('/') ? path : `/mnt/user-data/${path}`);

function statusOf(value: unknown): ChangedFile['status'] {
  if (value === 'created' || value === 'deleted') return value;
  return value === 'symlink_created' ? 'symlink' : 'modified';
}

const numberOf = (value: unknown): number => (typeof value === 'number' ? value : 0);
