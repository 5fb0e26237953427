/** What one command may use. */
export interface CommandLimits {
  readonly memoryBytes: number;
  /** Processes and threads. */
  readonly processes: number;
  /** Disk space of the thread's folders together; also the largest single file. */
  readonly diskBytes: number;
}
