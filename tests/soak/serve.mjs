// Random clients for a long time: they arrive, leave, overflow the queue and cancel. At the end nothing may have leaked or grown,
// and every answer must be that of a cold engine. Run by scripts/soak.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { generator } from '../impair.mjs';
import { Server, profile, systemPrompt, testSplit } from '../api/server.mjs';

const minutes = Number(process.argv[2] ?? 10);
const clients = Number(process.argv[3] ?? 12);
const seed = Number(process.argv[4] ?? 1);
const kTolerance = 0.03;  // of probabilities: batches differ, and with them the last digits

// The same run for the same seed, but for what time decides.
const random = generator(seed);
const below = (limit) => Math.floor(random() * limit);
const pick = (list) => list[below(list.length)];
const words = (number, count) => Array.from({ length: count }, (_, index) => ((index * 7919 + number * 104729) % 99991).toString(36)).join(' ');
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const status_kb = (server, key) => Number(new RegExp(`${key}:\\s+(\\d+)`).exec(readFileSync(`/proc/${server.process.pid}/status`, 'utf8'))[1]);

const texts = testSplit().slice(0, 60).map((sample) => sample.text);
const off = { chat_template_kwargs: { enable_thinking: false } };
const review = (text) => ({ messages: [{ role: 'system', content: systemPrompt }, { role: 'user', content: text }], temperature: 0, max_completion_tokens: 12, ...off });
const rules = Array.from({ length: 5 }, (_, number) => `Rules ${number}: ${words(number, 150)}`);
const labels = ['yes', 'no', 'yes and no'];
const ruled = (number) => ({ labels, instructions: rules[number % rules.length], input: texts[number % texts.length] });

// What a cold engine says, one question at a time, without checkpoints.
async function coldAnswers() {
  const server = await Server.start({ args: ['--profile', profile, '--checkpoint-ram', '0', '--ctx', '2048'] });
  try {
    const verdicts = [];
    const chats = [];
    const tasks = [];
    for (const text of texts) {
      verdicts.push((await server.post('/v1/classify', { profile: 'scam-guard', input: text })).json.data[0]);
      chats.push((await server.chat(review(text))).json.choices[0].message.content);
    }
    for (let number = 0; number < 60; ++number) tasks.push((await server.post('/v1/classify', ruled(number))).json.data[0]);
    return { verdicts, chats, tasks };
  } finally {
    await server.stop();
  }
}

const tally = { answers: 0, refused: 0, left: 0 };

function same(found, expected, what) {
  expected.probs.forEach((p, index) => assert.ok(Math.abs(p - found.probs[index]) < kTolerance, `${what}: ${found.probs} instead of ${expected.probs}`));
  ++tally.answers;
}

// A refusal is an answer too, if it says when to come back.
function refused(answer) {
  if (answer.status === 200) return false;
  assert.ok(answer.status === 429, `${answer.status} ${answer.text}`);
  assert.ok(answer.headers.get('retry-after') !== null || answer.headers.get('x-should-retry') === 'false');
  ++tally.refused;
  return true;
}

async function leave(server, path, body, after_ms) {
  const leaving = new AbortController();
  const timer = setTimeout(() => leaving.abort(), after_ms);
  try {
    const answer = await fetch(server.url + path, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body), signal: leaving.signal });
    await answer.text();
  } catch {
    ++tally.left;
  }
  clearTimeout(timer);
}

const deeds = [
  async (server, cold) => {
    const which = below(texts.length);
    const answer = await server.post('/v1/classify', { profile: 'scam-guard', input: texts[which] });
    if (!refused(answer)) same(answer.json.data[0], cold.verdicts[which], 'classify');
  },
  async (server, cold) => {
    const from = below(texts.length - 10);
    const answer = await server.post('/v1/classify', { profile: 'scam-guard', input: texts.slice(from, from + 10) });
    if (!refused(answer)) answer.json.data.forEach((item, index) => same(item, cold.verdicts[from + index], 'array'));
  },
  async (server, cold) => {
    const number = below(60);
    const answer = await server.post('/v1/classify', ruled(number));
    if (!refused(answer)) same(answer.json.data[0], cold.tasks[number], 'task');
  },
  async (server, cold) => {
    const which = below(texts.length);
    const answer = await server.chat(review(texts[which]));
    if (refused(answer)) return;
    assert.equal(answer.json.choices[0].message.content, cold.chats[which]);
    ++tally.answers;
  },
  async (server, cold) => {
    const which = below(texts.length);
    const answer = await server.post('/v1/chat/completions', { ...review(texts[which]), stream: true });
    if (refused(answer)) return;
    const text = answer.text.split('\n').filter((line) => line.startsWith('data: {')).map((line) => JSON.parse(line.slice(6)).choices[0]?.delta.content ?? '').join('');
    assert.equal(text, cold.chats[which]);
    ++tally.answers;
  },
  // Those who leave: while they wait, while they are read, while they are written to.
  (server) => leave(server, '/v1/chat/completions', { ...review(words(below(1000), 500)), max_completion_tokens: 200 }, below(400)),
  (server) => leave(server, '/v1/chat/completions', { ...review('Write on'), max_completion_tokens: 1000, ignore_eos: true, stream: true }, below(600)),
  (server) => leave(server, '/v1/classify', { profile: 'scam-guard', input: texts }, below(200)),
  (server) => leave(server, '/v1/responses', { input: words(below(1000), 300), max_output_tokens: 100, stream: true }, below(500)),
  // More than the queue holds.
  async (server, cold) => {
    await Promise.all(Array.from({ length: 40 }, async () => {
      const which = below(texts.length);
      const answer = await server.post('/v1/classify', { profile: 'scam-guard', input: texts[which] });
      if (!refused(answer)) same(answer.json.data[0], cold.verdicts[which], 'flood');
    }));
  },
  async (server) => {
    const answer = await server.post('/v1/embeddings', { input: texts.slice(0, 1 + below(8)) });
    if (!refused(answer)) ++tally.answers;
  },
  // What is wrong is refused and harms nobody.
  async (server) => {
    const answer = await server.post('/v1/chat/completions', pick(['{', '[]', '{"messages":[]}', '{"messages":5}', '\xff']));
    assert.equal(answer.status, 400);
  },
];

const cold = await coldAnswers();
const server = await Server.start({ args: ['--profile', profile, '--ctx', '2048', '--slots', '3', '--queue', '16', '--checkpoint-ram', '32', '--pooling', 'last'] });
const started = Date.now();
const end = started + minutes * 60_000;
const levels_kb = [];
let failure;
const watch = (async () => {
  while (Date.now() < end && !failure) {
    await pause(5_000);
    levels_kb.push(status_kb(server, 'VmRSS'));
    process.stderr.write(`\r${((Date.now() - started) / 60_000).toFixed(1)} of ${minutes} min, ${tally.answers} answers, ${tally.refused} refused, ${tally.left} left, ${levels_kb.at(-1) >> 10} MiB `);
  }
})();
await Promise.all(Array.from({ length: clients }, async () => {
  while (Date.now() < end && !failure) {
    try {
      await pick(deeds)(server, cold);
    } catch (error) {
      failure ??= error;
    }
    if (random() < 0.3) await pause(below(100));
  }
}));
await watch;
process.stderr.write('\n');
try {
  if (failure) throw failure;
  await server.idle(60_000);
  const health = await server.health();
  assert.deepEqual([health.running, health.queued], [0, 0]);
  // Nothing is left behind that a cold engine would not say.
  for (const [index, text] of texts.entries())
    same((await server.post('/v1/classify', { profile: 'scam-guard', input: text })).json.data[0], cold.verdicts[index], 'at the end');
} finally {
  const { code, signal } = await server.stop();
  // A sanitizer that found something, a leak as well, says so with its exit code and on standard error.
  assert.equal(code, 0, `the server ended with ${code ?? signal}: ${server.log.slice(-4000)}`);
  assert.ok(!/ERROR: |runtime error/.test(server.log), server.log.slice(-4000));
}
const third = Math.floor(levels_kb.length / 3);
const early_kb = Math.max(...levels_kb.slice(third, 2 * third));
const late_kb = Math.max(...levels_kb.slice(2 * third));
console.log(JSON.stringify({ minutes, clients, seed, ...tally, early_mib: early_kb >> 10, late_mib: late_kb >> 10 }));
assert.ok(tally.answers > 100, 'too little was asked to say anything');
assert.ok(late_kb - early_kb < 0.05 * early_kb + (16 << 10), `memory grew from ${early_kb} to ${late_kb} kB`);
