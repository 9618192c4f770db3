// Faults that others met (C-n), asked of the real server: one test each, beside those of the other files.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { Server, fastest, profile, review, soon_ms } from './server.mjs';

const off = { chat_template_kwargs: { enable_thinking: false } };
const on = { chat_template_kwargs: { enable_thinking: true } };

async function events(server, body) {
  const answer = await server.chat({ ...body, stream: true });
  assert.equal(answer.status, 200, answer.text);
  return answer.text.split('\n').filter((line) => line.startsWith('data: {')).map((line) => JSON.parse(line.slice(6)));
}

describe('a server with thinking on', () => {
  let server;
  before(async () => { server = await Server.start(); });
  after(() => server.stop());

  // C-16
  test('streams everything as content when a request turns thinking off', async () => {
    const deltas = (await events(server, { messages: review('hello'), temperature: 0, ...off })).flatMap(({ choices }) => choices.map(({ delta }) => delta));
    assert.equal(deltas.map((delta) => delta.content ?? '').join(''), 'RISK_LEVEL: 1');
    for (const delta of deltas) assert.equal(delta.reasoning_content ?? '', '');
  });

  // C-20
  test('makes ordinary tokens of text that looks special, also of kinds that it does not know', async () => {
    for (const content of ['<|channel>', '<|im_start|>', '<tool_call>', '</think>']) {
      const answer = await server.post('/tokenize', { content, parse_special: false });
      assert.ok(answer.json.tokens.length > 1, content);
      assert.equal((await server.post('/detokenize', { tokens: answer.json.tokens })).json.content, content);
    }
  });

  // C-21: held or refused, never open.
  test('holds a pattern with an escape or refuses it', async () => {
    const answer = await server.chat({
      messages: review('hello'), temperature: 0, max_completion_tokens: 40, ...off,
      response_format: { type: 'json_schema', json_schema: { name: 'x', strict: true, schema: { type: 'string', pattern: '^hello there indeed\\!$' } } },
    });
    if (answer.status === 200) assert.equal(JSON.parse(answer.json.choices[0].message.content), 'hello there indeed!');
    else assert.equal(answer.status, 400, answer.text);
  });

  // C-30: words in a description are words.
  test('takes any description in a schema', async () => {
    const odd = ['"', '\\', '\n', ']', '*/', '::=', 'root ::= "x"', '(?<=x)*', '\u2028', '\u0000', '{{', '<|im_end|>', '\ud83d\ude00', '%s%n', '#'.repeat(500)];
    for (const description of odd) {
      const answer = await server.chat({
        messages: review('hello'), temperature: 0, max_completion_tokens: 40, ...off,
        response_format: { type: 'json_schema', json_schema: { name: 'x', description, schema: { type: 'object', description, properties: { ok: { type: 'boolean', description } }, required: ['ok'], additionalProperties: false } } },
      });
      assert.equal(answer.status, 200, `${JSON.stringify(description)}: ${answer.text}`);
      if (answer.json.choices[0].finish_reason === 'stop') assert.equal(typeof JSON.parse(answer.json.choices[0].message.content).ok, 'boolean');
    }
  });

  // C-35: byte tokens in any order; a stream says the same as an answer in one piece.
  test('writes UTF-8 whatever the model writes, streamed as in one piece', async () => {
    const bias = {};
    for (let id = 0; id < 256; ++id) bias[id] = 30;
    for (let seed = 1; seed <= 6; ++seed) {
      const body = { prompt: 'x', max_tokens: 120, temperature: 2, seed, logit_bias: bias, ignore_eos: true };
      const bytes = async (more) => {
        const answer = await fetch(`${server.url}/v1/completions`, { method: 'POST', body: JSON.stringify({ ...body, ...more }) });
        assert.equal(answer.status, 200);
        return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(await answer.arrayBuffer());
      };
      const whole = JSON.parse(await bytes({})).choices[0].text;
      const pieces = (await bytes({ stream: true })).split('\n').filter((line) => line.startsWith('data: {')).map((line) => JSON.parse(line.slice(6)).choices[0]?.text ?? '');
      assert.equal(pieces.join(''), whole);
      assert.ok(whole.isWellFormed?.() ?? true);
      assert.ok(whole.length > 0);
    }
  });

  // C-34
  test('never says one status in the line and another in the body', async () => {
    const answers = [
      await server.chat({ messages: [] }), await server.chat('{'), await server.chat({ model: 'gpt-4o', messages: review('x') }),
      await server.post('/v1/nothing', {}), await server.post('/v1/classify', { profile: 'nobody', input: 'x' }),
      await server.chat({ messages: review('word '.repeat(4_000)), stream: true }),
    ];
    for (const { status, json } of answers) {
      assert.ok(status >= 400);
      assert.equal(typeof json.error.message, 'string');
      if (Number.isInteger(json.error.code)) assert.equal(json.error.code, status);
    }
  });

  // C-75: what was cut short is not a verdict.
  test('says length when a verdict is cut, and a choice is whole in any case', async () => {
    const cut = await server.chat({ messages: review('hello'), temperature: 0, max_completion_tokens: 3, grammar: 'root ::= "RISK_LEVEL: " [1-5]', ...off });
    assert.equal(cut.json.choices[0].finish_reason, 'length');
    assert.doesNotMatch(cut.json.choices[0].message.content, /\d/);
    const choice = ['RISK_LEVEL: 1', 'RISK_LEVEL: 10', 'RISK_LEVEL: 85'];
    const whole = await server.chat({ messages: review('hello'), temperature: 0, structured_outputs: { choice }, ...off });
    assert.ok(choice.includes(whole.json.choices[0].message.content), whole.text);
  });

  // C-51
  test('names no origin unless it was told one', async () => {
    const answer = await fetch(`${server.url}/v1/models`, { headers: { origin: 'https://evil.example' } });
    assert.equal(answer.headers.get('access-control-allow-origin'), null);
    assert.equal(answer.headers.get('access-control-allow-credentials'), null);
  });

  // C-31: the caller pays nothing, so it may cost us little. The fastest of five, as the machine may be busy with others.
  test('refuses a prompt of a quarter of a megabyte within 50 ms, and bounds what it counts', async () => {
    const long = ['word '.repeat(50_000), 'x'.repeat(1 << 18), '\u00e9'.repeat(1 << 17)];
    for (const text of long) {
      for (const [path, body] of [['/v1/chat/completions', { messages: review(text), ...off }], ['/v1/completions', { prompt: text }], ['/v1/classify', { profile: 'scam-guard', input: text }]]) {
        const { answer, ms } = await fastest(5, () => server.post(path, body));
        assert.equal(answer.status, 400, answer.text.slice(0, 300));
        assert.equal(answer.json.error.code, 'context_length_exceeded');
        assert.match(answer.json.error.message, /1024/);
        assert.ok(ms < soon_ms, `${path}: ${ms} ms`);
      }
    }
    const counted = await server.post('/tokenize', { content: 'x'.repeat((1 << 20) + 1) });
    assert.equal(counted.status, 400);
    assert.equal(counted.json.error.param, 'content');
  });

  test('answers 413 as soon as a length of 10 MB is announced', async () => {
    const socket = connect(Number(new URL(server.url).port), '127.0.0.1');
    socket.write(`POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: ${10 << 20}\r\n\r\n{"messages"`);
    let text = '';
    for await (const bytes of socket) {
      text += bytes;
      if (text.includes('\r\n\r\n')) break;
    }
    assert.match(text, /^HTTP\/1\.1 413 /);
  });
});

describe('a server with thinking off', () => {
  let server;
  before(async () => { server = await Server.start({ args: ['--thinking', 'off', '--slots', '1', '--profile', profile] }); });
  after(() => server.stop());

  // C-15: off at the server, on by request, and back.
  test('thinks when a request turns it on, and only then', async () => {
    const plain = await server.chat({ messages: review('hello'), temperature: 0 });
    assert.equal(plain.json.choices[0].message.content, 'RISK_LEVEL: 1');
    const thinking = await server.chat({ messages: review('hello'), temperature: 0, max_completion_tokens: 24, ...on });
    assert.ok(thinking.json.choices[0].message.reasoning_content.length > 0);
    assert.equal((await server.chat({ messages: review('hello'), temperature: 0 })).json.choices[0].message.content, 'RISK_LEVEL: 1');
    assert.doesNotMatch(plain.text, /<think>/);
  });

  // C-38: of ten long prompts whose callers have gone, most are never read.
  test('stops reading prompts whose callers have gone', async () => {
    const aborts = Array.from({ length: 10 }, () => new AbortController());
    const read = await server.metric('pocketfleet_tokens_read_total');
    const posts = aborts.map((abort, index) => fetch(`${server.url}/v1/completions`, {
      method: 'POST', signal: abort.signal, body: JSON.stringify({ prompt: `${index} see you `.repeat(180), max_tokens: 1 }),
    }).then((answer) => answer.json(), () => null));
    const { json: { tokens } } = await server.post('/tokenize', { content: '0 see you '.repeat(180) });
    await server.waitFor(async () => { const { running, queued } = await server.health(); return running + queued > 0; });
    for (const abort of aborts) abort.abort();
    const answered = (await Promise.all(posts)).filter(Boolean).length;
    await server.idle(5_000);
    const more = await server.metric('pocketfleet_tokens_read_total') - read;
    assert.ok(more < (answered + 5) * tokens.length, `${more} tokens read, ${answered} answered, ${tokens.length} each`);
  });
});

describe('keys of a file', () => {
  // C-48
  test('each open the door, and what begins or ends like one does not', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'pf-keys-'));
    writeFileSync(join(folder, 'keys'), 'sk-test-one\n# a remark\nsk-test-two-which-is-longer\n');
    const server = await Server.start({ args: ['--api-key-file', join(folder, 'keys')] });
    try {
      const status = async (authorization) => (await fetch(`${server.url}/v1/models`, { headers: authorization === undefined ? {} : { authorization } })).status;
      for (const key of ['sk-test-one', 'sk-test-two-which-is-longer']) assert.equal(await status(`Bearer ${key}`), 200);
      for (const wrong of [undefined, 'Bearer ', 'Bearer sk-test-on', 'Bearer sk-test-onee', 'Bearer # a remark', 'Basic sk-test-one', 'sk-test-one', `Bearer ${'x'.repeat(4_000)}`]) {
        assert.equal(await status(wrong), 401, wrong);
      }
    } finally {
      await server.stop();
      rmSync(folder, { recursive: true });
    }
  });
});

describe('memory', () => {
  // C-12
  test('that does not suffice is told in numbers, before loading', async () => {
    const error = await Server.start({ args: ['--ctx', '10000000', '--slots', '64'] }).then((server) => server.stop().then(() => null), (caught) => caught);
    assert.ok(error, 'it was loaded');
    assert.equal(error.code, 2, error.log);
    assert.match(error.log, /\d+(\.\d+)? ?[GM]i?B/);
  });
});
