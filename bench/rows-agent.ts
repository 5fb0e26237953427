import { measure, median, type Row } from './lib.ts';

interface Steps {
  /** CPU milliseconds of the whole process at each model call. */
  readonly marks: readonly number[];
  readonly payload: number;
  readonly stored: { readonly rows: number; readonly file: number };
}

/** CPU milliseconds per step around a step, over `width` steps. */
function costAt({ marks }: Steps, step: number, width: number): number {
  const from = Math.max(step - width, 1);
  return ((marks[step] ?? Number.NaN) - (marks[from] ?? Number.NaN)) / (step - from);
}

export async function stepRows(rounds: number): Promise<Row[]> {
  const product: Steps[] = [];
  const floor: Steps[] = [];
  for (let round = 0; round < rounds; round += 1) {
    product.push(await measure<Steps>('steps.ts', ['product', '200']));
    floor.push(await measure<Steps>('steps.ts', ['langgraph', '200']));
  }
  const late = median(product.map((steps) => costAt(steps, 200, 50)));
  const early = median(product.map((steps) => costAt(steps, 30, 20)));
  const bare = median(floor.map((steps) => costAt(steps, 200, 50)));
  const last = product.at(-1);
  if (last === undefined) throw new Error('no round was run');
  return [
    {
      name: 'CPU per durable agent step, full chain, steps 150-200',
      value: late / bare,
      unit: 'ratio',
      against: 'a two-node LangGraph graph without persistence',
      target: '<= 1.5',
      alarm: '<= 3',
      detail: { productMs: late, floorMs: bare },
    },
    {
      name: 'CPU per step, steps 150-200 ÷ steps 10-30',
      value: late / early,
      unit: 'ratio',
      against: 'the same run',
      target: '<= 1.2',
      alarm: '<= 3',
      detail: { lateMs: late, earlyMs: early },
    },
    {
      name: 'rows and blobs, 200 tool steps',
      value: last.stored.rows / last.payload,
      unit: 'ratio',
      against: 'the conversation as JSON',
      target: '<= 2',
      alarm: '<= 10',
    },
    {
      name: 'database file, 200 tool steps',
      value: last.stored.file / last.payload,
      unit: 'ratio',
      against: 'the conversation as JSON',
      target: '<= 6',
      alarm: '<= 10',
    },
  ];
}

export async function turnRows(): Promise<Row[]> {
  const turns = await measure<{ payload: number; rows: number; file: number }>('turns.ts', ['200']);
  return [
    {
      name: 'rows and blobs, 200 turns of 2 KiB and one image of 1 MiB',
      value: turns.rows / turns.payload,
      unit: 'ratio',
      against: 'the conversation as JSON',
      target: '<= 3',
      alarm: '<= 10',
    },
    {
      name: 'database file, 200 turns of 2 KiB and one image of 1 MiB',
      value: turns.file / turns.payload,
      unit: 'ratio',
      against: 'the conversation as JSON',
      target: '<= 6',
      alarm: '<= 10',
    },
  ];
}
