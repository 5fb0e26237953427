import type { Histogram } from '@reindeer/protocol';

/** Labels have values from fixed, short lists: no id of a thread, run or user is ever one. */
export type Labels = Readonly<Record<string, string>>;

export interface Sample {
  readonly labels?: Labels;
  readonly value: number;
}

export type Metric =
  | {
      readonly name: string;
      readonly help: string;
      readonly type: 'counter' | 'gauge';
      readonly samples: readonly Sample[];
    }
  | {
      readonly name: string;
      readonly help: string;
      readonly type: 'histogram';
      readonly series: readonly { readonly labels: Labels; readonly histogram: Histogram }[];
    };

export const METRICS_TYPE = 'text/plain; version=0.0.4; charset=utf-8';

/** The text that Prometheus reads. */
export function metricsText(metrics: readonly Metric[]): string {
  const lines: string[] = [];
  for (const metric of metrics) {
    lines.push(`# HELP ${metric.name} ${metric.help}`, `# TYPE ${metric.name} ${metric.type}`);
    if (metric.type === 'histogram') for (const one of metric.series) lines.push(...histogramLines(metric.name, one));
    else
      for (const { labels = {}, value } of metric.samples)
        lines.push(`${metric.name}${labelText(labels)} ${number(value)}`);
  }
  return `${lines.join('\n')}\n`;
}

function histogramLines(name: string, { labels, histogram }: { labels: Labels; histogram: Histogram }): string[] {
  // Classes are cumulative in the text.
  let below = 0;
  const classes = histogram.bounds.map((bound, index) => {
    below += histogram.counts[index] ?? 0;
    return `${name}_bucket${labelText({ ...labels, le: String(bound) })} ${below}`;
  });
  return [
    ...classes,
    `${name}_bucket${labelText({ ...labels, le: '+Inf' })} ${histogram.count}`,
    `${name}_sum${labelText(labels)} ${number(histogram.sum)}`,
    `${name}_count${labelText(labels)} ${histogram.count}`,
  ];
}

function labelText(labels: Labels): string {
  const parts = Object.entries(labels).map(([name, value]) => `${name}="${escaped(value)}"`);
  return parts.length === 0 ? '' : `{${parts.join(',')}}`;
}

const escaped = (value: string): string =>
  value.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n');

const number = (value: number): string => (Number.isFinite(value) ? String(value) : 'NaN');
