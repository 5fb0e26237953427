export * from './clock.ts';
export * from './deferred.ts';
export * from './probe.ts';
export * from './random.ts';
export * from './surroundings.ts';
export * from './verifies.ts';
