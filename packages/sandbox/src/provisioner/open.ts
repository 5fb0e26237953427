import type { AddressInfo } from 'node:net';
import { type Logger, ReindeerError, type Surroundings } from '@reindeer/protocol';
import { inClusterAccess, kubeconfigAccess } from './access.ts';
import { KubernetesClient } from './kubernetes.ts';
import { Provisioner } from './provisioner.ts';
import { createProvisionerServer } from './server.ts';
import { provisionerSettings } from './settings.ts';

export interface OpenProvisioner {
  /** Its settings; see `ProvisionerSettings`. */
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** The parsed kubeconfig and the folder of its file; null = the service account of this pod. */
  readonly kubeconfig: { readonly document: unknown; readonly folder: string } | null;
  readonly host: string;
  readonly port: number;
  readonly surroundings: Pick<Surroundings, 'clock'> & { readonly logger: Logger };
  readonly version: string;
}

export interface OpenedProvisioner {
  readonly host: string;
  readonly port: number;
  readonly namespace: string;
  /** Requests that run get their time, at most `withinMs`; then connections are cut. Idempotent. */
  close(withinMs: number): Promise<void>;
}

/** Starts the service. @throws ReindeerError `configuration` for variables, a kubeconfig or an address that cannot be used */
export async function openProvisioner(input: OpenProvisioner): Promise<OpenedProvisioner> {
  const { environment, kubeconfig, surroundings, host } = input;
  const { clock, logger } = surroundings;
  const access =
    kubeconfig === null
      ? await inClusterAccess(environment)
      : await kubeconfigAccess(kubeconfig.document, kubeconfig.folder);
  // An empty variable, as manifests have them, is none.
  const namespace = environment.K8S_NAMESPACE?.trim() || (access.namespace ?? undefined);
  const settings = provisionerSettings({ ...environment, K8S_NAMESPACE: namespace });
  const kubernetes = new KubernetesClient(access, clock, environment);
  const provisioner = new Provisioner({ kubernetes, settings, clock, logger });
  const server = createProvisionerServer({ provisioner, settings, logger, version: input.version });
  await new Promise<void>((resolve, reject) => {
    server.once('error', (cause) =>
      reject(
        new ReindeerError(
          'configuration',
          `The provisioner cannot listen on ${host}:${input.port} (${cause.message}).`,
          { cause },
        ),
      ),
    );
    server.listen(input.port, host, resolve);
  });
  if (settings.apiKey === '') logger.warn('PROVISIONER_API_KEY is empty: every request is refused with 401');
  let closing: Promise<void> | null = null;
  return {
    host,
    port: (server.address() as AddressInfo).port,
    namespace: settings.namespace,
    close: (withinMs) => {
      closing ??= (async () => {
        const closed = new Promise<void>((resolve) => server.close(() => resolve()));
        const over = new AbortController();
        const late = clock.sleep(withinMs, over.signal).then(
          () => server.closeAllConnections(),
          () => {},
        );
        await Promise.race([closed, late]);
        over.abort();
        kubernetes.close();
        await closed;
      })();
      return closing;
    },
  };
}
