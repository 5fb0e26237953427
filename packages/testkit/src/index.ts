export * from './verifies.ts';
