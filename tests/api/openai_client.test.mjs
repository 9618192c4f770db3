// The official openai client against the real server.
import assert from 'node:assert/strict';
import { writeFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import OpenAI from 'openai';
import { Server, review } from './server.mjs';

const off = { chat_template_kwargs: { enable_thinking: false } };
const SCAM = 'WINNER! Claim your 900 pound prize now, call 09061701461. Code KL341. Valid 12 hours only';

describe('the official openai client', () => {
  let server;
  let client;
  let model;
  before(async () => {
    server = await Server.start();
    client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
    model = (await client.models.list()).data[0].id;
  });
  after(() => server.stop());

  test('lists and retrieves the model', async () => {
    assert.equal((await client.models.retrieve(model)).id, model);
    await assert.rejects(client.models.retrieve('nobody'), OpenAI.NotFoundError);
  });

  test('chats', async () => {
    const answer = await client.chat.completions.create({ model, messages: review(SCAM), temperature: 0, ...off });
    assert.equal(answer.object, 'chat.completion');
    assert.equal(answer.choices[0].message.role, 'assistant');
    assert.equal(answer.choices[0].message.content, 'RISK_LEVEL: 5');
    assert.equal(answer.choices[0].finish_reason, 'stop');
    assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens);
  });

  test('streams, with the usage at the end', async () => {
    const stream = await client.chat.completions.create({
      model, messages: review(SCAM), temperature: 0, stream: true, stream_options: { include_usage: true }, ...off,
    });
    let text = '';
    let usage;
    let finish;
    const ids = new Set();
    for await (const chunk of stream) {
      ids.add(chunk.id);
      if (chunk.usage) {
        usage = chunk.usage;
        assert.deepEqual(chunk.choices, []);
        continue;
      }
      text += chunk.choices[0].delta.content ?? '';
      if (chunk.choices[0].finish_reason !== null) finish = chunk.choices[0].finish_reason;
    }
    assert.equal(text, 'RISK_LEVEL: 5');
    assert.equal(finish, 'stop');
    assert.equal(ids.size, 1);
    assert.ok(usage.completion_tokens > 0);
  });

  test('reads a message that names its role in parts of text', async () => {
    const answer = await client.chat.completions.create({
      model, temperature: 0, ...off,
      messages: [review('')[0], { role: 'user', content: [{ type: 'text', text: SCAM.slice(0, 20) }, { type: 'text', text: SCAM.slice(20) }] }],
    });
    assert.equal(answer.choices[0].message.content, 'RISK_LEVEL: 5');
  });

  test('gets as many choices as it asks for', async () => {
    const answer = await client.chat.completions.create({ model, messages: review(SCAM), n: 3, temperature: 0, ...off });
    assert.deepEqual(answer.choices.map((choice) => choice.index), [0, 1, 2]);
    for (const choice of answer.choices) assert.equal(choice.message.content, 'RISK_LEVEL: 5');
  });

  test('sees a length when the tokens run out, and a stop string in no text', async () => {
    const short = await client.chat.completions.create({ model, messages: review(SCAM), max_completion_tokens: 2, temperature: 0, ...off });
    assert.equal(short.choices[0].finish_reason, 'length');
    assert.equal(short.usage.completion_tokens, 2);
    const stopped = await client.chat.completions.create({ model, messages: review(SCAM), stop: ['LEVEL'], temperature: 0, ...off });
    assert.equal(stopped.choices[0].message.content, 'RISK_');
    assert.equal(stopped.choices[0].finish_reason, 'stop');
  });

  test('gets the same text for the same seed', async () => {
    const ask = async (seed) => (await client.completions.create({ model, prompt: 'I am going', max_tokens: 24, temperature: 1.5, seed })).choices[0].text;
    assert.equal(await ask(7), await ask(7));
    const others = new Set(await Promise.all([1, 2, 3, 4, 5].map(ask)));
    assert.ok(others.size > 1);
  });

  // C-25, C-29: alternatives are an empty list when none are asked for, and bytes are those of the text.
  test('gets logprobs with bytes, with and without alternatives', async () => {
    const plain = await client.chat.completions.create({ model, messages: review(SCAM), logprobs: true, temperature: 0, ...off });
    const tokens = plain.choices[0].logprobs.content;
    assert.equal(Buffer.from(tokens.flatMap((token) => token.bytes)).toString(), 'RISK_LEVEL: 5');
    for (const token of tokens) assert.deepEqual(token.top_logprobs, []);
    assert.ok(tokens.some((token) => token.token === ' ' && token.bytes[0] === 32));
    const more = await client.chat.completions.create({ model, messages: review(SCAM), logprobs: true, top_logprobs: 5, temperature: 0, ...off });
    for (const token of more.choices[0].logprobs.content) {
      assert.equal(token.top_logprobs.length, 5);
      assert.equal(token.top_logprobs[0].token, token.token);
    }
  });

  // C-26: streamed alternatives are those of the answer in one piece.
  test('gets the same logprobs streamed as in one piece', async () => {
    const body = { model, messages: review(SCAM), logprobs: true, top_logprobs: 2, temperature: 0, ...off };
    const whole = (await client.chat.completions.create(body)).choices[0].logprobs.content;
    const pieces = [];
    for await (const chunk of await client.chat.completions.create({ ...body, stream: true })) {
      pieces.push(...(chunk.choices[0].logprobs?.content ?? []));
    }
    assert.deepEqual(pieces.map((piece) => piece.token), whole.map((token) => token.token));
    pieces.forEach((piece, index) => {
      assert.ok(Math.abs(piece.logprob - whole[index].logprob) < 0.05);
      assert.equal(piece.top_logprobs[0].token, whole[index].top_logprobs[0].token);
    });
  });

  const weather = {
    type: 'function',
    function: {
      name: 'get_weather',
      description: 'Tells the weather of a city',
      parameters: { type: 'object', properties: { city: { type: 'string', enum: ['Berne', 'Zug'] } }, required: ['city'], additionalProperties: false },
    },
  };

  test('gets a tool call whose arguments are valid, when a tool is required', async () => {
    const answer = await client.chat.completions.create({
      model, messages: [{ role: 'user', content: 'Weather in Zug?' }], tools: [weather], tool_choice: 'required', parallel_tool_calls: false, temperature: 0, max_completion_tokens: 200, ...off,
    });
    const choice = answer.choices[0];
    assert.equal(choice.finish_reason, 'tool_calls');
    assert.equal(choice.message.tool_calls[0].function.name, 'get_weather');
    assert.ok(['Berne', 'Zug'].includes(JSON.parse(choice.message.tool_calls[0].function.arguments).city));
    assert.match(choice.message.tool_calls[0].id, /^call_/);
  });

  test('gets the named tool, streamed', async () => {
    const other = structuredClone(weather);
    other.function.name = 'get_time';
    const stream = await client.chat.completions.create({
      model, messages: [{ role: 'user', content: 'Weather?' }], tools: [other, weather], stream: true, parallel_tool_calls: false, temperature: 0, max_completion_tokens: 200,
      tool_choice: { type: 'function', function: { name: 'get_weather' } }, ...off,
    });
    let name;
    let id;
    let args = '';
    let finish;
    for await (const chunk of stream) {
      const call = chunk.choices[0].delta.tool_calls?.[0];
      if (call) {
        assert.equal(call.index, 0);
        id ??= call.id;
        name ??= call.function.name;
        args += call.function.arguments ?? '';
      }
      finish = chunk.choices[0].finish_reason ?? finish;
    }
    assert.equal(name, 'get_weather');
    assert.ok(id);
    assert.ok(JSON.parse(args).city);
    assert.equal(finish, 'tool_calls');
  });

  test('answers with text when tools are there but not to be used', async () => {
    const answer = await client.chat.completions.create({ model, messages: review(SCAM), tools: [weather], tool_choice: 'none', temperature: 0, ...off });
    assert.equal(typeof answer.choices[0].message.content, 'string');
    assert.equal(answer.choices[0].message.tool_calls, undefined);
  });

  test('takes a conversation with a tool call and its result', async () => {
    const answer = await client.chat.completions.create({
      model, tools: [weather], temperature: 0, max_completion_tokens: 8, ...off,
      messages: [
        { role: 'user', content: 'Weather in Zug?' },
        { role: 'assistant', content: null, tool_calls: [{ id: 'call_1', type: 'function', function: { name: 'get_weather', arguments: '{"city":"Zug"}' } }] },
        { role: 'tool', tool_call_id: 'call_1', content: 'sunny' },
      ],
    });
    assert.equal(answer.choices.length, 1);
  });

  test('gets JSON that fits its schema', async () => {
    const schema = { type: 'object', properties: { level: { type: 'integer', minimum: 1, maximum: 5 }, scam: { type: 'boolean' } }, required: ['level', 'scam'], additionalProperties: false };
    const answer = await client.chat.completions.create({
      model, messages: review(SCAM), temperature: 0, max_completion_tokens: 100, ...off,
      response_format: { type: 'json_schema', json_schema: { name: 'verdict', strict: true, schema } },
    });
    const value = JSON.parse(answer.choices[0].message.content);
    assert.ok(Number.isInteger(value.level) && value.level >= 1 && value.level <= 5);
    assert.equal(typeof value.scam, 'boolean');
  });

  test('gets a JSON object', async () => {
    const answer = await client.chat.completions.create({
      model, messages: review('hello'), temperature: 0, max_completion_tokens: 300, response_format: { type: 'json_object' }, ...off,
    });
    assert.ok(answer.choices[0].message.content.trimStart().startsWith('{'));
  });

  // C-27: the legacy arrays, not null.
  test('completes text, with the legacy logprobs', async () => {
    const answer = await client.completions.create({ model, prompt: ['I am going', 'See you'], max_tokens: 6, temperature: 0, logprobs: 2 });
    assert.equal(answer.object, 'text_completion');
    assert.equal(answer.choices.length, 2);
    for (const choice of answer.choices) {
      assert.equal(choice.logprobs.tokens.join(''), choice.text);
      assert.equal(choice.logprobs.token_logprobs.length, choice.logprobs.tokens.length);
      assert.equal(Object.keys(choice.logprobs.top_logprobs[0]).length, 2);
      assert.equal(choice.logprobs.text_offset[0], 0);
    }
    let streamed = '';
    for await (const chunk of await client.completions.create({ model, prompt: 'I am going', max_tokens: 6, temperature: 0, stream: true })) streamed += chunk.choices[0].text;
    assert.equal(streamed, answer.choices[0].text);
  });

  test('aborts a stream, and the server stops working on it', async () => {
    const stream = await client.completions.create({ model, prompt: 'I am going', max_tokens: 900, stream: true, ignore_eos: true });
    for await (const _ of stream) break;
    stream.controller.abort();
    await server.idle();
    assert.ok(await server.metric('pocketfleet_tokens_written_total') < 2_000);
  });

  test('meets each mistake as the exception that it knows', async () => {
    const messages = review('x');
    const rejects = (body, type, check) => assert.rejects(client.chat.completions.create({ model, messages, ...body }), (error) => {
      assert.ok(error instanceof type, `${error.constructor.name}: ${error.message}`);
      check?.(error);
      return true;
    });
    await rejects({ temperature: 9 }, OpenAI.BadRequestError, (e) => { assert.equal(e.param, 'temperature'); assert.match(e.message, /between 0 and 2/); });
    await rejects({ messages: [] }, OpenAI.BadRequestError, (e) => assert.equal(e.param, 'messages'));
    await rejects({ model: 'gpt-4o' }, OpenAI.NotFoundError, (e) => assert.equal(e.code, 'model_not_found'));
    await rejects({ audio: { voice: 'x' } }, OpenAI.BadRequestError, (e) => { assert.equal(e.param, 'audio'); assert.equal(e.code, 'unsupported_parameter'); });
    await rejects({ messages: review('word '.repeat(4_000)) }, OpenAI.BadRequestError, (e) => assert.equal(e.code, 'context_length_exceeded'));
    await rejects({ response_format: { type: 'json_schema', json_schema: { name: 'x', schema: { type: 'string', pattern: '(?<=x)*' } } } }, OpenAI.BadRequestError);
  });
});

describe('the official openai client and keys', () => {
  let server;
  let folder;
  before(async () => {
    folder = mkdtempSync(join(tmpdir(), 'pf-keys-'));
    writeFileSync(join(folder, 'keys'), 'sk-test-one\n');
    server = await Server.start({ args: ['--api-key-file', join(folder, 'keys'), '--cors-origin', 'https://app.example'] });
  });
  after(async () => {
    await server.stop();
    rmSync(folder, { recursive: true });
  });

  test('is let in with its key and gets AuthenticationError without', async () => {
    const right = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'sk-test-one', maxRetries: 0 });
    assert.equal((await right.models.list()).data.length, 1);
    const wrong = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'sk-test-two', maxRetries: 0 });
    await assert.rejects(wrong.models.list(), OpenAI.AuthenticationError);
  });

  // C-49, C-51
  test('a browser of a named origin may ask first without a key, others are told nothing', async () => {
    const ask = (origin, method) => fetch(`${server.url}/v1/chat/completions`, { method, headers: { origin, 'access-control-request-method': 'POST' } });
    const preflight = await ask('https://app.example', 'OPTIONS');
    assert.equal(preflight.status, 204);
    assert.equal(preflight.headers.get('access-control-allow-origin'), 'https://app.example');
    const refused = await ask('https://app.example', 'POST');
    assert.equal(refused.status, 401);
    assert.equal(refused.headers.get('access-control-allow-origin'), 'https://app.example');
    const evil = await ask('https://evil.example', 'OPTIONS');
    assert.equal(evil.headers.get('access-control-allow-origin'), null);
  });
});

describe('the official openai client and a full queue', () => {
  test('gets RateLimitError with a time to come back', async () => {
    const server = await Server.start({ args: ['--slots', '1', '--queue', '1'] });
    try {
      const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
      const model = (await client.models.list()).data[0].id;
      const long = { model, prompt: 'I am going', max_tokens: 900, stream: true, ignore_eos: true };
      const running = await client.completions.create(long);
      for await (const _ of running) break;
      const streams = await Promise.allSettled(Array.from({ length: 6 }, () => client.completions.create({ ...long, stream: false })));
      const refused = streams.filter((one) => one.status === 'rejected');
      assert.ok(refused.length >= 1);
      for (const one of refused) {
        assert.ok(one.reason instanceof OpenAI.RateLimitError, one.reason.message);
        const wait = Number(one.reason.headers.get('retry-after'));
        assert.ok(wait >= 1 && wait <= 120);
      }
      running.controller.abort();
    } finally {
      await server.stop();
    }
  });
});
