/**
 * Says that somebody else stops the sandboxes when the process is told to end: a host that first lets its runs finish. One per process,
 * made by whoever starts it and handed to those who would act on signals by themselves.
 *
 * *free* → `declare` → *declared* → withdrawn by each who declared → *free*.
 */
export class ShutdownOwnership {
  #declared = 0;

  get declared(): boolean {
    return this.#declared > 0;
  }

  /** @returns withdraws it; twice is once */
  declare(): () => void {
    this.#declared += 1;
    let withdrawn = false;
    return () => {
      if (withdrawn) return;
      withdrawn = true;
      this.#declared -= 1;
    };
  }
}
