/**
 * Channel versions: the number of digits, the digits of a counter, a random end. They grow in text order; the end keeps two branches
 * of one parent from sharing a (channel, version), under which a value is stored once; and they are short, because
 * a checkpoint names a dozen.
 *
 * @param fraction a fresh random number in [0, 1)
 */
export function nextVersion(current: string | number | undefined, fraction: number): string {
  const digits = (counterOf(current) + 1).toString(36);
  const end = Math.floor(fraction * END_SPACE)
    .toString(36)
    .padStart(END_LENGTH, '0');
  return `${digits.length.toString(36)}${digits}${end}`;
}

const END_LENGTH = 5;
const END_SPACE = 36 ** END_LENGTH;

function counterOf(version: string | number | undefined): number {
  if (version === undefined) return 0;
  if (typeof version === 'number') return version;
  return Number.parseInt(version.slice(1, 1 + Number.parseInt(version.slice(0, 1), 36)), 36);
}
