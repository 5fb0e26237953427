export { ReindeerClient } from './client.ts';
export { type ConnectOptions, connectClient } from './connect.ts';
export type { Method, Request } from './connection.ts';
export {
  type Frame,
  type MessageNews,
  MODES,
  type RunEnd,
  type RunEvent,
  RunEvents,
  type Usage,
  type Values,
} from './events.ts';
export { type OpenOptions, openClient } from './open.ts';
export type { RunOptions } from './options.ts';
export type { Answer, RunInput, StreamOptions } from './run.ts';
