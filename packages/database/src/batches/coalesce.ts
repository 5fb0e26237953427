/**
 * Sends calls that come close together as one: whoever calls is answered for its own input. One is under way at a time, and what comes meanwhile
 * goes with the next; so a call alone waits for nothing but the turn of the event loop. An error is everybody's whose input was in it.
 */
export class Coalescer<I, O> {
  readonly #send: (inputs: readonly I[]) => Promise<readonly O[]>;
  readonly #sizeOf: (input: I) => number;
  #waiting: { readonly input: I; resolve(answer: O): void; reject(error: unknown): void }[] = [];
  #scheduled = false;
  #underWay = 0;

  /** @param sizeOf characters that an input makes on the way */
  constructor(send: (inputs: readonly I[]) => Promise<readonly O[]>, sizeOf: (input: I) => number = () => 1) {
    this.#send = send;
    this.#sizeOf = sizeOf;
  }

  call(input: I): Promise<O> {
    return new Promise<O>((resolve, reject) => {
      this.#waiting.push({ input, resolve, reject });
      this.#schedule();
    });
  }

  #schedule(): void {
    if (this.#scheduled || this.#underWay >= AT_ONCE || this.#waiting.length === 0) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      void this.#flush();
    });
  }

  async #flush(): Promise<void> {
    let size = 0;
    let count = 0;
    for (const { input } of this.#waiting) {
      size += this.#sizeOf(input);
      if (count > 0 && (count >= MOST || size > MOST_CHARACTERS)) break;
      count += 1;
    }
    const sent = this.#waiting.splice(0, count);
    if (sent.length === 0) return;
    this.#underWay += 1;
    try {
      const answers = await this.#send(sent.map(({ input }) => input));
      for (const [index, one] of sent.entries()) one.resolve(answers[index] as O);
    } catch (error) {
      for (const one of sent) one.reject(error);
    } finally {
      this.#underWay -= 1;
      this.#schedule();
    }
    this.#schedule();
  }
}

const AT_ONCE = 2;
const MOST = 128;
const MOST_CHARACTERS = 2 * 1024 * 1024;
