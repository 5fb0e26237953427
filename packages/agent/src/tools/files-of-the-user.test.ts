import { AIMessage, HumanMessage, ToolMessage } from '@langchain/core/messages';
import type { SandboxFiles } from '@reindeer/protocol';
import { verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { defineMiddleware } from '../loop/middleware.ts';
import { AttemptScope, SCOPE } from '../loop/scope.ts';
import { viewedImagesMiddleware } from '../middleware/viewed-images.ts';
import { toolCaller } from '../test-support/call-tool.ts';
import { FakeModel, type Turn } from '../test-support/fake-model.ts';
import { MemorySandboxes } from '../test-support/memory-sandbox.ts';
import { runLoop } from '../test-support/run-loop.ts';
import { listUploadedFilesTool } from './list-uploads.ts';
import { imageType, viewImageTool } from './view-image.ts';

const PNG = new Uint8Array([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 1, 2, 3]);
const JPEG = new Uint8Array([0xff, 0xd8, 0xff, 0xe0, 1]);
const WEBP = new Uint8Array([0x52, 0x49, 0x46, 0x46, 0, 0, 0, 0, 0x57, 0x45, 0x42, 0x50]);
const W = '/mnt/user-data/workspace';

describe('view_image', () => {
  test('the first bytes decide, and must agree with the name', verifies('TOOL-6'), async () => {
    const sandboxes = new MemorySandboxes();
    const { text } = toolCaller([viewImageTool('virtual')], sandboxes);
    const files = sandboxes.files();
    await files.write(`${W}/a.png`, PNG);
    await files.write(`${W}/b.jpg`, PNG);
    await files.write(`${W}/c.gif`, 'no picture');
    await files.write(`${W}/d.txt`, PNG);
    expect(await text('view_image', { image_path: 'a.png' })).toMatch(
      /^You will see \/mnt\/user-data\/workspace\/a.png \(image\/png, 11 bytes\)/,
    );
    expect(await text('view_image', { image_path: 'b.jpg' })).toMatch(
      /^Error: .*called image\/jpeg, but holds image\/png/,
    );
    expect(await text('view_image', { image_path: 'c.gif' })).toMatch(/^Error: .*holds no picture/);
    expect(await text('view_image', { image_path: 'd.txt' })).toMatch(/^Error: .*must end in/);
    expect(await text('view_image', { image_path: '/etc/a.png' })).toMatch(/^Error: .*outside/);
    expect(await text('view_image', { image_path: '/mnt/skills/public/a/a.png' })).toMatch(
      /^Error: .*not among the files/,
    );
    expect(await text('view_image', { image_path: 'none.png' })).toMatch(/^Error: /);
    expect([imageType(JPEG), imageType(WEBP), imageType(new Uint8Array())]).toEqual(['image/jpeg', 'image/webp', null]);
  });
});

describe('pictures in requests', () => {
  const look = (...paths: string[]): Turn => ({
    calls: paths.map((image_path) => ({ name: 'view_image', args: { image_path } })),
  });

  async function play(
    turns: readonly Turn[],
    vision = true,
    before: (files: SandboxFiles, request: number, times: Map<string, number>) => Promise<void> = async () => {},
  ) {
    const sandboxes = new MemorySandboxes();
    const files = sandboxes.files();
    let requests = 0;
    const first = defineMiddleware({
      name: 'first',
      async wrapModelCall(request, handler) {
        await before(files, requests, sandboxes.times);
        requests += 1;
        return handler(request);
      },
    });
    await files.write(`${W}/a.png`, PNG);
    await files.write(`${W}/b.jpg`, JPEG);
    const model = new FakeModel(turns);
    const result = await runLoop({
      model,
      vision,
      tools: [viewImageTool('virtual')],
      middleware: [first, viewedImagesMiddleware()],
      sandboxes,
      input: [new HumanMessage('look')],
    });
    return { ...result, model };
  }
  const imagesIn = (model: FakeModel, request: number): string[] =>
    (model.requests[request] ?? []).flatMap((message) =>
      Array.isArray(message.content)
        ? message.content.flatMap((block) => {
            const url = (block as { image_url?: { url?: string } }).image_url?.url;
            return url === undefined ? [] : [url];
          })
        : [],
    );

  test('stand in the one request after they were asked for, and nowhere in the state', verifies('MW-23'), async () => {
    const { model, messages, values } = await play([look('a.png', 'b.jpg'), look('b.jpg'), { text: 'seen' }]);
    expect(imagesIn(model, 0)).toEqual([]);
    expect(imagesIn(model, 1)).toEqual([
      `data:image/png;base64,${Buffer.from(PNG).toString('base64')}`,
      `data:image/jpeg;base64,${Buffer.from(JPEG).toString('base64')}`,
    ]);
    expect(imagesIn(model, 2)).toEqual([`data:image/jpeg;base64,${Buffer.from(JPEG).toString('base64')}`]);
    expect(JSON.stringify([messages, values])).not.toContain('base64');
    expect(values.viewed_images).toMatchObject({ [`${W}/a.png`]: { mime_type: 'image/png', size: 11 } });
  });

  test('not for a model that does not see, nor for a call that failed', verifies('MW-23'), async () => {
    expect(imagesIn((await play([look('a.png'), { text: 'x' }], false)).model, 1)).toEqual([]);
    expect(imagesIn((await play([look('none.png', 'a.png'), { text: 'x' }])).model, 1)).toHaveLength(1);
  });

  test('one that is no longer what was looked at is left out', verifies('MW-23'), async () => {
    const swapped = (bytes: Uint8Array) =>
      play([look('a.png', 'b.jpg'), { text: 'x' }], true, async (files, request) => {
        if (request === 1) await files.write(`${W}/a.png`, bytes);
      });
    const longer = Buffer.concat([PNG, Buffer.from('more')]);
    const another = Buffer.concat([JPEG, Buffer.alloc(PNG.length)]).subarray(0, PNG.length);
    for (const bytes of [longer, another]) expect(imagesIn((await swapped(bytes)).model, 1)).toHaveLength(1);
    // Of the same size and kind, but written anew.
    const rewritten = await play([look('a.png', 'b.jpg'), { text: 'x' }], true, async (_files, request, times) => {
      if (request === 1) times.set(`${W}/a.png`, 5);
    });
    expect(imagesIn(rewritten.model, 1)).toHaveLength(1);
  });

  test('together they are bounded', verifies('MW-23'), async () => {
    const large = Buffer.concat([PNG, Buffer.alloc(15 * 1024 * 1024)]);
    const names = ['1.png', '2.png', '3.png'];
    const { model } = await play([look(...names), { text: 'x' }], true, async (files, request) => {
      if (request === 0) for (const name of names) await files.write(`${W}/${name}`, large);
    });
    expect(imagesIn(model, 1)).toHaveLength(2);
  });

  test('not before all calls of the step have their result', verifies('MW-23'), async () => {
    const tool_calls = ['1', '2'].map((id) => ({ id, name: 'view_image', args: { image_path: 'a.png' } }));
    const messages = [new AIMessage({ content: '', tool_calls }), new ToolMessage({ content: '', tool_call_id: '1' })];
    const scope = Object.assign(Object.create(AttemptScope.prototype), {
      vision: true,
      sandbox: async () => ({ files: { read: async () => PNG } }),
    });
    const state = {
      messages,
      viewed_images: { [`${W}/a.png`]: { mime_type: 'image/png', size: 11, actual_path: '' } },
    };
    const request = { messages, state, runtime: { configurable: { [SCOPE]: scope } } };
    const seen: unknown[] = [];
    const hook = viewedImagesMiddleware().wrapModelCall as unknown as (
      given: unknown,
      next: unknown,
    ) => Promise<unknown>;
    await hook(request, async (given: unknown) => seen.push(given));
    expect(seen[0]).toBe(request);
  });
});

describe('list_uploaded_files', () => {
  test(
    'newest first, without those of the newest message and without Markdown that was made of a document',
    verifies('TOOL-8', 'FILE-2b'),
    async () => {
      const sandboxes = new MemorySandboxes();
      const files = sandboxes.files();
      for (const [name, text] of [
        ['old.txt', 'text'],
        ['report.pdf', 'pdf'],
        ['report.md', '# First\n\ntext\n\n## Second\n'],
        ['now.txt', 'text'],
        ['own.md', '# Mine'],
      ] as const)
        await files.write(`/mnt/user-data/uploads/${name}`, text);
      const tool = listUploadedFilesTool('virtual');
      const { text } = toolCaller([tool], sandboxes, { uploaded_files: [{ filename: 'now.txt' }] });
      const plain = await text('list_uploaded_files', {});
      expect(plain.match(/uploads\/([\w.]+)/g)?.sort()).toEqual([
        'uploads/old.txt',
        'uploads/own.md',
        'uploads/report.pdf',
      ]);
      const outlined = await text('list_uploaded_files', { include_outline: ['report.pdf'] });
      expect(outlined).toContain('report.pdf');
      expect(outlined).toMatch(/line 1: First\n\s+line 5: Second/);
      expect(outlined).not.toContain('Mine');
      expect(await text('list_uploaded_files', { max_results: 1 })).toMatch(/… and 2 more/);
      expect(await toolCaller([tool], new MemorySandboxes()).text('list_uploaded_files', {})).toBe(
        'No files were uploaded before.',
      );
    },
  );
});
