import { readFile } from 'node:fs/promises';
import { isAbsolute, join } from 'node:path';
import { ReindeerError } from '@reindeer/protocol';
import { at, hostInUrl } from '../container/listing.ts';

/** How an API server of Kubernetes is reached, and as whom. */
export interface KubernetesAccess {
  readonly url: URL;
  /** The namespace that the credentials name; null = none. */
  readonly namespace: string | null;
  readonly ca: Buffer | null;
  /** Client certificate and its key. */
  readonly certificate: { readonly cert: Buffer; readonly key: Buffer } | null;
  /** Asked before every request: a token of a service account is renewed within the hour. */
  readonly token: () => Promise<string | null>;
}

const ACCOUNT = '/var/run/secrets/kubernetes.io/serviceaccount';
const fault = (text: string, cause?: unknown) => new ReindeerError('configuration', `provisioner: ${text}`, { cause });

/** The service account that Kubernetes gives to a pod. @param folder where its files lie; a test has its own */
export async function inClusterAccess(
  environment: Readonly<Record<string, string | undefined>>,
  folder = ACCOUNT,
): Promise<KubernetesAccess> {
  const { KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: port = '443', K8S_API_SERVER: given } = environment;
  const address = given || (!host ? '' : `https://${hostInUrl(host)}:${port}`);
  if (!URL.canParse(address))
    throw fault(
      'this is no pod of a cluster, and KUBECONFIG_PATH names no file. Set it, as in KUBECONFIG_PATH=~/.kube/config.',
    );
  const ca = await readFile(`${folder}/ca.crt`).catch(() => null);
  const namespace = await readFile(`${folder}/namespace`, 'utf8').catch(() => '');
  const token = async () => (await readFile(`${folder}/token`, 'utf8')).trim();
  await token().catch((cause: unknown) => {
    throw fault(`the service account’s token ${folder}/token cannot be read; the pod needs one.`, cause);
  });
  return { url: checkedUrl(address), namespace: namespace.trim() || null, ca, certificate: null, token };
}

/**
 * The current context of a kubeconfig file.
 *
 * @param document the parsed file
 * @param folder of the file: relative paths begin there
 * @throws ReindeerError `configuration` for a file that names no usable server or user; programs that fetch tokens are never started
 */
export async function kubeconfigAccess(document: unknown, folder: string): Promise<KubernetesAccess> {
  const named = (list: string, name: unknown): unknown => {
    const entries = at(document, list);
    const found = Array.isArray(entries) ? entries.find((entry) => at(entry, 'name') === name) : undefined;
    if (found === undefined)
      throw fault(`the kubeconfig has nothing named "${String(name).slice(0, 100)}" in ${list}.`);
    return found;
  };
  const context = at(named('contexts', at(document, 'current-context')), 'context');
  const cluster = at(named('clusters', at(context, 'cluster')), 'cluster');
  const user = at(named('users', at(context, 'user')), 'user');
  if (at(cluster, 'insecure-skip-tls-verify') === true)
    throw fault('insecure-skip-tls-verify is not supported: name the certificate-authority of the cluster instead.');
  if (at(user, 'exec') !== undefined || at(user, 'auth-provider') !== undefined)
    throw fault(
      'the kubeconfig gets its token from a program, which is not started here. Use a token or a client certificate, or run in the cluster with a service account.',
    );
  const bytes = async (from: unknown, name: string): Promise<Buffer | null> => {
    const data = at(from, `${name}-data`);
    if (typeof data === 'string') return Buffer.from(data, 'base64');
    const file = at(from, name);
    if (typeof file !== 'string') return null;
    return readFile(isAbsolute(file) ? file : join(folder, file)).catch((cause: unknown) => {
      throw fault(`the file of ${name} in the kubeconfig cannot be read.`, cause);
    });
  };
  const cert = await bytes(user, 'client-certificate');
  const key = await bytes(user, 'client-key');
  const token = at(user, 'token');
  const tokenFile = at(user, 'tokenFile');
  const namespace = at(context, 'namespace');
  return {
    url: checkedUrl(String(at(cluster, 'server') ?? '')),
    namespace: typeof namespace === 'string' ? namespace : null,
    ca: await bytes(cluster, 'certificate-authority'),
    certificate: cert === null || key === null ? null : { cert, key },
    token: async () => {
      if (typeof token === 'string') return token;
      if (typeof tokenFile !== 'string') return null;
      return (await readFile(isAbsolute(tokenFile) ? tokenFile : join(folder, tokenFile), 'utf8')).trim();
    },
  };
}

function checkedUrl(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url === null || !/^https?:$/.test(url.protocol) || url.username !== '' || url.password !== '')
    throw fault('the address of the API server must be an http or https URL without a user.');
  return url;
}
