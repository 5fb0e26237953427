/**
 * Cuts a stream of bytes into JSON lines. A line longer than `maxLineBytes` ends it with an error: what a container sends is bounded.
 */
export async function* jsonLines(source: AsyncIterable<Buffer>, maxLineBytes: number): AsyncGenerator<unknown> {
  let rest: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of source) {
    let from = 0;
    for (let end = chunk.indexOf(10); end >= 0; end = chunk.indexOf(10, from)) {
      rest.push(chunk.subarray(from, end));
      from = end + 1;
      const line = Buffer.concat(rest).toString('utf8');
      rest = [];
      bytes = 0;
      if (line !== '') yield JSON.parse(line) as unknown;
    }
    rest.push(chunk.subarray(from));
    bytes += chunk.length - from;
    if (bytes > maxLineBytes) throw new Error(`a line of more than ${maxLineBytes} bytes`);
  }
}
