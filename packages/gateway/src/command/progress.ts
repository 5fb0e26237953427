import type { BatchCounts, BatchStatus, Clock } from '@reindeer/protocol';
import type { Host } from './host.ts';

export interface ProgressView {
  readonly batch_id: string;
  readonly title: string;
  readonly status: BatchStatus;
  readonly total_items: number;
  readonly counts: BatchCounts;
}

const WIDTH = 24;
/** Without a terminal: a line this often. */
const LINE_MS = 10_000;
/** Ends that the rate is measured over. */
const WINDOW_MS = 60_000;
const SAMPLES = 600;

/** How far a batch is, as one line that is written over itself; a line now and then where there is no terminal. */
export class ProgressLine {
  readonly #host: Host;
  readonly #clock: Clock;
  readonly #json: boolean;
  readonly #samples: { readonly at: number; readonly over: number }[] = [];
  #printed = Number.NEGATIVE_INFINITY;
  #open = false;

  constructor(host: Host, clock: Clock, json: boolean) {
    this.#host = host;
    this.#clock = clock;
    this.#json = json;
  }

  async show(view: ProgressView): Promise<void> {
    const now = this.#clock.monotonic();
    const over = overOf(view.counts);
    this.#samples.push({ at: now, over });
    while (
      this.#samples.length > 2 &&
      (now - (this.#samples[0]?.at ?? 0) > WINDOW_MS || this.#samples.length > SAMPLES)
    )
      this.#samples.shift();
    if (this.#json) {
      await this.#host.print(`${JSON.stringify({ ...view, ...this.#pace(view) })}\n`);
      return;
    }
    const isLast = over === view.total_items;
    if (!this.#host.interactive && !isLast && now - this.#printed < LINE_MS) return;
    this.#printed = now;
    const line = this.#line(view);
    this.#host.say(this.#host.interactive ? `\r\u001b[K${line}` : `${line}\n`);
    this.#open = this.#host.interactive;
  }

  /** Leaves the line as it is and begins a new one. */
  end(): void {
    if (this.#open) this.#host.say('\n');
    this.#open = false;
  }

  #pace(view: ProgressView): { readonly per_minute: number; readonly seconds_left: number | null } {
    const [first] = this.#samples;
    const last = this.#samples.at(-1);
    const minutes = first === undefined || last === undefined ? 0 : (last.at - first.at) / 60_000;
    const perMinute = minutes > 0 ? ((last?.over ?? 0) - (first?.over ?? 0)) / minutes : 0;
    const left = view.total_items - overOf(view.counts);
    return {
      per_minute: Math.round(perMinute * 10) / 10,
      seconds_left: left === 0 ? 0 : perMinute > 0 ? Math.round((left / perMinute) * 60) : null,
    };
  }

  #line(view: ProgressView): string {
    const { total_items: total, counts, status } = view;
    const over = overOf(counts);
    const full = total === 0 ? WIDTH : Math.floor((over / total) * WIDTH);
    const { per_minute: rate, seconds_left: left } = this.#pace(view);
    return [
      `[${'#'.repeat(full)}${'.'.repeat(WIDTH - full)}] ${over}/${total} (${total === 0 ? 100 : Math.floor((over / total) * 100)} %)`,
      status === 'running' || status === 'queued' ? `${counts.leased + counts.running} running` : status,
      ...(counts.failed > 0 ? [`${counts.failed} failed`] : []),
      ...(counts.cancelled > 0 ? [`${counts.cancelled} cancelled`] : []),
      ...(rate > 0 && left !== 0 ? [`${rate}/min`] : []),
      ...(left !== null && left > 0 ? [`${duration(left)} left`] : []),
    ].join(' · ');
  }
}

const overOf = (counts: BatchCounts): number => counts.succeeded + counts.failed + counts.cancelled;

/** `45 s`, `3 min`, `2 h 5 min`. */
export function duration(seconds: number): string {
  if (seconds < 90) return `${seconds} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 90 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}
