import { measure, median, type Row, startServer } from './lib.ts';

interface Load {
  readonly runsPerSecond: number;
  readonly firstP50: number;
  readonly firstP99: number;
}

const levels = [
  { clients: 1, runs: 80 },
  { clients: 16, runs: 320 },
  { clients: 64, runs: 640 },
] as const;

/** Runs per second and time to the first token, product and floor by turns so that a noisy minute hits both. */
export async function httpRows(rounds: number): Promise<Row[]> {
  const servers = {
    product: await startServer('server.ts', ['product', '20', '0']),
    bare: await startServer('server.ts', ['bare', '20', '0']),
  };
  const results = new Map<string, Load[]>();
  for (const server of Object.values(servers)) await measure('load.ts', [server.url, '8', '200']);
  for (let round = 0; round < rounds; round += 1) {
    for (const { clients, runs } of levels) {
      for (const [kind, server] of Object.entries(servers)) {
        const load = await measure<Load>('load.ts', [server.url, String(clients), String(runs)]);
        results.set(`${kind} ${clients}`, [...(results.get(`${kind} ${clients}`) ?? []), load]);
      }
    }
  }
  for (const server of Object.values(servers)) await server.stop();
  const of = (kind: string, clients: number, key: keyof Load) =>
    median((results.get(`${kind} ${clients}`) ?? []).map((load) => load[key]));
  return [
    {
      name: 'time to first token, 1 client',
      value: of('product', 1, 'firstP50') / of('bare', 1, 'firstP50'),
      unit: 'ratio',
      against: 'a bare Hono loop on the same graph',
      target: '<= 1.5',
      alarm: '<= 3',
      detail: { productMs: of('product', 1, 'firstP50'), bareMs: of('bare', 1, 'firstP50') },
    },
    ...levels.map(
      ({ clients }): Row => ({
        name: `runs per second, ${clients} client${clients === 1 ? '' : 's'}, SQLite`,
        value: of('product', clients, 'runsPerSecond') / of('bare', clients, 'runsPerSecond'),
        unit: 'ratio',
        against: 'a bare Hono loop on the same graph',
        target: '>= 0.5',
        alarm: '>= 0.2',
        detail: { product: of('product', clients, 'runsPerSecond'), bare: of('bare', clients, 'runsPerSecond') },
      }),
    ),
  ];
}

/** CPU per frame that reaches a reader, 1,000 readers of one live run. */
export async function fanOutRow(): Promise<Row> {
  const clients = '1000';
  interface Delivered {
    readonly frames: number;
    readonly bytes: number;
  }
  // The model takes its time, so that all readers are attached before its first token.
  const product = await startServer('server.ts', ['product', '400', '40']);
  const before = await product.figures();
  const live = await measure<Delivered>('readers.ts', ['product', product.url, clients]);
  const after = await product.figures();
  await product.stop();
  const perReader = live.frames / Number(clients);
  const bytesPerFrame = live.bytes / live.frames;
  const floor = await startServer('fan-out-floor.ts', [
    String(Math.round(perReader)),
    String(Math.max(1, Math.round(bytesPerFrame - 40))),
  ]);
  const floorBefore = await floor.figures();
  const plain = await measure<Delivered>('readers.ts', ['floor', floor.url, clients]);
  const floorAfter = await floor.figures();
  await floor.stop();
  const productCost = (after.cpuMs - before.cpuMs) / live.frames;
  const floorCost = (floorAfter.cpuMs - floorBefore.cpuMs) / plain.frames;
  return {
    name: 'SSE fan-out, 1,000 clients',
    value: floorCost / productCost,
    unit: 'ratio',
    against: 'a bare node:http writer (CPU per delivered frame)',
    target: '>= 0.6',
    alarm: '>= 0.2',
    detail: {
      frames: live.frames,
      bytesPerFrame,
      productMicrosPerFrame: productCost * 1000,
      floorMicrosPerFrame: floorCost * 1000,
    },
  };
}

/** The loop's delay while 100 runs stream slowly. */
export async function loopDelayRow(): Promise<Row> {
  const server = await startServer('server.ts', ['product', '100', '30']);
  await measure('load.ts', [server.url, '20', '40']);
  await server.figures(true);
  await measure('load.ts', [server.url, '100', '200']);
  const { delayP99Ms } = await server.figures();
  await server.stop();
  return {
    name: 'event-loop delay p99, 100 runs streaming',
    value: delayP99Ms,
    unit: 'ms',
    against: 'nothing',
    target: '<= 20',
    alarm: '<= 100',
  };
}
