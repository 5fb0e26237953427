import { verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { readSubagentMetadata, type SubagentOutcome, subagentMetadata } from './metadata.ts';

const more = {
  model: 'm',
  usage: { input_tokens: 1, output_tokens: 2, total_tokens: 3 },
  type: 'bash',
  description: 'd',
  executionId: 'tools:m:0',
};
const outcome: SubagentOutcome = {
  status: 'completed',
  stopReason: 'token_capped',
  result: 'r'.repeat(600),
  error: null,
};

test(
  'metadata is built and read back; unknown values are refused in both directions',
  verifies('SA-19', 'SA-02'),
  () => {
    const built = subagentMetadata(outcome, more);
    expect(readSubagentMetadata({ ...built })).toEqual(built);
    expect(built.subagent_result_brief).toHaveLength(500);
    expect(built.subagent_result_sha256).toMatch(/^[0-9a-f]{64}$/);
    expect(() => subagentMetadata({ ...outcome, status: 'exploded' as never }, more)).toThrow(/no status/);
    expect(() => subagentMetadata({ ...outcome, stopReason: 'bored' as never }, more)).toThrow(/no stop reason/);
    expect(() => readSubagentMetadata({ subagent_status: 'exploded' })).toThrow(/subagent_status: "exploded"/);
    expect(() => readSubagentMetadata({ subagent_status: 'failed', subagent_stop_reason: 'bored' })).toThrow(/bored/);
    expect(readSubagentMetadata({ other: 1 })).toBeNull();
  },
);

test('older logs: out of turns reads as turn_capped', verifies('SA-19'), () => {
  expect(readSubagentMetadata({ subagent_status: 'max_turns_reached', subagent_result_brief: 'half' })).toMatchObject({
    subagent_status: 'completed',
    subagent_stop_reason: 'turn_capped',
  });
  expect(readSubagentMetadata({ subagent_status: 'max turns reached' })).toMatchObject({
    subagent_status: 'failed',
    subagent_stop_reason: 'turn_capped',
  });
});
