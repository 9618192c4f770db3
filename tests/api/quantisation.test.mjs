// C-63: what a quantisation does to verdicts is told in labels, margins and calibration, not in perplexity.
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { Server, guard, shared, testSplit } from './server.mjs';

const full = join(shared, 'models', 'scam-guard', 'scam-guard-f16.gguf');

test('C-63: the shipped q4_0 agrees with f16 in labels, margins and scores', async (t) => {
  if (!existsSync(full)) return t.skip(`needs ${full}`);
  const samples = testSplit();
  const verdicts = async (model) => {
    const server = await Server.start({ model });
    try {
      const data = [];
      for (let first = 0; first < samples.length; first += 128) {
        const answer = await server.post('/v1/classify', { profile: 'scam-guard', input: samples.slice(first, first + 128).map((sample) => sample.text) });
        assert.equal(answer.status, 200, answer.text);
        data.push(...answer.json.data);
      }
      return data;
    } finally {
      await server.stop();
    }
  };
  const before = await verdicts(full);
  const after = await verdicts(guard);
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const agreement = mean(samples.map((_, index) => Number(before[index].flagged === after[index].flagged)));
  const margin_shift = mean(samples.map((_, index) => Math.abs(before[index].margin - after[index].margin)));
  const brier = (data) => mean(data.map((item, index) => (item.score - Number(samples[index].label === 'spam')) ** 2));
  t.diagnostic(`agreement ${agreement.toFixed(4)}, mean shift of the margin ${margin_shift.toFixed(4)}, Brier ${brier(before).toFixed(4)} to ${brier(after).toFixed(4)}`);
  assert.ok(agreement >= 0.99, `${agreement}`);
  assert.ok(margin_shift < 0.1, `${margin_shift}`);
  assert.ok(brier(after) - brier(before) < 0.01);
});
