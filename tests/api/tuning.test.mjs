// `pocketfleet tune` finds settings, keeps them and `serve` takes them; `pocketfleet estimate` makes phones and money of speeds.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, describe, test } from 'node:test';
import { binary, guard } from './server.mjs';

describe('tune', () => {
  const cache = mkdtempSync(join(tmpdir(), 'pocketfleet-tune-'));
  const env = { ...process.env, XDG_CACHE_HOME: cache };
  after(() => rmSync(cache, { recursive: true, force: true }));
  const tune = (...args) => {
    const result = spawnSync(binary, ['tune', guard, '--work', 'guard', '--soak', '0', '--quiet', '--json', ...args], { env });
    assert.equal(result.status, 0, result.stderr.toString());
    return JSON.parse(result.stdout.toString());
  };

  test('what was found is kept, and found again without a search', () => {
    const found = tune();
    assert.equal(found.reused, false);
    assert.ok(found.tried > 5, `${found.tried} tried`);
    assert.ok(found.sustained.request_ms > 0);
    assert.equal(readdirSync(join(cache, 'pocketfleet', 'tuned')).length, 1);
    // A busy moment may look like a machine that became slower.
    const again = [1, 2, 3].map(() => tune()).find((result) => result.reused);
    assert.ok(again, 'it was never found again');
    assert.equal(again.tried, 0);
    assert.equal(tune('--again').reused, false);
  });

  test('serve takes it, but for what is said on its command line', async () => {
    const { settings } = tune();
    const serve = async (...args) => {
      const child = spawn(binary, ['serve', guard, '--port', '0', '--checkpoint-disk', '0', ...args], { env, stdio: ['ignore', 'ignore', 'pipe'] });
      const lines = [];
      for await (const line of createInterface({ input: child.stderr })) {
        lines.push(line);
        if (line.includes('event=model_ready')) break;
      }
      child.kill('SIGTERM');
      await once(child, 'exit');
      return lines.join('\n');
    };
    const log = await serve();
    assert.match(log, /event=tuned .*work=guard/);
    assert.match(log, new RegExp(`slots=${Math.max(settings.streams, 2)} `));
    assert.match(await serve('--slots', '3'), /slots=3 /);
    assert.doesNotMatch(await serve('--no-tuned'), /event=tuned/);
  });

  test('a kind of work or a file that is not there is a sentence and exit code 2', () => {
    assert.equal(spawnSync(binary, ['tune', guard, '--work', 'dance'], { env }).status, 2);
    const missing = spawnSync(binary, ['tune', join(cache, 'none.gguf')], { env });
    assert.equal(missing.status, 2);
    assert.match(missing.stderr.toString(), /none\.gguf/);
  });
});

describe('estimate', () => {
  const estimate = (...args) => spawnSync(binary, ['estimate', ...args]);
  const lines = (result) => {
    assert.equal(result.status, 0, result.stderr.toString());
    return result.stdout.toString().trim().split('\n').map((line) => JSON.parse(line));
  };

  test('published figures are marked as such', () => {
    const all = lines(estimate('--prompts', '1000', '--model', '4b', '--deadline', '8h', '--json'));
    assert.ok(all.length >= 5);
    for (const line of all) assert.match(line.basis, /^published/);
    const phone = all.find((line) => line.device === 'sd8-elite-16gb');
    assert.equal(phone.phones, Math.ceil(1000 / Math.floor(8 * 3_600_000 / phone.verdict_ms)));
    assert.match(estimate('--prompts', '1000', '--deadline', '8h').stdout.toString(), /published/);
  });

  test('own figures are counted as they are', () => {
    const [mine] = lines(estimate('--prompts', '3600', '--length', '1000', '--write', '0', '--read-speed', '1000', '--phones', '1', '--price', '2.4', '--json'));
    assert.equal(mine.duration_ms, 3_600_000);
    assert.equal(mine.cost_planck, 100_000_000_000);
    assert.equal(mine.verdicts_per_acu, 36_000);
    assert.match(mine.basis, /^measured here/);
  });

  test('what cannot be is named', () => {
    for (const [args, sentence] of [
      [['--prompts', '10'], /--deadline/],
      [['--prompts', '10', '--deadline', '8h', '--shared', '7000'], /fewer than all can be shared/],
      [['--prompts', '10', '--deadline', '8h', '--price', '1,5'], /not an amount in ACU/],
      [['--prompts', '10', '--deadline', '8h', '--device', 'abacus'], /sd8-elite-16gb/],
      [['--prompts', '10', '--deadline', '8h', '--model', '/nowhere.gguf'], /nowhere/],
    ]) {
      const result = estimate(...args);
      assert.equal(result.status, 2, args.join(' '));
      assert.match(result.stderr.toString(), sentence);
    }
    const late = estimate('--prompts', '10', '--model', '9b', '--deadline', '1s');
    assert.equal(late.status, 1);
    assert.match(late.stdout.toString(), /more than the deadline/);
  });
});

test('a list of cores that is none is refused before anything is loaded', () => {
  const result = spawnSync(binary, ['serve', guard, '--cpus', '0-x', '--port', '0']);
  assert.equal(result.status, 2);
  assert.match(result.stderr.toString(), /--cpus is "0-x"/);
});
