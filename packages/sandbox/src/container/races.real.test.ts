import { sandboxRacesContract, sandboxSameInstanceRacesContract } from '@reindeer/testkit';
import { afterEach, expect } from 'vitest';
import { memoryFactory } from '../lifecycle/testing/memory-factory.ts';
import { MirroredEngine } from './testing/mirrored-engine.ts';
import { containerScene } from './testing/scene.ts';

const scene = containerScene();
const engines: MirroredEngine[] = [];
let number = 0;

afterEach(async () => {
  for (const engine of engines.splice(0)) {
    await engine.end();
    expect(engine.differences).toEqual([]);
  }
});

// The whole suite starts more than a hundred containers; it runs with REINDEER_ALL_RACES=1, and always on the simulated engine.
const contract = process.env.REINDEER_ALL_RACES === '1' ? sandboxRacesContract : sandboxSameInstanceRacesContract;

contract('our provider, real containers', {
  ...memoryFactory(),
  engine: (clock) => {
    number += 1;
    const containerPrefix = `${scene().docker.prefix}-${number}`;
    const engine = new MirroredEngine(clock, scene().parts({ settings: { containerPrefix } }));
    engines.push(engine);
    return engine;
  },
});
