// The work that bench/verdicts gives to a server: texts of a known number of tokens, and verdicts on them.
import {Numbers} from './serve_measure.mjs';

// One token: with random weights the peer would spell the prefix letter by letter, which no tuned model does.
const kGrammar = 'root ::= [1-5]';
export const kPrefix = 'RISK_LEVEL: ';
export const kLabels = ['1', '2', '3', '4', '5'];

// Made of random words, the same in every run. Words are counted in tokens by the server itself, so a text is off by a word at most.
export class Texts {
  constructor(server, seed) {
    this.server = server;
    this.numbers = new Numbers(seed);
  }

  words(count) {
    return Array.from({length: count}, () => this.numbers.below(1_000_000).toString(36)).join(' ');
  }

  async count(text) {
    return (await this.server.post('/tokenize', {content: text})).tokens.length;
  }

  async of(tokens) {
    let text = this.words(Math.ceil(tokens / 2));
    for (;;) {
      const have = await this.count(text);
      if (Math.abs(have - tokens) <= 4) return text;
      const words = text.split(' ');
      const wanted = Math.max(1, Math.round((words.length * tokens) / have));
      if (wanted === words.length) return text;
      text = wanted < words.length ? words.slice(0, wanted).join(' ') : `${text} ${this.words(wanted - words.length)}`;
    }
  }
}

async function inParallel(items, limit, work) {
  let next = 0;
  await Promise.all(Array.from({length: limit}, async () => {
    while (next < items.length) await work(items[next++]);
  }));
}

function profileOf(name, fixed, sameMessage) {
  return {
    name,
    instructions: fixed,
    input: {role: 'user', template: sameMessage ? '{instructions}\n\n{input}' : '{input}'},
    answer_prefix: kPrefix,
    labels: kLabels
  };
}

// What is asked: `streams` of instructions, each with its own data; a request is one of each stream in turn.
export class Job {
  constructor(streams, sameMessage) {
    this.streams = streams;
    this.sameMessage = sameMessage;
  }

  static async make(server, {seed, streams, fixed, data, sameMessage}) {
    const texts = new Texts(server, seed);
    const made = [];
    for (let index = 0; index < streams; ++index) {
      const inputs = [];
      for (const tokens of data) inputs.push(await texts.of(tokens));
      made.push({name: `stream-${index}`, fixed: await texts.of(fixed), inputs});
    }
    return new Job(made, sameMessage);
  }

  profiles() {
    return this.streams.map(({name, fixed}) => profileOf(name, fixed, this.sameMessage));
  }

  requests() {
    return this.streams[0].inputs.flatMap((_, index) => this.streams.map((stream) => ({stream, input: stream.inputs[index]})));
  }

  // Verdicts of ours, `array` texts in a request.
  async classify(server, {parallel, array}) {
    let used = {read: 0, reused: 0};
    const requests = [];
    for (const {stream, input} of this.requests()) {
      const last = requests.findLast((request) => request.profile === stream.name);
      if (last && last.input.length < array) {
        last.input.push(input);
      } else {
        requests.push({profile: stream.name, input: [input]});
      }
    }
    const probabilities = [];
    await inParallel(requests, parallel, async (body) => {
      const answer = await server.post('/v1/classify', body);
      const {prompt_tokens, prompt_tokens_details} = answer.usage;
      used.reused += prompt_tokens_details.cached_tokens;
      used.read += prompt_tokens - prompt_tokens_details.cached_tokens;
      for (const {probs} of answer.data) probabilities.push(probs);
    });
    return {...used, count: probabilities.length};
  }

  messages({stream, input}) {
    return this.sameMessage ? [{role: 'user', content: `${stream.fixed}\n\n${input}`}] :
                              [{role: 'system', content: stream.fixed}, {role: 'user', content: input}];
  }

  // The same as chats: of the peer with a grammar, of ours with a choice.
  async chat(server, {parallel}) {
    const used = {read: 0, reused: 0, count: 0};
    const constraint = server.side === 'peer' ? {grammar: kGrammar, cache_prompt: true} :
                                                {structured_outputs: {choice: kLabels.map((label) => kPrefix + label)}};
    await inParallel(this.requests(), parallel, async (request) => {
      const answer = await server.post('/v1/chat/completions', {
        messages: this.messages(request),
        temperature: 0,
        max_tokens: 2,
        chat_template_kwargs: {enable_thinking: false},
        ...constraint
      });
      if (!/^(RISK_LEVEL: )?[1-5]$/.test(answer.choices[0].message.content))
        throw new Error(`${server.side} answered ${JSON.stringify(answer.choices[0].message.content)}`);
      const cached = answer.usage.prompt_tokens_details?.cached_tokens ?? 0;
      used.reused += cached;
      used.read += answer.usage.prompt_tokens - cached;
      ++used.count;
    });
    return used;
  }
}

// Who waits while a long prompt is read: the worst gap of a stream that is being written, and a short verdict that comes meanwhile.
export async function beside(server, {stream, long, short}) {
  const letter = {logit_bias: {64: 100}, ignore_eos: true, chat_template_kwargs: {enable_thinking: false}};
  const told = {times: [], done: false};
  const begun = new Promise((resolve) => {
    told.first = resolve;
  });
  const writing = server.send(
      'POST', '/v1/chat/completions',
      {messages: [{role: 'user', content: 'Write on'}], max_tokens: stream, temperature: 0, stream: true, ...letter}, () => {
        told.times.push(performance.now());
        told.first();
      });
  // It is cut off when the server is stopped.
  writing.then(() => {
    told.done = true;
  }, () => {});
  await begun;
  const from_ms = performance.now();
  const reading = server.post('/v1/chat/completions', {
    messages: [{role: 'user', content: long}],
    max_tokens: 1,
    temperature: 0,
    ...letter
  });
  // In the middle of the long prompt.
  await new Promise((resolve) => setTimeout(resolve, 1500));
  const asked_ms = performance.now();
  await server.post('/v1/chat/completions', {
    messages: [{role: 'user', content: short}],
    temperature: 0,
    max_tokens: 1,
    chat_template_kwargs: {enable_thinking: false},
    ...(server.side === 'peer' ? {grammar: kGrammar, cache_prompt: true} : {structured_outputs: {choice: kLabels}})
  });
  const short_ms = performance.now() - asked_ms;
  await reading;
  const to_ms = performance.now();
  if (told.done) throw new Error('the stream ended before the long prompt was read; let it write more');
  const within = told.times.filter((time) => time >= from_ms && time <= to_ms);
  const gap_ms = [from_ms, ...within, to_ms].reduce((worst, time, index, all) => Math.max(worst, index ? time - all[index - 1] : 0), 0);
  return {gap_ms, short_ms, read_ms: to_ms - from_ms, pieces: within.length};
}
