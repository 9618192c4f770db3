// The Responses API as the official openai client uses it, against the real server.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import OpenAI from 'openai';
import { zodTextFormat } from 'openai/helpers/zod';
import { z } from 'zod';
import { Server, systemPrompt } from './server.mjs';

const SCAM = 'WINNER! Claim your 900 pound prize now, call 09061701461. Code KL341. Valid 12 hours only';
const plain = { instructions: systemPrompt, reasoning: { effort: 'none' }, temperature: 0 };
const tool = {
  type: 'function', name: 'report', description: 'Report a message', strict: true,
  parameters: { type: 'object', properties: { level: { type: 'integer' } }, required: ['level'], additionalProperties: false },
};

describe('the official openai client with responses', () => {
  let server;
  let client;
  before(async () => {
    server = await Server.start();
    client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
  });
  after(() => server.stop());

  test('gets the text of an answer', async () => {
    const answer = await client.responses.create({ input: SCAM, ...plain });
    assert.equal(answer.output_text, 'RISK_LEVEL: 5');
    assert.equal(answer.status, 'completed');
    assert.equal(answer.usage.total_tokens, answer.usage.input_tokens + answer.usage.output_tokens);
  });

  test('puts a stream together to the same answer', async () => {
    const whole = await client.responses.create({ input: SCAM, ...plain });
    const stream = client.responses.stream({ input: SCAM, ...plain });
    let text = '';
    stream.on('response.output_text.delta', (event) => { text += event.delta; });
    const last = await stream.finalResponse();
    assert.equal(text, whole.output_text);
    assert.equal(last.output_text, whole.output_text);
    assert.deepEqual(last.usage.output_tokens, whole.usage.output_tokens);
  });

  test('reads the events one by one', async () => {
    const types = [];
    for await (const event of await client.responses.create({ input: SCAM, stream: true, ...plain })) types.push(event.type);
    assert.equal(types[0], 'response.created');
    assert.equal(types.at(-1), 'response.completed');
    assert.ok(types.includes('response.output_text.delta'));
  });

  test('goes on from the items of an earlier answer', async () => {
    const first = await client.responses.create({ input: [{ role: 'user', content: SCAM }], ...plain });
    const answer = await client.responses.create({
      input: [{ role: 'user', content: SCAM }, ...first.output, { role: 'user', content: 'Are we still on for lunch?' }], ...plain,
    });
    assert.match(answer.output_text, /^RISK_LEVEL: [1-5]$/);
    assert.ok(answer.usage.input_tokens > first.usage.input_tokens);
  });

  test('parses what fits its schema', async () => {
    const Verdict = z.object({ level: z.number().int() });
    const answer = await client.responses.parse({
      input: SCAM, ...plain, max_output_tokens: 60, text: { format: zodTextFormat(Verdict, 'verdict') },
    });
    assert.equal(typeof answer.output_parsed.level, 'number');
  });

  test('gets a call whose arguments are valid, whole and streamed', async () => {
    const asked = { input: SCAM, ...plain, tools: [tool], tool_choice: 'required', parallel_tool_calls: false, max_output_tokens: 120 };
    const answer = await client.responses.create(asked);
    const call = answer.output.find((item) => item.type === 'function_call');
    assert.equal(call.name, 'report');
    assert.equal(typeof JSON.parse(call.arguments).level, 'number');
    const streamed = await client.responses.stream(asked).finalResponse();
    assert.equal(streamed.output.find((item) => item.type === 'function_call').arguments, call.arguments);
    const after = await client.responses.create({
      ...plain, tools: [tool],
      input: [{ role: 'user', content: SCAM }, call, { type: 'function_call_output', call_id: call.call_id, output: 'noted' }],
    });
    assert.equal(after.status, 'completed');
  });

  test('gets logprobs that spell the text', async () => {
    const answer = await client.responses.create({ input: SCAM, ...plain, include: ['message.output_text.logprobs'], top_logprobs: 2 });
    const part = answer.output[0].content[0];
    assert.equal(part.logprobs.map((item) => item.token).join(''), part.text);
    assert.equal(part.logprobs[0].top_logprobs.length, 2);
  });

  test('aborts a stream, and the server stops working on it', async () => {
    const stream = await client.responses.create({ input: 'Write on', stream: true, ...plain, max_output_tokens: 100_000, ignore_eos: true });
    for await (const event of stream) if (event.type === 'response.output_text.delta') break;
    stream.controller.abort();
    await server.idle();
    assert.ok(await server.metric('pocketfleet_tokens_written_total') < 5_000);
  });

  test('is told which parameter keeps state', async () => {
    await assert.rejects(client.responses.create({ input: SCAM, previous_response_id: 'resp_1' }),
      (error) => error instanceof OpenAI.BadRequestError && error.param === 'previous_response_id');
  });
});
