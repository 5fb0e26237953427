import { ReindeerError } from '@reindeer/protocol';
import { verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { isPublicUrl, publicUrl, refusedAddress } from './address.ts';

const codeOf = (url: string): string => {
  try {
    publicUrl(url);
    return 'open';
  } catch (error) {
    return ReindeerError.is(error) ? error.code : 'unexpected';
  }
};

test(
  'addresses of this machine, of networks of its own and of nobody are refused, however they are written',
  verifies('WEB-4'),
  () => {
    const refused = [
      'http://127.0.0.1/',
      'http://127.9.9.9:8080/x',
      'http://[::1]/',
      'http://[::]/',
      'http://0.0.0.0/',
      'http://2130706433/',
      'http://0x7f.1/',
      'http://0177.0.0.1/',
      'http://127.1/',
      'http://10.1.2.3/',
      'http://172.16.0.1/',
      'http://192.168.1.1/',
      'http://100.64.0.1/',
      'http://169.254.169.254/latest/meta-data/',
      'http://[fe80::1]/',
      'http://[fd00::1]/',
      'http://[ff02::1]/',
      'http://224.0.0.1/',
      'http://255.255.255.255/',
      'http://[::ffff:127.0.0.1]/',
      'http://[::ffff:a9fe:a9fe]/',
      'http://[2002:7f00:1::]/',
      'http://[64:ff9b::10.0.0.1]/',
      'http://[64:ff9b:1:7f00:0:100:808:808]/',
      'http://[::2]/',
      'http://168.63.129.16/machine',
      'http://[::10.0.0.1]/',
      'http://localhost/',
      'http://LOCALHOST./',
      'http://api.localhost/',
      'http://metadata.google.internal/computeMetadata/v1/',
      'http://metadata/computeMetadata/v1/',
      'http://metadata.goog/',
      'http://instance-data/latest/',
      'http://db.internal/',
      'http://printer.local/',
      'http://user:password@example.org/',
      'file:///etc/passwd',
      'ftp://example.org/',
      'gopher://example.org/',
    ];
    expect(refused.filter((url) => codeOf(url) !== 'forbidden')).toEqual([]);
  },
);

test('public addresses are open', verifies('WEB-4'), () => {
  const open = [
    'https://example.org/page?q=1#part',
    'http://93.184.216.34/',
    'http://[2606:2800:220:1:248:1893:25c8:1946]/',
    'http://[::ffff:8.8.8.8]/',
    'https://localhost.example.org/',
    'https://münchen.example/',
  ];
  expect(open.filter((url) => codeOf(url) !== 'open')).toEqual([]);
});

test('what is no address says what one looks like', () => {
  expect(() => publicUrl('example.org/page')).toThrow(/such as https:\/\/example\.org/);
});

test('an address that is none is not taken for public', () => {
  expect(refusedAddress('example.org')).not.toBeNull();
  expect(refusedAddress('fe80::1%eth0')).not.toBeNull();
});

test('addresses for pictures: data, scripts and internal ones are no addresses', verifies('WEB-3'), () => {
  expect(
    ['https://a.example/1.png', 'data:image/png;base64,AA', 'javascript:alert(1)', 'http://10.0.0.1/a.png', '', 7].map(
      isPublicUrl,
    ),
  ).toEqual([true, false, false, false, false, false]);
});
