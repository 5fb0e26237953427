import { ReindeerError } from '@reindeer/protocol';

/** What the operator may set for the provisioner; the names of variables are those of the reference where it has them. */
export interface ProvisionerSettings {
  /** `PROVISIONER_API_KEY`. Empty: every `/api/` route answers 401 (SX-12). */
  readonly apiKey: string;
  /** `K8S_NAMESPACE`. */
  readonly namespace: string;
  /** `SANDBOX_IMAGE`: one that is built from images/sandbox. */
  readonly image: string;
  /** `SANDBOX_IMAGE_PULL_SECRET`: name of a secret of the namespace; null = none. */
  readonly pullSecret: string | null;
  /** `SANDBOX_SERVICE_TYPE`. */
  readonly serviceType: 'NodePort' | 'ClusterIP';
  /** `NODE_HOST`: under which name a node is reached, with `NodePort`. */
  readonly nodeHost: string;
  /** `CLUSTER_DOMAIN`, with `ClusterIP`. */
  readonly clusterDomain: string;
  /** `SANDBOX_CONTAINER_PORT`. */
  readonly port: number;
  /** `SANDBOX_USER_ID`: user and group of everything in a pod. */
  readonly userId: number;
  /** `SANDBOX_MEMORY_LIMIT`, `SANDBOX_CPU_LIMIT`, `SANDBOX_DISK_LIMIT`: quantities of Kubernetes. */
  readonly limits: { readonly memory: string; readonly cpu: string; readonly disk: string };
  /** `SANDBOX_MEMORY_REQUEST`, `SANDBOX_CPU_REQUEST`, `SANDBOX_DISK_REQUEST`. */
  readonly requests: { readonly memory: string; readonly cpu: string; readonly disk: string };
  /** `REINDEER_HOST_BASE_DIR`: the data folder, as the nodes see it. Only folders in it are mounted; null = none are. */
  readonly stateBase: string | null;
  /** `USERDATA_PVC_NAME`: a claim that holds the data folder; null = the folder is on the nodes themselves. */
  readonly claim: string | null;
}

export const DEFAULT_PROVISIONER_PORT = 8002;

const QUANTITY = /^\d+(\.\d+)?(m|[KMGT]i?)?$/;
const LIMIT = /^(?=[^mKMGT]*[1-9])\d+(\.\d+)?(m|[KMGT]i?)?$/;
const NAME = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/;

/** @throws ReindeerError `configuration`, naming the variable */
export function provisionerSettings(environment: Readonly<Record<string, string | undefined>>): ProvisionerSettings {
  const given = (name: string): string | null => {
    const value = environment[name]?.trim();
    return value === undefined || value === '' ? null : value;
  };
  const checked = (name: string, otherwise: string, grammar: RegExp, hint: string): string => {
    const value = given(name) ?? otherwise;
    if (grammar.test(value)) return value;
    throw new ReindeerError('configuration', `${name} must be ${hint}.`);
  };
  const quantity = (name: string, otherwise: string) =>
    checked(name, otherwise, QUANTITY, 'a quantity, as in 500m or 2Gi');
  const limit = (name: string, otherwise: string) =>
    checked(name, otherwise, LIMIT, 'a quantity above 0, as in 500m or 2Gi: Kubernetes takes 0 for no limit');
  const whole = (name: string, otherwise: number, least: number, most: number): number => {
    const value = Number(given(name) ?? otherwise);
    if (Number.isInteger(value) && value >= least && value <= most) return value;
    throw new ReindeerError('configuration', `${name} must be a whole number from ${least} to ${most}.`);
  };
  const stateBase = given('REINDEER_HOST_BASE_DIR');
  if (stateBase !== null && (!stateBase.startsWith('/') || stateBase.split('/').includes('..') || stateBase === '/'))
    throw new ReindeerError(
      'configuration',
      'REINDEER_HOST_BASE_DIR must be an absolute path below the root, without "..".',
    );
  const claim = given('USERDATA_PVC_NAME');
  if (claim !== null && stateBase === null)
    throw new ReindeerError(
      'configuration',
      'USERDATA_PVC_NAME needs REINDEER_HOST_BASE_DIR: the path under which the server has the claim mounted as its data folder.',
    );
  const serviceType = given('SANDBOX_SERVICE_TYPE') ?? 'NodePort';
  if (serviceType !== 'NodePort' && serviceType !== 'ClusterIP')
    throw new ReindeerError('configuration', 'SANDBOX_SERVICE_TYPE must be NodePort or ClusterIP.');
  return {
    apiKey: environment.PROVISIONER_API_KEY?.trim() ?? '',
    namespace: checked('K8S_NAMESPACE', 'reindeer', NAME, 'the name of a namespace'),
    image: checked(
      'SANDBOX_IMAGE',
      'reindeer-sandbox:latest',
      /^[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}$/,
      'the name of an image',
    ),
    pullSecret: given('SANDBOX_IMAGE_PULL_SECRET'),
    serviceType,
    nodeHost: checked('NODE_HOST', '127.0.0.1', /^[A-Za-z0-9.:-]{1,253}$/, 'a host name or an address'),
    clusterDomain: checked('CLUSTER_DOMAIN', 'cluster.local', /^[a-z0-9.-]{1,200}$/, 'the domain of the cluster'),
    port: whole('SANDBOX_CONTAINER_PORT', 8080, 1024, 65_535),
    userId: whole('SANDBOX_USER_ID', 1001, 1, 2 ** 31 - 1),
    limits: {
      memory: limit('SANDBOX_MEMORY_LIMIT', '2Gi'),
      cpu: limit('SANDBOX_CPU_LIMIT', '2'),
      disk: limit('SANDBOX_DISK_LIMIT', '4Gi'),
    },
    requests: {
      memory: quantity('SANDBOX_MEMORY_REQUEST', '256Mi'),
      cpu: quantity('SANDBOX_CPU_REQUEST', '100m'),
      disk: quantity('SANDBOX_DISK_REQUEST', '500Mi'),
    },
    stateBase: stateBase?.replace(/\/+$/, '') ?? null,
    claim,
  };
}
