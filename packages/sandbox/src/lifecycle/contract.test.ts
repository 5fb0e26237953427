import { sandboxRacesContract } from '@reindeer/testkit';
import { memoryFactory } from './testing/memory-factory.ts';

sandboxRacesContract('our provider, memory store', memoryFactory());
