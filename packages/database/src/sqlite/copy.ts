import { DatabaseSync } from 'node:sqlite';
import { META } from '../meta.ts';

/**
 * Copies a database that is in use into a new file, as of one moment. Blocking: runs in a thread of its own with its own
 * connection, so that nobody waits for it. The copy is marked, so that whoever opens it starts a new epoch (D3).
 */
export function copyDatabase(file: string, to: string): void {
  const source = new DatabaseSync(file, { readOnly: true, timeout: 5000 });
  try {
    source.prepare('VACUUM INTO ?').run(to);
  } finally {
    source.close();
  }
  const copy = new DatabaseSync(to);
  try {
    copy.exec('PRAGMA synchronous = FULL');
    const set = copy.prepare(
      "insert into meta (name, value) values (?, '1') on conflict (name) do update set value = excluded.value",
    );
    set.run(META.restored);
    copy.prepare('delete from meta where name = ?').run(META.open);
  } finally {
    copy.close();
  }
}
