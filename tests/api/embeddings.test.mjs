// Embeddings through the official openai client, which asks for base64 unless told otherwise.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import OpenAI from 'openai';
import { Server } from './server.mjs';

const dot = (a, b) => a.reduce((sum, value, index) => sum + value * b[index], 0);

describe('the official openai client with embeddings', () => {
  let server;
  let client;
  before(async () => {
    server = await Server.start({ args: ['--pooling', 'mean'] });
    client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
  });
  after(() => server.stop());

  test('gets the same numbers in both encodings', async () => {
    const input = ['see you at lunch', 'WINNER! Claim your prize, call 09061701461'];
    const packed = await client.embeddings.create({ model: 'scam-guard-q4_0', input });
    const plain = await client.embeddings.create({ model: 'scam-guard-q4_0', input, encoding_format: 'float' });
    assert.equal(packed.data.length, 2);
    packed.data.forEach((item, index) => {
      assert.equal(item.index, index);
      assert.ok(Math.abs(dot(item.embedding, item.embedding) - 1) < 1e-4);
      assert.ok(dot(item.embedding, plain.data[index].embedding) > 0.9999);
    });
    assert.ok(dot(packed.data[0].embedding, packed.data[1].embedding) < 0.999);
    assert.equal(packed.usage.prompt_tokens, plain.usage.total_tokens);
  });

  test('is told of an overlong text by its place', async () => {
    await assert.rejects(client.embeddings.create({ model: 'scam-guard-q4_0', input: ['a', 'word '.repeat(20_000)] }),
      (error) => error instanceof OpenAI.BadRequestError && error.code === 'context_length_exceeded' && error.param === 'input[1]');
  });

  test('is told that a model does not pool', async () => {
    const other = await Server.start();
    try {
      const answer = await other.post('/v1/embeddings', { input: 'a' });
      assert.equal(answer.status, 400);
      assert.match(answer.json.error.message, /--pooling/);
    } finally {
      await other.stop();
    }
  });
});
