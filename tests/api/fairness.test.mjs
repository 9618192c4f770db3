// Who waits for whom: streams beside long prompts, short work beside long, long work that must not starve.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import OpenAI from 'openai';
import { Server, mapLimit } from './server.mjs';

const words = (seed, count) => Array.from({ length: count }, (_, index) => ((index * 7919 + seed * 104729) % 99991).toString(36)).join(' ');
const off = { temperature: 0, chat_template_kwargs: { enable_thinking: false } };
const long = (seed) => [{ role: 'user', content: words(seed, 2_200) }];
const labels = ['yes', 'no'];

describe('fairness', () => {
  let server;
  let client;
  before(async () => {
    server = await Server.start({ args: ['--ctx', '16384', '--slots', '2'] });
    client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
  });
  after(() => server.stop());

  test('C-41: a stream goes on while prompts of 7,000 tokens are read', async () => {
    const stream = await client.chat.completions.create({ model: 'scam-guard-q4_0', messages: [{ role: 'user', content: 'Write on' }], stream: true, max_completion_tokens: 9_000, ignore_eos: true, ...off });
    const gaps_ms = [];
    let last;
    let reading = 0;
    let beside;
    for await (const chunk of stream) {
      if (!chunk.choices[0]?.delta.content) continue;
      const now = performance.now();
      if (last !== undefined && reading > 0) gaps_ms.push(now - last);
      last = now;
      if (beside === undefined) {
        beside = mapLimit([1, 2, 3], 1, async (seed) => {
          ++reading;
          const answer = await server.chat({ messages: long(seed), ...off, max_completion_tokens: 1 });
          --reading;
          assert.equal(answer.status, 200, answer.text);
          return answer.json.usage.prompt_tokens;
        });
        beside.then(() => stream.controller.abort());
      }
    }
    const read = await beside;
    for (const tokens of read) assert.ok(tokens > 6_500, `${tokens} tokens`);
    assert.ok(gaps_ms.length >= 3, 'the stream ended before the prompts were read');
    assert.ok(Math.max(...gaps_ms) < 2_000, `it stood still for ${Math.max(...gaps_ms)} ms`);
  });

  test('C-42: short verdicts beside prompts of 7,000 tokens come before them', async () => {
    await server.idle();
    const ended = [];
    const prompts = [11, 12].map((seed) => server.chat({ messages: long(seed), ...off, max_completion_tokens: 1 }).then(() => ended.push('long')));
    await server.waitFor(async () => (await server.health()).running >= 1);
    const short = await server.post('/v1/classify', { labels, instructions: 'Is it so?', input: 'well' });
    ended.push('short');
    assert.equal(short.status, 200);
    await Promise.all(prompts);
    assert.equal(ended[0], 'short', ended.join());
  });

  test('a long prompt is answered also while short ones never cease', async () => {
    await server.idle();
    let answered = false;
    const prompt = server.chat({ messages: long(21), ...off, max_completion_tokens: 1 }).then((answer) => { answered = true; return answer; });
    let shorts = 0;
    const deadline = Date.now() + 120_000;
    await Promise.all(Array.from({ length: 6 }, async (_, worker) => {
      while (!answered && Date.now() < deadline) {
        const answer = await server.post('/v1/classify', { labels, instructions: words(worker, 40), input: words(++shorts, 20) });
        assert.equal(answer.status, 200);
      }
    }));
    assert.equal((await prompt).status, 200);
    assert.ok(Date.now() < deadline, 'the long prompt starved');
    assert.ok(shorts > 0);
  });
});
