import { mkdir, writeFile } from 'node:fs/promises';
import { describe, expect, test } from 'vitest';
import { temporaryHome } from '../test-support.ts';
import { inClusterAccess, kubeconfigAccess } from './access.ts';

const config = (cluster: object, user: object) => ({
  'current-context': 'here',
  contexts: [{ name: 'here', context: { cluster: 'c', user: 'u', namespace: 'mine' } }],
  clusters: [{ name: 'c', cluster: { server: 'https://kubernetes.test:6443', ...cluster } }],
  users: [{ name: 'u', user }],
});
const base64 = (text: string) => Buffer.from(text).toString('base64');

describe('who asks the API server', () => {
  test('the service account of the pod; its token is read anew for every request', async () => {
    const folder = await temporaryHome();
    const environment = { KUBERNETES_SERVICE_HOST: 'fd00::1', KUBERNETES_SERVICE_PORT: '6443' };
    await expect(inClusterAccess(environment, folder)).rejects.toMatchObject({ code: 'configuration' });
    await writeFile(`${folder}/token`, 'first\n');
    await writeFile(`${folder}/namespace`, 'mine');
    await writeFile(`${folder}/ca.crt`, 'a certificate');
    const access = await inClusterAccess(environment, folder);
    expect([access.url.href, access.namespace, String(access.ca)]).toEqual([
      'https://[fd00::1]:6443/',
      'mine',
      'a certificate',
    ]);
    expect((await inClusterAccess({ ...environment, K8S_API_SERVER: '' }, folder)).url).toEqual(access.url);
    expect(await access.token()).toBe('first');
    await writeFile(`${folder}/token`, 'second');
    expect(await access.token()).toBe('second');
    await expect(inClusterAccess({}, folder)).rejects.toThrow('KUBECONFIG_PATH');
  });

  test('a kubeconfig: token, certificate, data and files', async () => {
    const folder = await temporaryHome();
    await mkdir(`${folder}/pki`);
    await writeFile(`${folder}/pki/key.pem`, 'the key');
    const cluster = { 'certificate-authority-data': base64('the authority') };
    const user = {
      token: 'of-mine',
      'client-certificate-data': base64('the certificate'),
      'client-key': 'pki/key.pem',
    };
    const access = await kubeconfigAccess(config(cluster, user), folder);
    expect([access.url.host, access.namespace, String(access.ca)]).toEqual([
      'kubernetes.test:6443',
      'mine',
      'the authority',
    ]);
    expect([String(access.certificate?.cert), String(access.certificate?.key)]).toEqual(['the certificate', 'the key']);
    expect(await access.token()).toBe('of-mine');
  });

  test('what cannot be used is named, and no program is started', async () => {
    for (const [document, named] of [
      [config({}, { exec: { command: 'touch' } }), 'program'],
      [config({ 'insecure-skip-tls-verify': true }, {}), 'insecure-skip-tls-verify'],
      [config({ server: 'ftp://x' }, {}), 'address'],
      [config({ server: 'https://me:secret-of-mine@x' }, {}), 'address'],
      [config({ 'certificate-authority': 'missing.pem' }, {}), 'certificate-authority'],
      [{ ...config({}, {}), 'current-context': 'gone' }, '"gone"'],
      [null, 'contexts'],
    ] as const) {
      const error: unknown = await kubeconfigAccess(document, '/nowhere').catch((one: unknown) => one);
      expect(error).toMatchObject({ code: 'configuration', message: expect.stringContaining(named) });
      expect(String(error)).not.toContain('secret-of-mine');
    }
  });
});
