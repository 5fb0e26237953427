import { LogRecorder, verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { coreScene } from '../lifecycle/testing/core-scene.ts';
import { type ListingEngine, listContainers, parseEngineTime, publishedPort } from './listing.ts';

const PREFIX = 'reindeer-sandbox';
const described = (name: string, created: string, port?: string) => ({
  Name: `/${name}`,
  Created: created,
  NetworkSettings: { Ports: port === undefined ? {} : { '8080/tcp': [{ HostIp: '127.0.0.1', HostPort: port }] } },
});

function engine(names: readonly string[] | Error, answer: unknown): ListingEngine & { readonly asked: string[][] } {
  const asked: string[][] = [];
  return {
    asked,
    names: async () => {
      if (names instanceof Error) throw names;
      return names;
    },
    inspect: async (which) => {
      asked.push([...which]);
      if (answer instanceof Error) throw answer;
      return typeof answer === 'string' ? answer : JSON.stringify(answer);
    },
  };
}
const list = (of: ListingEngine) =>
  listContainers(of, { prefix: PREFIX, port: 8080, host: 'localhost', logger: new LogRecorder() });

describe('listing running containers', () => {
  test('a backend that cannot list has nothing to adopt', verifies('SEED-001-01'), async () => {
    const { maintenance, engine: simulated, core, table, store } = coreScene();
    simulated.run('orphan');
    const { listRunning: _none, ...without } = core.backend;
    const { Maintenance } = await import('../lifecycle/maintenance.ts');
    const { Stops } = await import('../lifecycle/stops.ts');
    await new Maintenance({ ...core, backend: without }, new Stops(core)).reconcile();
    expect([table.ids('warm'), store.calls]).toEqual([[], []]);
    // The same with a listing would adopt it.
    await maintenance.reconcile();
    expect(table.ids('warm')).toEqual(['orphan']);
  });

  test('names, addresses and ages', verifies('SEED-001-02', 'SX-03'), async () => {
    const found = await list(
      engine(
        [`${PREFIX}-abc12345`, `${PREFIX}-def67890`],
        [
          described(`${PREFIX}-abc12345`, '2026-04-08T01:22:50.000000000Z', '8081'),
          described(`${PREFIX}-def67890`, '2026-04-08T02:22:50.000000000Z', '8082'),
        ],
      ),
    );
    expect(found).toEqual([
      {
        id: 'abc12345',
        name: `${PREFIX}-abc12345`,
        url: 'http://localhost:8081',
        createdAt: Date.UTC(2026, 3, 8, 1, 22, 50),
      },
      {
        id: 'def67890',
        name: `${PREFIX}-def67890`,
        url: 'http://localhost:8082',
        createdAt: Date.UTC(2026, 3, 8, 2, 22, 50),
      },
    ]);
  });

  test('nothing runs: nothing is inspected', verifies('SEED-001-03'), async () => {
    const none = engine([], []);
    expect(await list(none)).toEqual([]);
    expect(none.asked).toEqual([]);
  });

  test('other names are not ours', verifies('SEED-001-04', 'SX-03'), async () => {
    const mixed = engine(
      [`${PREFIX}-abc12345`, 'some-other-container', `${PREFIX}-of-another-deployment`, `x${PREFIX}-abc`, `${PREFIX}-`],
      [described(`${PREFIX}-abc12345`, '2026-04-08T01:22:50Z', '8081'), described('some-other-container', '', '9')],
    );
    expect((await list(mixed)).map((info) => info.id)).toEqual(['abc12345']);
    expect(mixed.asked).toEqual([[`${PREFIX}-abc12345`]]);
  });

  test('a container without a port is listed without an address', verifies('SEED-001-05', 'SX-03'), async () => {
    const found = await list(engine([`${PREFIX}-abc12345`], [described(`${PREFIX}-abc12345`, '2026-04-08T01:22:50Z')]));
    expect(found).toMatchObject([{ id: 'abc12345', url: '' }]);
  });

  test('an engine that does not answer lists nothing', verifies('SEED-001-06', 'SX-04'), async () => {
    expect(await list(engine(new Error('the daemon does not run'), []))).toEqual([]);
  });

  test('an inspection that fails lists nothing', verifies('SEED-001-07', 'SX-04'), async () => {
    expect(await list(engine([`${PREFIX}-abc12345`], new Error('inspect failed')))).toEqual([]);
  });

  test('what is no JSON, or no list, lists nothing', verifies('SEED-001-08', 'SX-04'), async () => {
    for (const answer of ['this is not json', '{}', 'null', '[null, 7, {}]'])
      expect(await list(engine([`${PREFIX}-abc12345`], answer))).toEqual([]);
  });

  test('one inspection for all', verifies('SEED-001-09', 'SX-03'), async () => {
    const names = ['a', 'b', 'c'].map((id) => `${PREFIX}-${id}`);
    const three = engine(
      names,
      names.map((name, n) => described(name, '2026-04-08T01:22:50Z', `${8081 + n}`)),
    );
    expect(await list(three)).toHaveLength(3);
    expect(three.asked).toEqual([names]);
  });
});

describe('timestamps', () => {
  test('with nanoseconds', verifies('SEED-001-10', 'SX-05'), () => {
    expect(parseEngineTime('2026-04-08T01:22:50.123456789Z')).toBe(Date.UTC(2026, 3, 8, 1, 22, 50, 123));
  });
  test('without a fraction, and with a zone', verifies('SEED-001-11', 'SX-05'), () => {
    expect(parseEngineTime('2026-04-08T01:22:50Z')).toBe(Date.UTC(2026, 3, 8, 1, 22, 50));
    expect(parseEngineTime('2026-04-08T03:22:50.5+02:00')).toBe(Date.UTC(2026, 3, 8, 1, 22, 50, 500));
  });
  test('empty or none: unknown', verifies('SEED-001-12', 'SX-05'), () => {
    for (const text of ['', 'not a timestamp', '0001-01-01T00:00:00Z', '2026-13-41T99:00:00Z', undefined, 5])
      expect(parseEngineTime(text)).toBe(0);
  });
});

describe('the published port', () => {
  test('is found', verifies('SEED-001-13'), () => {
    expect(publishedPort(described('x', '', '8081'), 8080)).toBe(8081);
  });
  test('is none when the port is not published', verifies('SEED-001-14'), () => {
    expect(publishedPort(described('x', ''), 8080)).toBeNull();
    expect(publishedPort(described('x', '', '8081'), 9090)).toBeNull();
    expect(publishedPort({ NetworkSettings: { Ports: { '8080/tcp': null } } }, 8080)).toBeNull();
    expect(publishedPort({ NetworkSettings: { Ports: { '8080/tcp': [] } } }, 8080)).toBeNull();
  });
  test('is none when parts are missing', verifies('SEED-001-15'), () => {
    for (const entry of [{}, { NetworkSettings: null }, { NetworkSettings: {} }, null, undefined, 'text'])
      expect(publishedPort(entry, 8080)).toBeNull();
  });
});
