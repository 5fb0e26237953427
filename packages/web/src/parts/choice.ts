/** Where the arrow keys lead in a list of so many entries; null = the key is none of them. */
export function moved(at: number, count: number, key: string): number | null {
  if (count === 0) return null;
  if (key === 'ArrowDown') return (at + 1) % count;
  if (key === 'ArrowUp') return (at + count - 1) % count;
  return null;
}
