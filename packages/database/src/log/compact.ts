import type { FactBody, NewFact } from '@reindeer/protocol';

/**
 * The frequent facts are stored as a letter and a list instead of an object with its names, and their UUIDs in 22 characters
 * instead of 36: a step of an agent brings eight facts, which would otherwise weigh as much as its messages (D4). Every other
 * fact is stored as its JSON, which begins with `{`.
 */

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

/** `~` and 22 characters for a UUID; any other text as it is, behind `~~` when it begins with `~`. */
function shortId(id: string): string {
  if (UUID.test(id)) return `~${Buffer.from(id.replaceAll('-', ''), 'hex').toString('base64url')}`;
  return id.startsWith('~') ? `~~${id}` : id;
}

function longId(short: string): string {
  if (short.startsWith('~~')) return short.slice(2);
  if (!short.startsWith('~')) return short;
  const hex = Buffer.from(short.slice(1), 'base64url').toString('hex');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}

/** What is stored of a fact. */
export function compactFact(body: NewFact['body']): string {
  switch (body.kind) {
    case 'message':
      if (!('$m' in body.message) || Object.keys(body.message).length !== 1) return JSON.stringify(body);
      return body.ns === '' ? `m${body.message.$m}` : `m${JSON.stringify([body.ns, body.message.$m])}`;
    case 'checkpoint': {
      const { ns, checkpointId, parentId, source, step } = body;
      const parent = parentId === null ? null : shortId(parentId);
      return `c${JSON.stringify([ns, shortId(checkpointId), parent, source, step])}`;
    }
    case 'update':
      return `u${JSON.stringify([body.ns, body.node, shortId(body.taskId), body.values])}`;
    case 'tool-started': {
      const { messageId, index, toolCallId, name, attempt } = body;
      return `s${JSON.stringify([shortId(messageId), index, toolCallId, name, attempt])}`;
    }
    case 'tool-finished': {
      const { messageId, index, toolCallId, name, outcome } = body;
      return `f${JSON.stringify([shortId(messageId), index, toolCallId, name, outcome])}`;
    }
    default:
      return JSON.stringify(body);
  }
}

/** The JSON of a stored fact's body; messages still stand as references. */
export function expandFact(stored: string): string {
  const letter = stored[0];
  if (letter === '{') return stored;
  const rest = stored.slice(1);
  if (letter === 'm') {
    const [ns, hash] = rest.startsWith('[') ? (JSON.parse(rest) as [string, string]) : ['', rest];
    return JSON.stringify({ kind: 'message', ns, message: { $m: hash } } satisfies NewFact['body']);
  }
  return JSON.stringify(fromList(letter ?? '', JSON.parse(rest)));
}

function fromList(letter: string, list: unknown): FactBody {
  switch (letter) {
    case 'c': {
      const [ns, id, parent, source, step] = list as [string, string, string | null, string, number];
      const parentId = parent === null ? null : longId(parent);
      return { kind: 'checkpoint', ns, checkpointId: longId(id), parentId, source, step };
    }
    case 'u': {
      const [ns, node, task, values] = list as [
        string,
        string,
        string,
        Extract<FactBody, { kind: 'update' }>['values'],
      ];
      return { kind: 'update', ns, node, taskId: longId(task), values };
    }
    case 's': {
      const [message, index, toolCallId, name, attempt] = list as [string, number, string | null, string, number];
      return { kind: 'tool-started', messageId: longId(message), index, toolCallId, name, attempt };
    }
    default: {
      type Outcome = Extract<FactBody, { kind: 'tool-finished' }>['outcome'];
      const [message, index, toolCallId, name, outcome] = list as [string, number, string | null, string, Outcome];
      return { kind: 'tool-finished', messageId: longId(message), index, toolCallId, name, outcome };
    }
  }
}
