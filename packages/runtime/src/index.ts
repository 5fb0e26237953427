export * from './saver/index.ts';
