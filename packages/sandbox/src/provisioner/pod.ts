import { createHash } from 'node:crypto';
import { SKILLS_ROOT, VIRTUAL_FOLDERS, VIRTUAL_ROOT } from '@reindeer/protocol';
import { at, hostInUrl, parseEngineTime } from '../container/listing.ts';
import type { SandboxRequest } from './request.ts';
import type { ProvisionerSettings } from './settings.ts';

/** Labels and annotations of every object; they say whose it is, and hold nothing secret. */
const KEY = 'sandbox.reindeer.dev';
const MANAGED = { 'app.kubernetes.io/managed-by': 'reindeer-provisioner' } as const;
export const SELECTOR = encodeURIComponent('app.kubernetes.io/managed-by=reindeer-provisioner');

export type PodStatus = 'Pending' | 'Running' | 'Succeeded' | 'Failed' | 'Unknown';

/** What a pod says of itself. */
export interface PodFacts {
  readonly id: string;
  readonly uid: string;
  readonly name: string;
  readonly userId: string;
  readonly threadId: string;
  readonly nonce: string;
  readonly home: string;
  readonly status: PodStatus;
  /** The node's own probe of its server succeeds. */
  readonly ready: boolean;
  /** Its removal has begun. */
  readonly terminating: boolean;
  /** Wall-clock milliseconds; 0 = unknown. */
  readonly createdAt: number;
}

/** The same for every instance. An id may have letters that a name of Kubernetes may not. */
export function objectName(id: string): string {
  const plain = /^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$/.test(id);
  return `sandbox-${plain ? id : `x-${createHash('sha256').update(id).digest('hex').slice(0, 40)}`}`;
}

/** null when it is none of ours. */
export function podFacts(pod: unknown): PodFacts | null {
  const metadata = at(pod, 'metadata');
  const notes = at(metadata, 'annotations');
  const text = (name: string): string => {
    const value = at(notes, `${KEY}/${name}`);
    return typeof value === 'string' ? value : '';
  };
  const uid = at(metadata, 'uid');
  const name = at(metadata, 'name');
  const managed =
    at(at(metadata, 'labels'), 'app.kubernetes.io/managed-by') === MANAGED['app.kubernetes.io/managed-by'];
  const id = text('id');
  if (!managed || id === '' || typeof uid !== 'string' || typeof name !== 'string') return null;
  const conditions = at(at(pod, 'status'), 'conditions');
  const phase = at(at(pod, 'status'), 'phase');
  const known: readonly PodStatus[] = ['Pending', 'Running', 'Succeeded', 'Failed'];
  return {
    id,
    uid,
    name,
    userId: text('user'),
    threadId: text('thread'),
    nonce: text('nonce'),
    home: text('home'),
    status: known.find((one) => one === phase) ?? 'Unknown',
    ready:
      Array.isArray(conditions) &&
      conditions.some((one) => at(one, 'type') === 'Ready' && at(one, 'status') === 'True'),
    terminating: at(metadata, 'deletionTimestamp') != null,
    createdAt: parseEngineTime(at(metadata, 'creationTimestamp')),
  };
}

function metadataOf(request: SandboxRequest): Readonly<Record<string, unknown>> {
  return {
    name: objectName(request.id),
    labels: { ...MANAGED, [`${KEY}/pod`]: objectName(request.id) },
    annotations: {
      [`${KEY}/id`]: request.id,
      [`${KEY}/user`]: request.userId,
      [`${KEY}/thread`]: request.threadId,
      [`${KEY}/nonce`]: request.nonce,
      [`${KEY}/home`]: request.home,
    },
  };
}

const RUN_PLACES = ['/run/reindeer', '/tmp', '/var/tmp'];

/** The body of a pod. Nothing in it is secret: of the sandbox's secret it holds the hash. */
export function podBody(request: SandboxRequest, settings: ProvisionerSettings): unknown {
  const { limits, requests, port, userId } = settings;
  const mounted = new Map(request.mounts.map((mount) => [mount.place, mount]));
  const places = [...VIRTUAL_FOLDERS.map((folder) => `${VIRTUAL_ROOT}/${folder}`), SKILLS_ROOT, ...RUN_PLACES];
  const nameOf = (place: string) => `v${place.replaceAll('/', '-')}`;
  const probe = { httpGet: { path: '/health', port }, timeoutSeconds: 5, failureThreshold: 3 };
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: metadataOf(request),
    spec: {
      restartPolicy: 'Never',
      automountServiceAccountToken: false,
      enableServiceLinks: false,
      hostname: 'sandbox',
      terminationGracePeriodSeconds: 2,
      ...(settings.pullSecret === null ? {} : { imagePullSecrets: [{ name: settings.pullSecret }] }),
      securityContext: {
        runAsNonRoot: true,
        runAsUser: userId,
        runAsGroup: userId,
        ...(mounted.size === 0 ? { fsGroup: userId } : {}),
        seccompProfile: { type: 'RuntimeDefault' },
      },
      containers: [
        {
          name: 'sandbox',
          image: settings.image,
          imagePullPolicy: 'IfNotPresent',
          ports: [{ containerPort: port }],
          env: [
            { name: 'REINDEER_PORT', value: String(port) },
            { name: 'REINDEER_SECRET_SHA256', value: request.secretHash },
          ],
          resources: {
            requests: { memory: requests.memory, cpu: requests.cpu, 'ephemeral-storage': requests.disk },
            limits: { memory: limits.memory, cpu: limits.cpu, 'ephemeral-storage': limits.disk },
          },
          securityContext: {
            allowPrivilegeEscalation: false,
            readOnlyRootFilesystem: true,
            capabilities: { drop: ['ALL'] },
          },
          // Only readiness: a pod whose server is busy is not restarted under a turn.
          readinessProbe: { ...probe, periodSeconds: 2 },
          volumeMounts: places.map((place) => volumeMount(nameOf(place), place, mounted.get(place), settings)),
        },
      ],
      volumes: places.map((place) => volume(nameOf(place), mounted.get(place), settings)),
    },
  };
}

type Mount = SandboxRequest['mounts'][number] | undefined;

function volume(name: string, mount: Mount, { limits, claim, stateBase }: ProvisionerSettings): unknown {
  if (mount === undefined) return { name, emptyDir: { sizeLimit: limits.disk } };
  if (claim !== null) return { name, persistentVolumeClaim: { claimName: claim } };
  return { name, hostPath: { path: `${stateBase}/${mount.folder}`, type: 'Directory' } };
}

function volumeMount(name: string, place: string, mount: Mount, { claim }: ProvisionerSettings): unknown {
  if (mount === undefined) return { name, mountPath: place };
  return { name, mountPath: place, readOnly: mount.readOnly, ...(claim === null ? {} : { subPath: mount.folder }) };
}

/** The body of its service; it goes with its pod also when nobody removes it. */
export function serviceBody(pod: PodFacts, { port, serviceType }: ProvisionerSettings): unknown {
  return {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: {
      name: pod.name,
      labels: MANAGED,
      annotations: { [`${KEY}/id`]: pod.id, [`${KEY}/uid`]: pod.uid },
      ownerReferences: [{ apiVersion: 'v1', kind: 'Pod', name: pod.name, uid: pod.uid }],
    },
    spec: {
      type: serviceType,
      selector: { [`${KEY}/pod`]: pod.name },
      // A gateway asks for itself whether it is ready.
      publishNotReadyAddresses: true,
      ports: [{ name: 'http', port, targetPort: port, protocol: 'TCP' }],
    },
  };
}

/** Which pod a service belongs to. */
export function serviceOwner(service: unknown): string {
  const uid = at(at(at(service, 'metadata'), 'annotations'), `${KEY}/uid`);
  return typeof uid === 'string' ? uid : '';
}

/** Where a sandbox is reached; null as long as its service has no port of the nodes. */
export function sandboxUrl(service: unknown, settings: ProvisionerSettings): string | null {
  const name = at(at(service, 'metadata'), 'name');
  const ports = at(at(service, 'spec'), 'ports');
  if (settings.serviceType === 'ClusterIP')
    return typeof name === 'string'
      ? `http://${name}.${settings.namespace}.svc.${settings.clusterDomain}:${settings.port}`
      : null;
  const nodePort = Array.isArray(ports) ? at(ports[0], 'nodePort') : undefined;
  return typeof nodePort === 'number' && nodePort > 0 ? `http://${hostInUrl(settings.nodeHost)}:${nodePort}` : null;
}
