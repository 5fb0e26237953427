import { sandboxRacesContract } from '@reindeer/testkit';
import { memoryFactory } from './test-support.ts';

sandboxRacesContract('our provider, memory store', memoryFactory());
