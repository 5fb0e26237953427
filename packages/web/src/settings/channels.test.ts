import { expect, test } from 'vitest';
import { messengerOf, readAccounts, readMessengers, readOffer } from './channels.ts';

test('messengers and accounts are read with care', () => {
  const provider = {
    provider: 'telegram',
    display_name: 'Telegram',
    connectable: true,
    unavailable_reason: null,
    credential_fields: [{ name: 'bot_token', label: 'Bot token', type: 'password', required: true }, 7],
    credential_values: { bot_token: '********', odd: 7 },
  };
  expect(readMessengers({ admin: true, providers: [provider, null] })).toEqual({
    admin: true,
    list: [
      {
        provider: 'telegram',
        title: 'Telegram',
        connectable: true,
        trouble: null,
        fields: [{ name: 'bot_token', label: 'Bot token', secret: true, required: true }],
        values: { bot_token: '********' },
      },
    ],
  });
  expect(readMessengers('no')).toEqual({ admin: false, list: [] });
  const account = { id: 'c', provider: 'telegram', external_account_name: '@ann', external_account_id: '7' };
  expect(readAccounts({ connections: [account, { ...account, external_account_name: null }, 7] })).toEqual([
    { id: 'c', provider: 'telegram', name: '@ann' },
    { id: 'c', provider: 'telegram', name: '7' },
  ]);
  expect(readAccounts(null)).toEqual([]);
});

test('only an address of the web becomes a link', () => {
  expect(readOffer({ url: 'https://t.me/b?start=c', code: 'c', expires_in: 600 })).toEqual({
    url: 'https://t.me/b?start=c',
    code: 'c',
    minutes: 10,
  });
  expect(readOffer({ url: 'javascript:alert(1)', code: 'c' }).url).toBeNull();
});

test('a chat that came from a messenger names it', () => {
  expect(messengerOf({ channel_source: { type: 'im_channel', provider: 'telegram', chat_id: '7' } })).toBe('Telegram');
  expect(messengerOf({ channel_source: { type: 'other', provider: 'telegram' } })).toBeNull();
  expect(messengerOf({ channel_source: 'telegram' })).toBeNull();
  expect(messengerOf(undefined)).toBeNull();
});
