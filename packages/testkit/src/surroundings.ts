import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type { Clock, Logger, Surroundings } from '@reindeer/protocol';
import { NO_PROBE } from '@reindeer/protocol';
import { VirtualClock } from './clock.ts';
import { ProbeRecorder } from './probe.ts';
import type { SeededRandom } from './random.ts';
import { seededRandom } from './random.ts';

export interface LogLine {
  readonly level: 'debug' | 'info' | 'warn' | 'error';
  readonly message: string;
  readonly fields: Readonly<Record<string, unknown>>;
}

/** A logger that keeps its lines for the test to look at. */
export class LogRecorder implements Logger {
  readonly lines: LogLine[] = [];
  debug(message: string, fields: LogLine['fields'] = {}): void {
    this.lines.push({ level: 'debug', message, fields });
  }
  info(message: string, fields: LogLine['fields'] = {}): void {
    this.lines.push({ level: 'info', message, fields });
  }
  warn(message: string, fields: LogLine['fields'] = {}): void {
    this.lines.push({ level: 'warn', message, fields });
  }
  error(message: string, fields: LogLine['fields'] = {}): void {
    this.lines.push({ level: 'error', message, fields });
  }
}

export interface TestSurroundings extends Surroundings {
  readonly clock: VirtualClock;
  readonly random: SeededRandom;
  readonly probe: ProbeRecorder;
  readonly logger: LogRecorder;
}

/**
 * A deterministic world for one test: time moves by `clock.advance(…)` only, equal seeds give equal ids, probes can be held.
 * Several "processes" of one test take one clock and a seed each.
 */
export function testSurroundings(options: { seed?: number; clock?: VirtualClock } = {}): TestSurroundings {
  return {
    clock: options.clock ?? new VirtualClock(),
    random: seededRandom(options.seed ?? 1),
    probe: new ProbeRecorder(),
    logger: new LogRecorder(),
  };
}

/** The real clock: real processes, files and sockets do not run on a virtual one. */
export const realClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  sleep: (milliseconds, signal) => delay(milliseconds, undefined, signal === undefined ? {} : { signal }),
};

/** The real world for one test, whose log it can look at. */
export function realSurroundings(): Surroundings & { readonly logger: LogRecorder } {
  return {
    clock: realClock,
    random: { uuid: () => randomUUID(), next: () => Math.random() },
    probe: NO_PROBE,
    logger: new LogRecorder(),
  };
}
