// What is measured on a running server. Every function gives one sample; medians are taken over the rounds.

// Numbers that are the same in every run and on both servers, and never the same twice within a run.
export class Numbers {
  constructor(seed) {
    this.state = (seed * 2654435761 + 12345) >>> 0;
  }

  below(limit) {
    this.state = (this.state + 0x6d2b79f5) >>> 0;
    let x = this.state;
    x = Math.imul(x ^ (x >>> 15), x | 1);
    x ^= x + Math.imul(x ^ (x >>> 7), x | 61);
    return ((x ^ (x >>> 14)) >>> 0) % limit;
  }
}

// Ids of ordinary tokens of the qwen35 vocabulary.
const tokens = (numbers, count) => Array.from({length: count}, () => 300 + numbers.below(90_000));
const kLetter = 64;  // 'a'
const words = (numbers, count) => Array.from({length: count}, () => numbers.below(1_000_000).toString(36)).join(' ');

// One token is written after `count` tokens of prompt that no earlier request shares a beginning with.
export async function firstToken(server, numbers, count) {
  const answer =
      await server.stream('/v1/completions', {prompt: tokens(numbers, count), max_tokens: 1, temperature: 0, ignore_eos: true});
  if (answer.usage.prompt_tokens !== count)
    throw new Error(`${server.side} read ${answer.usage.prompt_tokens} tokens, not ${count}`);
  const cached = answer.usage.prompt_tokens_details?.cached_tokens ?? 0;
  if (cached !== 0) throw new Error(`${server.side} took ${cached} tokens from its cache`);
  return answer;
}

// `chats` chats at once, each writing `written` tokens after a short prompt: tokens per second from the first byte sent to the
// last read. A bias makes every token the same letter: random weights write broken characters, at which the peer's parser of chats
// ends the answer with an error.
export async function writing(server, numbers, chats, written) {
  const bodies = Array.from({length: chats}, () => ({
                                               messages: [{role: 'user', content: words(numbers, 2)}],
                                               max_tokens: written,
                                               temperature: 0,
                                               ignore_eos: true,
                                               logit_bias: {[kLetter]: 100},
                                               chat_template_kwargs: {enable_thinking: false},
                                             }));
  const started_ms = performance.now();
  const answers = await Promise.all(bodies.map((body) => server.stream('/v1/chat/completions', body)));
  const total_ms = performance.now() - started_ms;
  for (const {usage} of answers) {
    if (usage.completion_tokens !== written)
      throw new Error(`${server.side} wrote ${usage.completion_tokens} tokens, not ${written}`);
  }
  return {per_s: (chats * written * 1000) / total_ms, answers};
}

async function inParallel(items, limit, work) {
  let next = 0;
  await Promise.all(Array.from({length: limit}, async () => {
    while (next < items.length) {
      const index = next++;
      await work(items[index], index);
    }
  }));
}

// Caught, missed, false alarms, right: what the model's own results say.
function confusion(samples, flagged) {
  const counts = [0, 0, 0, 0];
  samples.forEach((sample, index) => {
    counts[sample.label === 'spam' ? (flagged[index] ? 0 : 1) : (flagged[index] ? 2 : 3)] += 1;
  });
  return counts.join('/');
}

// All samples in arrays of `array`, `parallel` arrays at a time.
export async function verdictsByClassify(server, samples, {array, parallel}) {
  const arrays = [];
  for (let begin = 0; begin < samples.length; begin += array)
    arrays.push(samples.slice(begin, begin + array).map((sample) => sample.text));
  const flagged = [];
  const started_ms = performance.now();
  await inParallel(arrays, parallel, async (input, index) => {
    const answer = await server.post('/v1/classify', {profile: 'scam-guard', input});
    for (const verdict of answer.data) flagged[index * array + verdict.index] = verdict.flagged;
  });
  const total_ms = performance.now() - started_ms;
  return {per_s: (samples.length * 1000) / total_ms, matrix: confusion(samples, flagged)};
}

// The same question asked as a chat whose answer a grammar holds.
export async function verdictsByChat(server, samples, instructions, parallel) {
  const flagged = [];
  const started_ms = performance.now();
  await inParallel(samples, parallel, async (sample, index) => {
    const answer = await server.post('/v1/chat/completions', {
      messages: [{role: 'system', content: instructions}, {role: 'user', content: sample.text}],
      temperature: 0,
      max_tokens: 8,
      grammar: 'root ::= "RISK_LEVEL: " [1-5]',
      cache_prompt: true,
      chat_template_kwargs: {enable_thinking: false},
    });
    flagged[index] = Number(answer.choices[0].message.content.at(-1)) >= 4;
  });
  const total_ms = performance.now() - started_ms;
  return {per_s: (samples.length * 1000) / total_ms, matrix: confusion(samples, flagged)};
}
