import type { ModelFactory } from '@reindeer/agent';
import { ReindeerError } from '@reindeer/protocol';
import { isOwnModule, ownMaker } from './config/class-path.ts';
import type { Settings } from './config/settings.ts';

/** Factories of models that come from modules of the operator's own (CFG-6). Throws `configuration` for one that cannot be loaded. */
export async function ownModels({ models, root }: Settings): Promise<Record<string, ModelFactory>> {
  const factories: Record<string, ModelFactory> = {};
  for (const { name, use } of models) {
    if (use === undefined || !isOwnModule(use)) continue;
    const maker = await ownMaker(use, root, `models: entry "${name}"`);
    factories[use] = async (options) => {
      const made: unknown = await maker(options as never);
      // The module may bring its own copy of the library: what it can do counts, not its class.
      if (typeof (made as { _streamResponseChunks?: unknown } | null)?._streamResponseChunks === 'function')
        return made as Awaited<ReturnType<ModelFactory>>;
      throw new ReindeerError(
        'configuration',
        `models: entry "${name}": ${use} made no chat model of LangChain (BaseChatModel). Return one from it.`,
      );
    };
  }
  return factories;
}
