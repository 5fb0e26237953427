import { HumanMessage } from '@langchain/core/messages';
import { type Logger, NO_LOG } from '@reindeer/protocol';
import { startScriptedProvider, turns } from '@reindeer/scripted';
import { verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { FakeModel } from '../test-support/fake-model.ts';
import type { ModelEntry, ModelOptions } from './entry.ts';
import { createModelRegistry, type RegistryOptions } from './registry.ts';
import { thinkingSettings } from './thinking.ts';

function setUp(entries: readonly ModelEntry[], more: Partial<RegistryOptions> = {}) {
  const made: ModelOptions[] = [];
  const warnings: string[] = [];
  const logger: Logger = { ...NO_LOG, warn: (message) => void warnings.push(message) };
  const factory = (options: ModelOptions): FakeModel => {
    made.push(options);
    return new FakeModel([{ text: 'x' }]);
  };
  const registry = createModelRegistry({ entries, environment: {}, logger, factories: { fake: factory }, ...more });
  return { registry, made, warnings };
}
const fake = (name: string, more: Partial<ModelEntry> = {}): ModelEntry => ({
  name,
  use: 'fake',
  model: `m-${name}`,
  ...more,
});

describe('the registry', () => {
  test('lists safe fields only and gives clients only what is theirs', verifies('MOD-1'), async () => {
    const { registry, made } = setUp([
      fake('a', {
        display_name: 'A',
        api_key: 'secret-key-1',
        base_url: 'http://x',
        temperature: 0.5,
        top_p: 0.9,
        context_window: 1_000,
        pricing: { currency: 'EUR' },
        supports_vision: true,
        max_retries: 9,
      }),
    ]);
    expect(registry.list()).toEqual([
      {
        name: 'a',
        model: 'm-a',
        display_name: 'A',
        description: null,
        supports_thinking: false,
        supports_reasoning_effort: false,
        supports_vision: true,
        demo: false,
        context_window: 1_000,
        pricing: { currency: 'EUR' },
      },
    ]);
    await registry.choose({ name: null });
    expect(made).toEqual([
      { model: 'm-a', apiKey: 'secret-key-1', baseUrl: 'http://x', settings: { temperature: 0.5, top_p: 0.9 } },
    ]);
  });

  test('the first is the default; an unknown name warns; a client is made once', verifies('MOD-1'), async () => {
    const { registry, made, warnings } = setUp([fake('a'), fake('b')]);
    expect((await registry.choose({ name: 'b' })).entry.name).toBe('b');
    expect((await registry.choose({ name: null })).entry.name).toBe('a');
    const [first, again] = [await registry.choose({ name: 'nobody' }), await registry.choose({ name: 'a' })];
    expect(first.model).toBe(again.model);
    expect(made).toHaveLength(2);
    expect(warnings).toEqual(['Unknown model, using the default']);
  });

  test('mistakes in entries are named', verifies('MOD-1'), async () => {
    expect(() => setUp([fake('a'), fake('a')])).toThrow(/two entries are named "a"/);
    expect(() => setUp([fake('a', { use: 'nowhere:Nothing' })])).toThrow(
      /"nowhere:Nothing", which is not known. Known: openai/,
    );
    expect(() => setUp([fake('a', { model: '' })])).toThrow(/names no model/);
    await expect(setUp([]).registry.choose({ name: null })).rejects.toThrow(
      /No model is configured. Set OPENAI_API_KEY/,
    );
    await expect(
      setUp([fake('o', { use: 'langchain_openai:ChatOpenAI' })]).registry.choose({ name: 'o' }),
    ).rejects.toThrow(/"o" has no key. Set OPENAI_API_KEY/);
  });

  test('without entries the environment decides, and without it the labelled demo', verifies('MOD-1'), () => {
    const demo = { entry: fake('demo'), factory: () => new FakeModel([]) };
    const keyed = setUp([], {
      environment: { OPENAI_API_KEY: 'k', ANTHROPIC_API_KEY: 'k', OPENAI_MODEL: 'gpt-x' },
      demo,
    });
    expect(keyed.registry.list().map((model) => [model.name, model.demo])).toEqual([
      ['gpt-x', false],
      ['claude-sonnet-4-5', false],
    ]);
    expect(setUp([], { environment: { OPENAI_API_KEY: ' ' }, demo }).registry.list()).toMatchObject([
      { name: 'demo', demo: true },
    ]);
  });

  test('the key of the environment goes to no other address', async () => {
    const provider = await startScriptedProvider({ script: turns([{ text: 'ok' }]), apiKey: 'none' });
    try {
      const { registry } = setUp([fake('own', { use: 'openai', base_url: provider.openAiUrl })], {
        environment: { OPENAI_API_KEY: 'sk-of-the-environment' },
      });
      const { model } = await registry.choose({ name: 'own' });
      for await (const _ of await model.stream([new HumanMessage('hi')])) {
        // Only whether the request was let in matters here.
      }
      expect(provider.requests()).toHaveLength(1);
    } finally {
      await provider.close();
    }
  });

  test('a client that could not be made is tried again', async () => {
    let broken = true;
    const { registry } = setUp([fake('a', { use: 'shaky' })], {
      factories: {
        shaky: () => {
          if (broken) throw new Error('not now');
          return new FakeModel([]);
        },
      },
    });
    await expect(registry.choose({ name: 'a' })).rejects.toThrow('not now');
    broken = false;
    await expect(registry.choose({ name: 'a' })).resolves.toMatchObject({ thinking: false });
  });
});

describe('thinking', () => {
  test('on, off and unsupported', verifies('MOD-2', 'AG-1'), async () => {
    const entry = fake('a', {
      supports_thinking: true,
      supports_reasoning_effort: true,
      temperature: 1,
      when_thinking_enabled: { extra_body: { thinking: { type: 'enabled' } } },
    });
    const { registry, made, warnings } = setUp([entry, fake('plain')]);
    expect((await registry.choose({ name: 'a' })).thinking).toBe(true);
    expect((await registry.choose({ name: 'a', thinking: false })).thinking).toBe(false);
    expect((await registry.choose({ name: 'plain' })).thinking).toBe(false);
    expect(warnings).toEqual([]);
    expect((await registry.choose({ name: 'plain', thinking: true })).thinking).toBe(false);
    expect(warnings).toEqual(['The model does not support thinking; it is off']);
    expect(made.map((options) => options.settings)).toEqual([
      { temperature: 1, extra_body: { thinking: { type: 'enabled' } } },
      { temperature: 1, extra_body: { thinking: { type: 'disabled' } }, reasoning_effort: 'minimal' },
      {},
    ]);
  });

  test('off has the shape of the provider, and nothing where nothing would turn it on', verifies('MOD-2'), () => {
    const off = (more: Partial<ModelEntry>) => thinkingSettings(fake('a', more), false);
    expect(off({ when_thinking_enabled: { thinking: { type: 'enabled', budget_tokens: 9 } } })).toEqual({
      thinking: { type: 'disabled' },
    });
    expect(off({ thinking: { type: 'enabled' } })).toEqual({ thinking: { type: 'disabled' } });
    expect(
      off({ when_thinking_enabled: { extra_body: { chat_template_kwargs: { enable_thinking: true, other: 1 } } } }),
    ).toEqual({
      extra_body: { chat_template_kwargs: { enable_thinking: false } },
    });
    expect(off({ when_thinking_disabled: { x: 1 }, thinking: { type: 'enabled' } })).toEqual({ x: 1 });
    expect(off({ temperature: 1 })).toEqual({ temperature: 1 });
    expect(
      thinkingSettings(
        fake('a', { extra_body: { keep: 1 }, when_thinking_enabled: { extra_body: { thinking: 1 } } }),
        true,
      ),
    ).toEqual({
      extra_body: { keep: 1, thinking: 1 },
    });
  });

  test(
    'reasoning effort only where it is supported, known, and not against the switch',
    verifies('MOD-3'),
    async () => {
      const shape = {
        supports_thinking: true,
        when_thinking_enabled: { extra_body: { thinking: { type: 'enabled' } } },
      };
      const { registry, made, warnings } = setUp([
        fake('a', { supports_reasoning_effort: true }),
        fake('b'),
        fake('c', { ...shape, supports_reasoning_effort: true }),
        fake('d', shape),
      ]);
      const chosen = [
        await registry.choose({ name: 'a', reasoningEffort: 'high' }),
        await registry.choose({ name: 'b', reasoningEffort: 'high' }),
        await registry.choose({ name: 'c', thinking: false, reasoningEffort: 'high' }),
        await registry.choose({ name: 'd', thinking: false, reasoningEffort: 'high' }),
        await registry.choose({ name: 'a', reasoningEffort: 'as hard as you can' }),
      ];
      expect(chosen.map((choice) => choice.reasoningEffort)).toEqual(['high', null, null, null, null]);
      const off = { extra_body: { thinking: { type: 'disabled' } } };
      expect(made.map((options) => options.settings)).toEqual([
        { reasoning_effort: 'high' },
        {},
        { ...off, reasoning_effort: 'minimal' },
        off,
        {},
      ]);
      expect(warnings).toEqual(['Unknown reasoning effort, using the default']);
    },
  );
});

test(
  'requests to Anthropic mark the cache and keep thinking within 80 % of the answer',
  verifies('MOD-5b'),
  async () => {
    const provider = await startScriptedProvider({ script: turns([{ text: 'ok' }]) });
    try {
      const registry = createModelRegistry({
        entries: [
          {
            name: 'c',
            use: 'langchain_anthropic:ChatAnthropic',
            model: 'claude-sonnet-4-5',
            api_key: 'k',
            base_url: provider.url,
            max_tokens: 10_000,
            temperature: 0.3,
            supports_thinking: true,
            thinking: { type: 'enabled', budget_tokens: 50_000 },
          },
        ],
        environment: {},
        logger: NO_LOG,
      });
      const { model } = await registry.choose({ name: 'c' });
      for await (const _ of await model.stream([new HumanMessage('hi')])) {
        // Only the request matters here.
      }
      expect(provider.requests()[0]?.body).toMatchObject({
        max_tokens: 10_000,
        thinking: { type: 'enabled', budget_tokens: 8_000 },
        messages: [{ role: 'user', content: [{ type: 'text', text: 'hi', cache_control: { type: 'ephemeral' } }] }],
      });
      // The provider refuses one beside thinking.
      expect(provider.requests()[0]?.body).not.toHaveProperty('temperature');
    } finally {
      await provider.close();
    }
  },
);

test('extra settings reach an OpenAI-compatible server in the body; the page’s do not', verifies('MOD-1'), async () => {
  const provider = await startScriptedProvider({ script: turns([{ text: 'ok' }]) });
  try {
    const registry = createModelRegistry({
      entries: [
        {
          name: 'o',
          use: 'openai',
          model: 'gpt-x',
          api_key: 'k',
          base_url: provider.openAiUrl,
          temperature: 0.2,
          max_tokens: 50,
          extra_body: { chat_template_kwargs: { a: 1 } },
          pricing: { currency: 'EUR' },
          stream_chunk_timeout: 3,
        },
      ],
      environment: {},
      logger: NO_LOG,
    });
    const { model } = await registry.choose({ name: 'o' });
    for await (const _ of await model.stream([new HumanMessage('hi')])) {
      // Only the request matters here.
    }
    const body = provider.requests()[0]?.body ?? {};
    expect(body).toMatchObject({
      model: 'gpt-x',
      stream: true,
      temperature: 0.2,
      max_tokens: 50,
      chat_template_kwargs: { a: 1 },
      stream_options: { include_usage: true },
    });
    expect(Object.keys(body)).not.toEqual(expect.arrayContaining(['pricing']));
    expect(Object.keys(body)).not.toEqual(expect.arrayContaining(['stream_chunk_timeout']));
  } finally {
    await provider.close();
  }
});
