import type { ChannelStore } from '@reindeer/protocol';
import type { Call } from '../scripts.ts';

/** @param first as `call`, ahead of what waits: for renewals */
export function channelStore(call: Call, first: Call): ChannelStore {
  return {
    acquire: (input) => call('channels.acquire', input),
    renew: (input) => first('channels.renew', input),
    release: (fence) => call('channels.release', fence),
    receive: (input) => call('channels.receive', input),
    due: (input) => call('channels.due', input),
    progress: (input) => call('channels.progress', input),
    forget: (input) => call('channels.forget', input),
    converse: (input) => call('channels.converse', input),
    threadOf: (conversation) => call('channels.threadOf', conversation),
    issueCode: (input) => call('channels.issueCode', input),
    redeem: (input) => call('channels.redeem', input),
    connectionOf: (input) => call('channels.connectionOf', input),
    connections: (input) => call('channels.connections', input),
    disconnect: (input) => call('channels.disconnect', input),
  };
}
