export { wireMessage } from './message-body.ts';
export { addressOf, Packer } from './packer.ts';
export { ReindeerSaver, type SaverOptions } from './saver.ts';
