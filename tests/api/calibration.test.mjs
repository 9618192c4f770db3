// A profile's probabilities fitted to labelled messages, with the real program: `pocketfleet profile calibrate`.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { Server, binary, models, profile } from './server.mjs';

const examples = join(models, 'scam-guard', 'test.jsonl');
const text = 'WINNER! Claim your 900 pound prize now, call 09061701461';

describe('a calibration', () => {
  let server;
  let folder;
  const calibrate = (...more) => execFileSync(binary, [
    'profile', 'calibrate', profile, examples, '--url', server.url, '--expect-field', 'label', '--quiet', ...more,
  ], { encoding: 'utf8' });
  before(async () => {
    server = await Server.start();
    folder = mkdtempSync(join(tmpdir(), 'pocketfleet-calibration-'));
  });
  after(async () => {
    await server.stop();
    rmSync(folder, { recursive: true });
  });

  for (const method of ['platt', 'temperature']) {
    test(`by ${method} lowers the loss, says so, and is what the server then applies`, async () => {
      const output = join(folder, `${method}.json`);
      const said = JSON.parse(calibrate('--positive-values', 'spam', '--method', method, '--output', output, '--json'));
      assert.equal(said.examples, 506);
      assert.equal(said.method, method);
      assert.ok(said.after.negative_log_likelihood < said.before.negative_log_likelihood, JSON.stringify(said));
      assert.ok(said.before.expected_calibration_error >= 0 && said.before.expected_calibration_error < 1);
      const written = JSON.parse(readFileSync(output, 'utf8'));
      assert.deepEqual(written.calibration, said.calibration);
      assert.equal(written.instructions, JSON.parse(readFileSync(profile, 'utf8')).instructions);

      const fitted = await Server.start({ args: ['--profile', output] });
      try {
        const ask = async (more) => (await fitted.post('/v1/classify', { profile: 'scam-guard', input: text, ...more })).json;
        const calibrated = await ask({});
        const raw = await ask({ calibration: false });
        assert.equal(calibrated.calibrated, true);
        assert.equal(raw.calibrated, undefined);
        assert.notEqual(calibrated.data[0].score, raw.data[0].score);
        assert.equal(calibrated.data[0].label, '5');
        assert.ok(Math.abs(calibrated.data[0].probs.reduce((sum, p) => sum + p, 0) - 1) < 1e-9);
      } finally {
        await fitted.stop();
      }
    });
  }

  test('prints the errors before and after for people', () => {
    const said = calibrate('--positive-values', 'spam');
    assert.match(said, /platt on 506 examples/);
    assert.match(said, /before/);
    assert.match(said, /after, on examples left out/);
    assert.match(said, /"calibration": \{"platt"/);
  });

  test('without right answers that it can use says what to do', () => {
    const wrong = spawnSync(binary, ['profile', 'calibrate', profile, examples, '--url', server.url, '--expect-field', 'label', '--quiet'], { encoding: 'utf8' });
    assert.equal(wrong.status, 2);
    assert.match(wrong.stderr, /--positive-values/);
    assert.ok(!wrong.stderr.includes(text));
  });
});
