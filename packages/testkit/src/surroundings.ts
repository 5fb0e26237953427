import type { Logger, Surroundings } from '@reindeer/protocol';
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
