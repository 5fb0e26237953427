import { isIP } from 'node:net';
import { ReindeerError } from '@reindeer/protocol';
import ipaddr from 'ipaddr.js';

/**
 * Which addresses the server may open for a model (WEB-4). A page, a redirect or a name server may point anywhere: also at this machine, at
 * its neighbours, and at the metadata service of a cloud, which hands out credentials.
 */

const METADATA_HOSTS = new Set(['metadata', 'metadata.google.internal', 'metadata.goog', 'instance-data']);
/** Azure's, which hands out the configuration of a machine, in a public range. */
const WIRE_SERVER = '168.63.129.16';
const INTERNAL_SUFFIXES = ['.localhost', '.local', '.internal', '.localdomain', '.home.arpa'];

/** null = a public address; otherwise what kind of address it is. `address` is an IPv4 or IPv6 literal without brackets. */
export function refusedAddress(address: string): string | null {
  if (!ipaddr.isValid(address)) return 'not an address';
  const parsed = ipaddr.parse(address.split('%')[0] ?? address);
  if (parsed.kind() === 'ipv4') return rangeOf4(parsed as ipaddr.IPv4);
  const six = parsed as ipaddr.IPv6;
  const embedded = embeddedIpv4(six);
  if (embedded !== null) return rangeOf4(embedded);
  // Translated by a network's own rules, which nobody else knows: where the IPv4 address stands in it differs (RFC 8215).
  if (six.match(ipaddr.IPv6.parse('64:ff9b:1::'), 48)) return 'local translation';
  const range = six.range();
  return range === 'unicast' ? null : range;
}

function rangeOf4(address: ipaddr.IPv4): string | null {
  if (address.toString() === WIRE_SERVER) return 'metadata';
  const range = address.range();
  return range === 'unicast' ? null : range;
}

/** The IPv4 address that an IPv6 one leads to: mapped, compatible, 6to4, NAT64 and Teredo. null = none. */
function embeddedIpv4(address: ipaddr.IPv6): ipaddr.IPv4 | null {
  const bytes = address.toByteArray();
  const at = (index: number): ipaddr.IPv4 => new ipaddr.IPv4(bytes.slice(index, index + 4));
  if (address.isIPv4MappedAddress()) return address.toIPv4Address();
  if (address.match(ipaddr.IPv6.parse('2002::'), 16)) return at(2);
  if (address.match(ipaddr.IPv6.parse('64:ff9b::'), 96)) return at(12);
  if (address.match(ipaddr.IPv6.parse('2001::'), 32))
    return new ipaddr.IPv4(bytes.slice(12, 16).map((byte) => byte ^ 0xff));
  // ::a.b.c.d, without :: and ::1, which have ranges of their own.
  if (address.match(ipaddr.IPv6.parse('::'), 96) && address.range() === 'unicast') return at(12);
  return null;
}

/** A name that is internal whatever it resolves to. */
function refusedName(host: string): boolean {
  const name = host.toLowerCase().replace(/\.$/, '');
  return name === 'localhost' || METADATA_HOSTS.has(name) || INTERNAL_SUFFIXES.some((suffix) => name.endsWith(suffix));
}

/**
 * Reads an address that a model, a page or a redirect named. `URL` has already turned decimal, octal and hexadecimal IPv4 forms into
 * the usual one. What a name resolves to is judged when the connection is made.
 *
 * @throws ReindeerError `forbidden` for an internal address, `tool_failed` for what is no web address
 */
export function publicUrl(text: string, allowPrivate = false): URL {
  let url: URL;
  try {
    url = new URL(text.trim());
  } catch {
    throw new ReindeerError(
      'tool_failed',
      `"${text.slice(0, 200)}" is not a complete web address such as https://example.org/page.`,
    );
  }
  if (url.protocol !== 'http:' && url.protocol !== 'https:')
    throw new ReindeerError(
      'forbidden',
      `Only http and https addresses can be opened, not ${url.protocol.slice(0, 40)}//…`,
    );
  if (url.username !== '' || url.password !== '')
    throw new ReindeerError('forbidden', 'An address with a user name or password in it is not opened.');
  if (url.hostname === '') throw new ReindeerError('tool_failed', 'The address has no host.');
  if (allowPrivate) return url;
  const host = url.hostname.replace(/^\[|\]$/g, '');
  const refused = isIP(host) === 0 ? refusedName(host) : refusedAddress(host) !== null;
  if (refused) throw internal(url.hostname);
  return url;
}

/** Can a browser be pointed there? For addresses of images in results, which nobody resolves here. */
export function isPublicUrl(text: unknown): text is string {
  if (typeof text !== 'string' || text === '') return false;
  try {
    publicUrl(text);
    return true;
  } catch {
    return false;
  }
}

export const internal = (host: string): ReindeerError =>
  new ReindeerError('forbidden', `${host.slice(0, 200)} is an internal address; only public pages can be opened.`);
