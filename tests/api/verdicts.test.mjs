// The shipped model gives the verdicts of its results.json through every way of asking.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { Server, confusion, mapLimit, models, review, testSplit } from './server.mjs';

const EXPECTED = [57, 5, 0, 444];
const LEVELS = ['1', '2', '3', '4', '5'];

describe('the shipped model on its test split', () => {
  let server;
  const samples = testSplit();
  before(async () => { server = await Server.start({ args: ['--profile', join(models, 'scam-guard', 'profile.json'), '--queue', '64'] }); });
  after(() => server.stop());

  test('through classify', async () => {
    const verdicts = [];
    for (let at = 0; at < samples.length; at += 100) {
      const answer = await server.post('/v1/classify', { profile: 'scam-guard', input: samples.slice(at, at + 100).map((sample) => sample.text) });
      assert.equal(answer.status, 200, answer.text);
      for (const item of answer.json.data) {
        assert.equal(item.num_classes, 5);
        assert.ok(Math.abs(item.probs.reduce((sum, p) => sum + p, 0) - 1) < 1e-6);
        const sorted = [...item.probs].sort((a, b) => b - a);
        assert.ok(Math.abs(item.margin - (sorted[0] - sorted[1])) < 1e-6);
        verdicts.push(item.label);
      }
    }
    assert.deepEqual(confusion(samples, verdicts), EXPECTED);
  });

  test('through classify with labels and instructions in the request', async () => {
    const answer = await server.post('/v1/classify', {
      labels: LEVELS, answer_prefix: 'RISK_LEVEL: ', instructions: review('')[0].content, input: samples.slice(0, 100).map((sample) => sample.text),
    });
    assert.equal(answer.status, 200, answer.text);
    const named = await server.post('/v1/classify', { profile: 'scam-guard', input: samples.slice(0, 100).map((sample) => sample.text) });
    assert.deepEqual(answer.json.data.map((item) => item.label), named.json.data.map((item) => item.label));
  });

  test('through chat with a choice', async () => {
    const choice = LEVELS.map((level) => `RISK_LEVEL: ${level}`);
    const verdicts = await mapLimit(samples, 8, async (sample) => {
      const answer = await server.chat({ messages: review(sample.text), structured_outputs: { choice }, temperature: 0 });
      assert.equal(answer.status, 200, answer.text);
      return answer.json.choices[0].message.content.at(-1);
    });
    assert.deepEqual(confusion(samples, verdicts), EXPECTED);
  });

  test('through chat with a grammar', async () => {
    const verdicts = await mapLimit(samples, 8, async (sample) => {
      const answer = await server.chat({
        messages: review(sample.text), grammar: 'root ::= "RISK_LEVEL: " [1-5]', temperature: 0, chat_template_kwargs: { enable_thinking: false },
      });
      assert.equal(answer.status, 200, answer.text);
      return answer.json.choices[0].message.content.at(-1);
    });
    assert.deepEqual(confusion(samples, verdicts), EXPECTED);
  });

  test('in the tokens of the reference prompts', async () => {
    const references = JSON.parse(readFileSync(join(models, 'scam-guard', 'reference_logits.json')));
    for (const reference of references) {
      const answer = await server.post('/tokenize', { content: reference.prompt, parse_special: true, add_special: false });
      assert.deepEqual(answer.json.tokens, reference.token_ids);
    }
  });

  // C-9: the second request of a kind reads only what is new, and the metric says so.
  test('with the fixed part read once', async () => {
    const reused = await server.metric('pocketfleet_tokens_reused_total');
    const answer = await server.post('/v1/classify', { profile: 'scam-guard', input: 'see you at eight' });
    assert.ok(answer.json.usage.prompt_tokens_details.cached_tokens >= 25, JSON.stringify(answer.json.usage));
    assert.ok(await server.metric('pocketfleet_tokens_reused_total') > reused);
  });

  // C-74: a label that another one contains is its own verdict.
  test('with labels that contain one another', async () => {
    const answer = await server.post('/v1/classify', { labels: ['FRAUD', 'NOT_FRAUD', 'FRAUD_RING'], instructions: 'Judge.', input: ['win a prize', 'hello'] });
    for (const item of answer.json.data) {
      assert.ok(Math.abs(item.probs.reduce((sum, p) => sum + p, 0) - 1) < 1e-6);
      assert.equal(item.labels[item.probs.indexOf(Math.max(...item.probs))], item.label);
    }
  });

  // C-75, C-76, C-77: no text is parsed, so no label can be misread.
  test('with labels that are numbers or hold each other\'s digits', async () => {
    const labels = ['RISK_LEVEL: 1', 'RISK_LEVEL: 10', 'RISK_LEVEL: 85', '2.0', '0'];
    const answer = await server.post('/v1/classify', { labels, instructions: 'Say "RISK_LEVEL: 85" never. 5 reasons, score of 9.', input: ['', 'not SUCCESS. Final: NOT SUCCESS'] });
    assert.equal(answer.status, 200, answer.text);
    for (const item of answer.json.data) assert.ok(labels.includes(item.label));
  });

  test('of 512 labels, the same through classify and through a choice', async () => {
    const labels = Array.from({ length: 512 }, (_, index) => String(index + 1));
    const text = 'I have said it 37 times: the number is';
    const classified = await server.post('/v1/classify', { labels, instructions: 'Which number?', input: text });
    assert.equal(classified.status, 200, classified.text);
    assert.equal(classified.json.data[0].num_classes, 512);
    const chosen = await server.chat({
      messages: [{ role: 'system', content: 'Which number?' }, { role: 'user', content: text }],
      structured_outputs: { choice: labels }, chat_template_kwargs: { enable_thinking: false },
    });
    assert.equal(chosen.json.choices[0].message.content, classified.json.data[0].label);
  });
});
