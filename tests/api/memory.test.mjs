// Memory is taken when the model is loaded and not when the first caller comes; it stays where it is.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import { Server, binary, growth_kb, guard, mapLimit } from './server.mjs';

const status_kb = (server, key) => Number(new RegExp(`${key}:\\s+(\\d+)`).exec(readFileSync(`/proc/${server.process.pid}/status`, 'utf8'))[1]);
const words = (seed, count) => Array.from({ length: count }, (_, index) => ((index * 7919 + seed * 104729) % 99991).toString(36)).join(' ');
const off = { temperature: 0, max_completion_tokens: 4, chat_template_kwargs: { enable_thinking: false } };

describe('memory', () => {
  test('C-13: the first long prompt takes no more than was taken at load', async () => {
    const server = await Server.start({ args: ['--ctx', '4096', '--checkpoint-ram', '0'] });
    try {
      const loaded = status_kb(server, 'VmRSS');
      const answer = await server.chat({ messages: [{ role: 'user', content: words(1, 1_000) }], ...off });
      assert.equal(answer.status, 200, answer.text);
      assert.ok(answer.json.usage.prompt_tokens > 2_500);
      const after = status_kb(server, 'VmHWM');
      assert.ok(after - loaded < growth_kb / 2, `${loaded} kB after loading, ${after} kB at most`);
    } finally {
      await server.stop();
    }
  });

  test('C-12: what is computed before the load is what is resident after it', async (t) => {
    if (process.env.POCKETFLEET_SANITIZED === '1') return t.skip('sanitizers take memory of their own');
    for (const settings of [['--ctx', '8192', '--slots', '1'], ['--ctx', '2048', '--slots', '4']]) {
      const { memory } = JSON.parse(execFileSync(binary, ['model', 'inspect', guard, '--json', '--checkpoint-ram', '0', ...settings]));
      const server = await Server.start({ args: ['--checkpoint-ram', '0', ...settings] });
      try {
        const resident = status_kb(server, 'VmRSS') * 1024;
        // Of so small a model half is the program, whose libraries differ from system to system; and of a larger cache the mask of
        // attention would be a third, whose pages come as the cache fills.
        assert.ok(Math.abs(memory.total_bytes / resident - 1) < 0.08, `${settings.join(' ')}: ${memory.total_bytes} computed, ${resident} resident`);
      } finally {
        await server.stop();
      }
    }
  });

  // A control group would need rights that a test does not have; what the process may map stands for it.
  test('C-11: 200 requests under a limit of 512 MiB above the model end well', async (t) => {
    if (process.env.POCKETFLEET_SANITIZED === '1') return t.skip('sanitizers map all of the address space');
    if (spawnSync('prlimit', ['--version']).status !== 0) return t.skip('needs prlimit');
    const server = await Server.start({ args: ['--ctx', '2048', '--checkpoint-ram', '64'] });
    try {
      const limit_bytes = status_kb(server, 'VmSize') * 1024 + 512 * 2 ** 20;
      assert.equal(spawnSync('prlimit', ['--pid', String(server.process.pid), `--as=${limit_bytes}`]).status, 0);
      const statuses = new Set();
      await mapLimit(Array.from({ length: 200 }, (_, index) => index), 8, async (index) => {
        const answer = await server.chat({ messages: [{ role: 'user', content: words(index, 20 + (index % 10) * 40) }], ...off });
        statuses.add(answer.status);
      });
      assert.deepEqual([...statuses], [200]);
      assert.equal(server.process.exitCode, null);
    } finally {
      await server.stop();
    }
  });
});
