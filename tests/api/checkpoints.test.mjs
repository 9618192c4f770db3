// What a server has read is still there after it was stopped, killed or damaged; answers are those of a cold run to the last bit.
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, readdirSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { Server, profile, testSplit } from './server.mjs';

const folder = mkdtempSync(join(tmpdir(), 'pocketfleet-checkpoints-'));
const inputs = testSplit().slice(0, 12).map((sample) => sample.text);
const files = () => readdirSync(folder).filter((name) => name.endsWith('.ckpt')).map((name) => join(folder, name));

async function run(more = []) {
  const server = await Server.start({ args: ['--profile', profile, '--checkpoint-dir', folder, ...more] });
  try {
    const answer = await server.post('/v1/classify', { profile: 'scam-guard', input: inputs });
    assert.equal(answer.status, 200, answer.text);
    const metric = (name) => server.metric(`pocketfleet_checkpoint_files_${name}_total`);
    return {
      data: answer.json.data,
      written: await metric('written'),
      restored: await metric('restored'),
      refused: await metric('refused'),
      held: await server.metric('pocketfleet_checkpoint_files'),
      made: await server.metric('pocketfleet_checkpoints_made_total'),
    };
  } finally {
    await server.stop();
  }
}

describe('checkpoints that outlive the server', () => {
  let cold;
  after(() => rmSync(folder, { recursive: true, force: true }));

  test('the first run reads the fixed part of the profile and leaves it on the disk', async () => {
    cold = await run();
    assert.equal(cold.restored, 0);
    assert.equal(cold.made, 1);
    assert.equal(files().length, 1);
  });

  test('C-6: the next one takes it from there, reads it not again, and answers the same', async () => {
    const warm = await run();
    assert.equal(warm.restored, 1);
    assert.equal(warm.made, 0);
    assert.equal(warm.refused, 0);
    assert.deepEqual(warm.data, cold.data);
  });

  test('a server that was killed leaves what it had written', async () => {
    const server = await Server.start({ args: ['--profile', profile, '--checkpoint-dir', folder] });
    server.process.kill('SIGKILL');
    await server.exit;
    assert.equal((await run()).restored, 1);
  });

  for (const [what, damage] of [
    ['one flipped bit in the state', (file, bytes) => { bytes[bytes.length - 100] ^= 4; writeFileSync(file, bytes); }],
    ['one flipped bit in the header', (file, bytes) => { bytes[40] ^= 1; writeFileSync(file, bytes); }],
    ['one flipped bit in the tokens', (file, bytes) => { bytes[115] ^= 1; writeFileSync(file, bytes); }],
    ['a file that was cut off', (file, bytes) => truncateSync(file, bytes.length - 1)],
    ['an empty file', (file) => truncateSync(file, 0)],
  ]) {
    test(`${what}: the file is deleted and counted, its prefix is read anew, and the answers are the same`, async () => {
      const [file] = files();
      damage(file, readFileSync(file));
      const run_ = await run();
      assert.equal(run_.refused, 1);
      assert.equal(run_.restored, 0);
      assert.equal(run_.made, 1);
      assert.deepEqual(run_.data, cold.data);
      assert.equal(files().length, 1, 'a good one takes its place');
    });
  }

  test('a file of other settings is deleted and counted', async () => {
    const other = await run(['--kv-type', 'q8_0']);
    assert.equal(other.refused, 1);
    assert.equal(other.restored, 0);
    assert.equal((await run()).refused, 1);
  });

  test('without disk nothing is kept there', async () => {
    for (const file of files()) rmSync(file);
    const none = await run(['--checkpoint-disk', '0']);
    assert.equal(none.written, 0);
    assert.equal(files().length, 0);
    assert.deepEqual(none.data, cold.data);
  });

  test('a second server on the same folder goes on without it and says so', async () => {
    const first = await Server.start({ args: ['--profile', profile, '--checkpoint-dir', folder] });
    const second = await Server.start({ args: ['--profile', profile, '--checkpoint-dir', folder] });
    try {
      assert.match(second.log, /checkpoints_not_on_disk/);
      assert.match(second.log, /used by another server/);
      const answer = await second.post('/v1/classify', { profile: 'scam-guard', input: inputs });
      assert.deepEqual(answer.json.data, cold.data);
    } finally {
      await second.stop();
      await first.stop();
    }
  });
});
