import { Agent } from 'node:http';
import { Agent as SecureAgent } from 'node:https';
import { BlockList, isIP } from 'node:net';

export type ProxyEnvironment = Readonly<Record<string, string | undefined>>;

const NEAR = new BlockList();
for (const [address, bits] of [
  ['127.0.0.0', 8],
  ['10.0.0.0', 8],
  ['172.16.0.0', 12],
  ['192.168.0.0', 16],
  ['169.254.0.0', 16],
] as const)
  NEAR.addSubnet(address, bits, 'ipv4');
for (const [address, bits] of [
  ['::1', 128],
  ['fc00::', 7],
  ['fe80::', 10],
] as const)
  NEAR.addSubnet(address, bits, 'ipv6');

/** Names that only mean something on this machine, or in this cluster. */
const NEAR_NAMES = /(^|\.)(localhost|docker\.internal|containers\.internal|svc|cluster\.local)$/;

/**
 * Is this host on this machine or in a private network? A proxy of the environment stands at the way out, and is never asked for it
 * (SX-10). A name of one label counts: it is one of a container network or of the local domain.
 */
export function isNear(host: string): boolean {
  const name = host
    .toLowerCase()
    .replace(/^\[|\]$/g, '')
    .replace(/\.$/, '');
  const kind = isIP(name);
  if (kind !== 0) return NEAR.check(name, kind === 4 ? 'ipv4' : 'ipv6');
  return !name.includes('.') || NEAR_NAMES.test(name);
}

/**
 * Connections to one server: straight where it is near, else as `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY` say. None is kept: one that
 * the other side closes in the very moment of its next use would lose a request.
 */
export function agentFor(url: URL, environment: ProxyEnvironment, maxSockets: number): Agent {
  const proxied = isNear(url.hostname) ? {} : { proxyEnv: { ...environment } };
  const options = { keepAlive: false, maxSockets, ...proxied };
  return url.protocol === 'https:' ? new SecureAgent(options) : new Agent(options);
}
