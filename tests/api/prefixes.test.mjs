// Prefixes that requests share are read once, wherever they end and whoever asks.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { Server } from './server.mjs';

const words = (seed, count) => Array.from({ length: count }, (_, index) => ((index * 7919 + seed * 104729) % 99991).toString(36)).join(' ');
const rules = (seed) => `Rules ${seed}: ${words(seed, 260)}`;
const off = { temperature: 0, max_completion_tokens: 2, ignore_eos: true, chat_template_kwargs: { enable_thinking: false } };

describe('prompts that begin alike', () => {
  let server;
  before(async () => { server = await Server.start({ args: ['--ctx', '4096', '--slots', '2', '--checkpoint-ram', '64'] }); });
  after(() => server.stop());

  async function ask(messages, more = {}) {
    const answer = await server.chat({ messages, ...off, ...more });
    assert.equal(answer.status, 200, answer.text);
    const { prompt_tokens, prompt_tokens_details } = answer.json.usage;
    return { prompt: prompt_tokens, cached: prompt_tokens_details.cached_tokens, content: answer.json.choices[0].message.content };
  }
  const system = (seed, text) => [{ role: 'system', content: rules(seed) }, { role: 'user', content: text }];
  const together = (seed, text) => [{ role: 'user', content: `${rules(seed)}\n\n${text}` }];
  const length = async (text) => (await server.post('/tokenize', { content: text })).json.tokens.length;

  test('C-1, C-8: the second prompt under one system message reads its own part only', async () => {
    const fixed = await length(rules(1));
    assert.equal((await ask(system(1, 'first text'))).cached, 0);
    const second = await ask(system(1, 'another text'));
    assert.ok(second.cached >= fixed - 8, `${second.cached} of ${fixed}`);
    assert.ok(second.prompt - second.cached < 60);
  });

  test('C-1: rules and text in one message: the third prompt goes on from where the second left the first', async () => {
    const fixed = await length(rules(2));
    assert.equal((await ask(together(2, 'one'))).cached, 0);
    await ask(together(2, 'two'));
    const third = await ask(together(2, 'three'));
    assert.ok(third.cached >= fixed - 8, `${third.cached} of ${fixed}`);
  });

  test('C-3: a prompt that comes again after another one is not read anew', async () => {
    const fixed = await length(rules(3));
    await ask(system(3, `A ${words(31, 200)}`));
    await ask(system(3, `B ${words(32, 40)}`));
    const again = await ask(system(3, `A ${words(31, 200)}`));
    assert.ok(again.cached >= fixed - 8);
  });

  test('C-5: what one slot has read is there for the other while the first one still writes', async () => {
    const fixed = await length(rules(4));
    const long = server.chat({ messages: system(4, 'write on'), ...off, max_completion_tokens: 1500 });
    await server.waitFor(async () => (await server.health()).running === 1 && await server.metric('pocketfleet_tokens_written_total') > 0);
    const beside = await ask(system(4, 'and this'));
    assert.ok(beside.cached >= fixed - 8, `${beside.cached} of ${fixed}`);
    assert.equal((await long).status, 200);
  });

  test('C-9: many verdicts that share nearly all of their prompt read the shared part once', async () => {
    const input = Array.from({ length: 100 }, (_, index) => `n${index}`);
    const before = await server.metric('pocketfleet_tokens_read_total');
    const answer = await server.post('/v1/classify', { labels: ['yes', 'no'], instructions: rules(5), input });
    assert.equal(answer.status, 200, answer.text);
    await server.idle();
    const fixed = await length(rules(5));
    const read = await server.metric('pocketfleet_tokens_read_total') - before;
    assert.ok(read < fixed + 100 * 30, `${read} tokens were read, of which ${fixed} are shared`);
  });

  test('C-10: checkpoints of fifty different prompts stay under their budget, and so does the process', async () => {
    const rss = () => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${server.process.pid}/status`, 'latin1'))[1]) / 1024;
    await ask(system(100, 'x'));
    const before = rss();
    for (let seed = 101; seed < 150; ++seed) {
      await ask(system(seed, 'x'));
      assert.ok(await server.metric('pocketfleet_checkpoint_bytes') <= 64 * 2 ** 20);
    }
    assert.ok(rss() - before < 100, `grew from ${before} to ${rss()} MiB`);
  });

  test('C-42: a short verdict beside a long prompt does not wait for all of it', async () => {
    assert.ok(await length(words(6, 800)) > 2_000);
    const long = server.chat({ messages: [{ role: 'user', content: words(6, 800) }], ...off });
    await server.waitFor(async () => (await server.health()).running === 1);
    const order = [];
    const short = server.post('/v1/classify', { labels: ['yes', 'no'], instructions: 'Is it so?', input: 'well' }).then((answer) => { order.push('short'); return answer; });
    await Promise.all([long.then(() => order.push('long')), short]);
    assert.equal((await short).status, 200);
    assert.deepEqual(order, ['short', 'long']);
  });

  test('C-45: the same body gives the same answer, read anew or gone on from a checkpoint', async () => {
    const answers = [];
    for (let round = 0; round < 3; ++round) answers.push(await ask(system(7, 'the same'), { max_completion_tokens: 24 }));
    assert.equal(answers[0].cached, 0);
    assert.ok(answers[1].cached > 0);
    assert.equal(answers[1].content, answers[0].content);
    assert.equal(answers[2].content, answers[0].content);
  });
});
