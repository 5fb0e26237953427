// 200 turns of 2 KiB and one image of 1 MiB on one thread: what is stored, against what was said. Arguments: TURNS
import { StepModel } from './model.ts';
import { openProduct, turn } from './product.ts';

const turns = Number(process.argv[2]);
/** 1 KiB from the user and 1 KiB from the model make a turn of 2 KiB. */
const model = new StepModel({ steps: 0, pieces: 171 });
const product = await openProduct(model);
for (let n = 0; n < turns; n += 1) await turn(product, 'turns', `${n} `.padEnd(1024, 'tell me more about the north '));
const image = Buffer.alloc(768 * 1024, 'reindeer').toString('base64');
await turn(product, 'turns', [
  { type: 'text', text: 'What is this?' },
  { type: 'image_url', image_url: { url: `data:image/png;base64,${image}` } },
]);
const state = await product.runtime.threads.state({
  threadId: 'turns',
  userId: 'default',
  checkpointId: null,
  subgraphs: false,
});
const payload = JSON.stringify(state?.values.messages).length;
const stats = await product.stores.stats();
const file = await product.close();
process.stdout.write(`${JSON.stringify({ payload, rows: stats.rowBytes, file, tables: stats.tables })}\n`);
process.exit(0);
