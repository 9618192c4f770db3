// A client whose patience ends sends its request again. The work of the first try is not lost, and what cannot be in time is refused.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import OpenAI from 'openai';
import { Server } from './server.mjs';

describe('tries of one request', () => {
  let server;
  before(async () => { server = await Server.start({ args: ['--ctx', '8192', '--slots', '2'] }); });
  after(() => server.stop());

  const client = (options) => new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', ...options });
  // Long enough to outlast the first try on any machine: what is written decides the time.
  const long = (seconds) => ({
    model: 'scam-guard-q4_0', messages: [{ role: 'user', content: `go on ${seconds}` }], temperature: 0,
    ignore_eos: true, max_completion_tokens: seconds, chat_template_kwargs: { enable_thinking: false },
  });

  async function tokensFor(seconds) {
    const begin = performance.now();
    await client({ maxRetries: 0, timeout: 60_000 }).chat.completions.create(long(200));
    return Math.min(8000, Math.ceil((200 * seconds * 1000) / (performance.now() - begin)));
  }

  test('the second try gets the answer of the first, which is read once', async () => {
    const wanted = await tokensFor(2.5);
    await server.idle();
    const read = await server.metric('pocketfleet_tokens_read_total');
    const written = await server.metric('pocketfleet_tokens_written_total');
    // It gives up after one second and tries again until the answer is there.
    const answer = await client({ maxRetries: 20, timeout: 1_000 }).chat.completions.create(long(wanted));
    assert.equal(answer.usage.completion_tokens, wanted);
    await server.idle();
    assert.equal(await server.metric('pocketfleet_tokens_written_total') - written, wanted, 'nothing was written twice');
    assert.ok(await server.metric('pocketfleet_tokens_read_total') - read <= answer.usage.prompt_tokens);
    assert.match(server.log, /event=attached/);
  });

  test('a caller who takes his request back is not waited for', async () => {
    const controller = new AbortController();
    const call = client({ maxRetries: 0, timeout: 60_000 }).chat.completions.create(long(7000), { signal: controller.signal });
    await server.waitFor(async () => (await server.health()).running === 1);
    controller.abort();
    await assert.rejects(call, OpenAI.APIUserAbortError);
    await server.idle(2_000);
    assert.ok(await server.metric('pocketfleet_cancelled_total') >= 1);
  });

  test('two requests that are alike and meant both are answered both', async () => {
    const answers = await Promise.all([0, 1].map(() => client({ maxRetries: 0 }).chat.completions.create(long(20))));
    assert.equal(answers[0].choices[0].message.content, answers[1].choices[0].message.content);
    assert.notEqual(answers[0].id, answers[1].id);
  });

  test('what would come too late is a RateLimitError at once that says when, or not to try again', async () => {
    const busy = Array.from({ length: 24 }, (_, index) => client({ maxRetries: 0, timeout: 120_000 }).chat.completions.create({
      ...long(1), messages: [{ role: 'user', content: `${index} ${'many words of text to read '.repeat(400)}` }],
    }));
    // Once a first batch has shown how fast this machine reads.
    const read = await server.metric('pocketfleet_tokens_read_total');
    await server.waitFor(async () => (await server.health()).queued >= 18 && await server.metric('pocketfleet_tokens_read_total') > read + 1_000);
    const begin = performance.now();
    const late = client({ maxRetries: 0 }).chat.completions.create({
      ...long(1), messages: [{ role: 'user', content: `last ${'many words of text to read '.repeat(400)}` }],
    }, { timeout: 1_000 });
    await assert.rejects(late, (error) => {
      assert.ok(error instanceof OpenAI.RateLimitError, String(error));
      assert.equal(error.code, 'too_late');
      const retry = error.headers.get('retry-after');
      if (retry) assert.ok(Number(retry) >= 1 && Number(retry) <= 120);
      else assert.equal(error.headers.get('x-should-retry'), 'false');
      return true;
    });
    assert.ok(performance.now() - begin < 900, 'it was told before its patience ended');
    await Promise.all(busy);
  });
});
