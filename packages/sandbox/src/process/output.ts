/**
 * Keeps the output of one command within a bound: the first half and the last half of `cap` bytes; what lies between is counted
 * and dropped, while the pipe keeps draining (SL-12). Live chunks go to `onOutput` until the bound is reached.
 */
export class OutputBuffer {
  readonly #headCap: number;
  readonly #tailCap: number;
  readonly #onOutput: ((text: string) => void) | undefined;
  readonly #live = new TextDecoder('utf-8');
  #head = Buffer.alloc(0);
  #headBytes = 0;
  /** A ring; made when the head is full. Copying keeps the bound exact however small the chunks are. */
  #tail = Buffer.alloc(0);
  /** Bytes that went past the head, kept in the ring or overwritten there. */
  #past = 0;

  constructor(cap: number, onOutput?: (text: string) => void) {
    this.#headCap = Math.ceil(cap / 2);
    this.#tailCap = Math.floor(cap / 2);
    this.#onOutput = onOutput;
  }

  /** Bytes seen so far, kept or not. */
  get total(): number {
    return this.#headBytes + this.#past;
  }

  push(chunk: Uint8Array): void {
    if (this.#onOutput !== undefined && this.total < this.#headCap + this.#tailCap) {
      const text = this.#live.decode(chunk, { stream: true });
      if (text !== '') this.#onOutput(text);
    }
    const first = chunk.subarray(0, this.#headCap - this.#headBytes);
    this.#growHead(this.#headBytes + first.length);
    this.#head.set(first, this.#headBytes);
    this.#headBytes += first.length;
    if (first.length < chunk.length) this.#pushTail(chunk.subarray(first.length));
  }

  /** The text, decoded leniently, with a notice where bytes were dropped. */
  finish(): { readonly output: string; readonly truncatedBytes: number } {
    const head = this.#head.subarray(0, this.#headBytes);
    const dropped = Math.max(0, this.#past - this.#tailCap);
    const split = this.#tailCap === 0 ? 0 : this.#past % this.#tailCap;
    const tail =
      dropped === 0
        ? [this.#tail.subarray(0, this.#past)]
        : [this.#tail.subarray(split), this.#tail.subarray(0, split)];
    if (dropped === 0) return { output: Buffer.concat([head, ...tail]).toString('utf8'), truncatedBytes: 0 };
    const notice = `\n[… ${dropped} bytes of output were dropped here …]\n`;
    return { output: head.toString('utf8') + notice + Buffer.concat(tail).toString('utf8'), truncatedBytes: dropped };
  }

  #growHead(needed: number): void {
    if (needed <= this.#head.length) return;
    const larger = Buffer.alloc(Math.min(this.#headCap, Math.max(needed, this.#head.length * 2, 4_096)));
    larger.set(this.#head.subarray(0, this.#headBytes));
    this.#head = larger;
  }

  #pushTail(chunk: Uint8Array): void {
    if (this.#tail.length === 0) this.#tail = Buffer.alloc(this.#tailCap);
    const skipped = Math.max(0, chunk.length - this.#tailCap);
    this.#past += skipped;
    for (let rest = chunk.subarray(skipped); rest.length > 0 && this.#tailCap > 0; ) {
      const at = this.#past % this.#tailCap;
      const part = rest.subarray(0, this.#tailCap - at);
      this.#tail.set(part, at);
      this.#past += part.length;
      rest = rest.subarray(part.length);
    }
  }
}
