import { ReindeerError } from '@reindeer/protocol';

/** Somebody is stopping the container of this id: nobody may be given it. */
export function beingDestroyed(id: string): ReindeerError {
  return new ReindeerError(
    'sandbox_unavailable',
    'The sandbox of this thread is being stopped; try again in a moment.',
    {
      retryable: true,
      detail: { reason: 'being_destroyed', sandboxId: id },
    },
  );
}

/** Two threads have the same sandbox id; nothing is handed out and nothing is stopped (SB-09). */
export function identityCollision(id: string): ReindeerError {
  return new ReindeerError('conflict', 'The id of this sandbox belongs to another thread; it is not handed out.', {
    detail: { reason: 'identity_collision', sandboxId: id },
  });
}

export function notReady(id: string): ReindeerError {
  return new ReindeerError('sandbox_unavailable', 'The new sandbox did not become ready; it was removed again.', {
    retryable: true,
    detail: { reason: 'not_ready', sandboxId: id },
  });
}

/** The machine has too little memory left for one more container. */
export function noMemory(): ReindeerError {
  return new ReindeerError(
    'over_capacity',
    'This machine has too little memory left for another sandbox; try again later, or lower sandbox.memory_reserve.',
    { retryable: true, detail: { reason: 'memory' } },
  );
}

export function aborted(): ReindeerError {
  return new ReindeerError('aborted', 'The wait for the sandbox was cancelled.');
}

export function closed(): ReindeerError {
  return new ReindeerError('shutting_down', 'The sandbox provider is closed.');
}

export function full(replicas: number): ReindeerError {
  return new ReindeerError('over_capacity', `All ${replicas} sandboxes are in use; try again later.`, {
    retryable: true,
    detail: { replicas },
  });
}
