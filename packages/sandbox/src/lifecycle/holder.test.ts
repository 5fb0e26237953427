import { type Deferred, deferred, LogRecorder, verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { type HeldProvider, ProviderHolder } from './holder.ts';

class Provider implements HeldProvider {
  readonly calls: string[] = [];
  readonly number: number;
  failing = false;
  constructor(number: number) {
    this.number = number;
  }
  async reset(): Promise<void> {
    this.calls.push('reset');
  }
  async shutdown(): Promise<void> {
    this.calls.push('shutdown');
    if (this.failing) throw new Error('the engine is unreachable');
  }
}

function scene() {
  const made: Provider[] = [];
  const gates: Deferred<void>[] = [];
  const gatedMaking = { on: false };
  const logger = new LogRecorder();
  const holder = new ProviderHolder<Provider>(async () => {
    const provider = new Provider(made.length);
    made.push(provider);
    if (gatedMaking.on) {
      const gate = deferred();
      gates.push(gate);
      await gate.promise;
    }
    return provider;
  }, logger);
  return { made, gates, gatedMaking, logger, holder };
}

test(
  'first uses at once install one provider, and the losers are shut down',
  verifies('SB-01', 'SB-02', 'SB-03'),
  async () => {
    const { made, gates, gatedMaking, holder } = scene();
    gatedMaking.on = true;
    const asked = [holder.get(), holder.get(), holder.get()];
    expect(gates).toHaveLength(3);
    gates[1]?.resolve();
    const winner = await asked[1];
    expect(winner).toBe(made[1]);
    gates[0]?.resolve();
    gates[2]?.resolve();
    expect(await Promise.all(asked)).toEqual([winner, winner, winner]);
    expect(made.map((provider) => provider.calls)).toEqual([['shutdown'], [], ['shutdown']]);
    expect(await holder.get()).toBe(winner);
    expect(made).toHaveLength(3);
  },
);

test('a look-up that races the end of another always gets a whole provider', verifies('SB-04'), async () => {
  const { gates, gatedMaking, holder } = scene();
  for (const end of [() => holder.reset(), () => holder.shutdown(), () => holder.set(new Provider(99))]) {
    gatedMaking.on = false;
    await holder.get();
    gatedMaking.on = true;
    const ending = end();
    const asking = holder.get();
    for (const gate of gates.splice(0)) gate.resolve();
    const [, provider] = await Promise.all([ending, asking]);
    expect(provider).toBeInstanceOf(Provider);
    expect(provider.calls).toEqual([]);
    expect(holder.current).toBe(provider);
  }
});

test('a reset stops nothing; a shutdown detaches first', verifies('SB-05'), async () => {
  const { holder, made } = scene();
  const first = await holder.get();
  await holder.reset();
  expect([first.calls, holder.current]).toEqual([['reset'], null]);
  const second = await holder.get();
  let during: Provider | null = null;
  second.shutdown = async () => {
    during = await holder.get();
  };
  expect(await holder.shutdown()).toBe(true);
  expect(during).toBe(made[2]);
  expect(holder.current).toBe(made[2]);
});

test('a shutdown makes no provider', async () => {
  const { holder, made } = scene();
  expect(await holder.shutdown()).toBe(true);
  expect([made, holder.current]).toEqual([[], null]);
});

test('a shutdown that fails is logged and can be tried again', async () => {
  const { holder, logger, made } = scene();
  const provider = await holder.get();
  provider.failing = true;
  expect(await holder.shutdown()).toBe(false);
  expect(logger.lines).toMatchObject([{ level: 'error', message: 'Failed to shut down sandbox provider' }]);
  expect(holder.current).toBe(provider);
  provider.failing = false;
  expect(await holder.shutdown()).toBe(true);
  expect([holder.current, provider.calls, made.length]).toEqual([null, ['shutdown', 'shutdown'], 1]);
});

test('installing another ends the one before', verifies('SB-02', 'SB-04'), async () => {
  const { holder } = scene();
  const first = await holder.get();
  const second = new Provider(7);
  await holder.set(second);
  await holder.set(second);
  expect([first.calls, second.calls, await holder.get()]).toEqual([['shutdown'], [], second]);
});
