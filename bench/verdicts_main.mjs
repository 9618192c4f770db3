// Options, the works A to H, and the report of bench/verdicts.
import {spawnSync} from 'node:child_process';
import {mkdtempSync, readFileSync, rmSync, writeFileSync} from 'node:fs';
import {cpus, loadavg, tmpdir} from 'node:os';
import {join} from 'node:path';
import {parseArgs} from 'node:util';

import {checkSpeedModel, findBinaries, root, speedModel} from './binaries.mjs';
import {Server, Watch} from './serve_servers.mjs';
import {beside, Job, Texts} from './verdicts_work.mjs';

const kUsage = `bench/verdicts: verdicts on long prompts, against llama-server on the same model and threads

  --ours FILE           the program to measure    [newest build/*/bin/pocketfleet of bench and release]
  --llama-server FILE   the peer                  [newest .deps/llama-*/bin/llama-server]
  --model FILE          the model                 [build/synth-0.8b-q4_0.gguf]
  --threads N           threads of both           [one a core]
  --only LIST           of: A,B,C,D1,D2,E,F,H     [all; G comes with B]
  --scale X             all lengths of prompts times X; below 1 it is a quick look, not the benchmark   [1]
  --count X             all numbers of requests times X; likewise                                       [1]
  --peer-part X         in A, C and D1, where the peer reads every prompt whole, it is given this part of the requests [1]
  --chats               A and B also as chats of ours with a choice

A whole run takes hours: the peer reads 30 x 7,000 tokens for A alone.
Example: bench/verdicts --only A,E --scale 0.25 --count 0.4
`;

function readOptions(args) {
  const {values} = parseArgs({
    args,
    options: {
      help: {type: 'boolean'},
      ours: {type: 'string'},
      'llama-server': {type: 'string'},
      model: {type: 'string'},
      threads: {type: 'string'},
      only: {type: 'string', default: 'A,B,C,D1,D2,E,F,H'},
      scale: {type: 'string', default: '1'},
      count: {type: 'string', default: '1'},
      'peer-part': {type: 'string', default: '1'},
      chats: {type: 'boolean', default: false},
    }
  });
  if (values.help) return undefined;
  const options = {
    ...findBinaries({ours: values.ours, peer: values['llama-server']}),
    model: values.model ?? speedModel,
    threads: String(values.threads ?? cpus().length),
    only: values.only.split(','),
    scale: Number(values.scale),
    count: Number(values.count),
    peerPart: Number(values['peer-part']),
    chats: values.chats,
  };
  checkSpeedModel(options.model, '--model');
  if (!(options.scale > 0) || !(options.count > 0)) throw new Error('--scale and --count must be more than 0');
  if (!(options.peerPart > 0 && options.peerPart <= 1)) throw new Error('--peer-part must be more than 0 and at most 1');
  return options;
}

// One folder for profiles and checkpoints, gone at the end.
const scratch = mkdtempSync(join(tmpdir(), 'pocketfleet-verdicts-'));

function oursArgs(options, {slots, ctx, profiles = [], checkpoints}) {
  const files = profiles.map((profile) => {
    const file = join(scratch, `${profile.name}.json`);
    writeFileSync(file, JSON.stringify(profile));
    return ['--profile', file];
  });
  return (port) => ['serve', options.model, '--port', String(port), '--threads', options.threads, '--thinking', 'off', '--quiet', '--slots',
                    String(slots), '--ctx', String(ctx), '--queue', '1000', ...files.flat(),
                    ...(checkpoints ? ['--checkpoint-dir', checkpoints] : ['--checkpoint-disk', '0'])];
}

function peerArgs(options, {slots, ctx}) {
  return (port) => ['-m', options.model, '--port', String(port), '--host', '127.0.0.1', '--jinja', '-t', options.threads, '-tb',
                    options.threads, '-np', String(slots), '-c', String(slots * ctx), '-fa', 'on', '--no-webui', '--log-disable'];
}

const peakMemory_mib = (server) => Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${server.process.pid}/status`, 'latin1'))[1]) / 1024;

// From the moment the model is loaded, so that reading the fixed parts counts, to the last verdict.
async function timed(server, work) {
  const watch = new Watch(server);
  const started_ms = performance.now();
  const used = await work();
  const total_ms = performance.now() - started_ms;
  return {per_h: (used.count * 3_600_000) / total_ms, total_ms, foreign: watch.foreign(), memory_mib: peakMemory_mib(server), ...used};
}

const say = (text) => console.error(`  ${text}`);

class Bench {
  constructor(options) {
    this.options = options;
    this.rows = [];
  }

  tokens(count) {
    return Math.max(8, Math.round(count * this.options.scale));
  }

  times(count) {
    return Math.max(2, Math.round(count * this.options.count));
  }

  context(fixed, data) {
    return Math.ceil((fixed + data + 200) / 256) * 256;
  }

  async job(shape) {
    const server = await Server.start('ours', this.options.ours, oursArgs(this.options, {slots: 1, ctx: 512}));
    try {
      return await Job.make(server, shape);
    } finally {
      await server.stop();
    }
  }

  // The first requests of each stream, for a peer whose rate does not depend on how many there are.
  part(job) {
    const streams = job.streams.map((stream) => ({
      ...stream,
      inputs: stream.inputs.slice(0, Math.max(2, Math.round(stream.inputs.length * this.options.peerPart)))
    }));
    return new Job(streams, job.sameMessage);
  }

  async onOurs(job, setting, work) {
    const args = oursArgs(this.options, {...setting, profiles: job.profiles()});
    const server = await Server.start('ours', this.options.ours, args, {loaded: true});
    try {
      return await timed(server, () => work(server));
    } finally {
      await server.stop();
    }
  }

  async onPeer(setting, work) {
    const server = await Server.start('peer', this.options.peer, peerArgs(this.options, setting));
    try {
      return await timed(server, () => work(server));
    } finally {
      await server.stop();
    }
  }

  report(name, wanted, ours, peer, more = {}) {
    const row = {name, wanted, ratio: ours.per_h / peer.per_h, ours, peer, ...more};
    this.rows.push(row);
    say(`${name}: ours ${ours.per_h.toFixed(0)}/h (read ${ours.read}, reused ${ours.reused}; others ${ours.foreign.toFixed(2)}), peer ${
        peer.per_h.toFixed(0)}/h (read ${peer.read}, reused ${peer.reused}; others ${peer.foreign.toFixed(2)}): ${row.ratio.toFixed(2)}`);
    return row;
  }

  async reviews(name, wanted, sameMessage) {
    const fixed = this.tokens(5500);
    const data = this.tokens(1500);
    const ctx = this.context(fixed, data);
    const job = await this.job({seed: 1, streams: 1, fixed, data: Array(this.times(30)).fill(data), sameMessage});
    const ours = await this.onOurs(job, {slots: 1, ctx}, (server) => job.classify(server, {parallel: 2, array: 1}));
    const theirs = sameMessage ? this.part(job) : job;
    const peer = await this.onPeer({slots: 1, ctx}, (server) => theirs.chat(server, {parallel: 1}));
    this.report(`${name}: reviews, fixed part in the ${sameMessage ? 'same' : 'system'} message`, wanted, ours, peer);
    if (this.options.chats) {
      const chats = await this.onOurs(new Job(job.streams, sameMessage), {slots: 1, ctx}, (server) => job.chat(server, {parallel: 2}));
      say(`${name}: as chats with a choice ${(chats.per_h / peer.per_h).toFixed(2)}`);
    }
    if (!sameMessage) {
      this.rows.push({name: 'G: peak memory on B (MiB)', wanted: 1, ratio: peer.memory_mib / ours.memory_mib, ours: ours.memory_mib,
                      peer: peer.memory_mib});
    }
  }

  async A() {
    await this.reviews('A', 3.5, true);
  }

  async B() {
    await this.reviews('B', 1.03, false);
  }

  async C() {
    const fixed = this.tokens(5500);
    const data = this.tokens(1500);
    const ctx = this.context(fixed, data);
    const job = await this.job({seed: 2, streams: 4, fixed, data: Array(this.times(8)).fill(data), sameMessage: true});
    const ours = await this.onOurs(job, {slots: 2, ctx}, (server) => job.classify(server, {parallel: 2, array: 1}));
    const theirs = this.part(job);
    const peer = await this.onPeer({slots: 2, ctx}, (server) => theirs.chat(server, {parallel: 2}));
    this.report('C: four streams on two slots', 3.5, ours, peer);
  }

  async guards(name, wanted, sameMessage, peerSlots) {
    const fixed = this.tokens(300);
    const count = this.times(500);
    const data = Array.from({length: count}, (_, index) => this.tokens(20 + ((index * 37) % 101)));
    const ctx = this.context(fixed, this.tokens(120));
    const job = await this.job({seed: 3, streams: 1, fixed, data, sameMessage});
    const ours = await this.onOurs(job, {slots: 4, ctx}, (server) => job.classify(server, {parallel: 2, array: 64}));
    const theirs = sameMessage ? this.part(job) : job;
    let best;
    for (const slots of peerSlots) {
      const peer = await this.onPeer({slots, ctx}, (server) => theirs.chat(server, {parallel: slots}));
      if (!best || peer.per_h > best.per_h) best = {...peer, slots};
    }
    this.report(`${name}: guards, fixed part in the ${sameMessage ? 'same' : 'system'} message`, wanted, ours, best);
  }

  async D1() {
    await this.guards('D1', 4, true, [1, 4]);
  }

  async D2() {
    await this.guards('D2', 1.5, false, [1, 4, 8]);
  }

  async E() {
    const fixed = this.tokens(5500);
    const data = this.tokens(20);
    const job = await this.job({seed: 4, streams: 1, fixed, data: [data], sameMessage: true});
    const args =
        oursArgs(this.options, {slots: 1, ctx: this.context(fixed, data), profiles: job.profiles(), checkpoints: join(scratch, 'E')});
    const first = async () => {
      const server = await Server.start('ours', this.options.ours, args, {loaded: true});
      try {
        return await timed(server, () => job.classify(server, {parallel: 1, array: 1}));
      } finally {
        await server.stop();
      }
    };
    const cold = await first();
    const warm = await first();
    this.rows.push({name: 'E: first verdict after a restart, part of the cold one', wanted: 0.05, lower: true,
                    ratio: warm.total_ms / cold.total_ms, ours: warm.total_ms, peer: cold.total_ms});
    say(`E: cold ${cold.total_ms.toFixed(0)} ms, after a restart ${warm.total_ms.toFixed(0)} ms`);
  }

  async F() {
    const clients = 20;
    const length = this.tokens(7000);
    const job = await this.job({seed: 5, streams: 1, fixed: this.tokens(100), data: [length], sameMessage: true});
    const server = await Server.start('ours', this.options.ours, oursArgs(this.options, {slots: 4, ctx: this.context(length, 200)}));
    const metric = async (name) => Number(new RegExp(`^${name} (\\S+)`, 'm').exec((await server.send('GET', '/metrics')).text)[1]);
    try {
      const leave = new AbortController();
      const calls = Array.from({length: clients}, (_, index) => fetch(`http://127.0.0.1:${server.port}/v1/chat/completions`, {
        method: 'POST',
        headers: {'content-type': 'application/json'},
        signal: leave.signal,
        body: JSON.stringify({messages: [{role: 'user', content: `${index} ${job.streams[0].inputs[0]}`}], max_tokens: 5})
      }).catch(() => undefined));
      await new Promise((resolve) => setTimeout(resolve, 2000));
      const before = await metric('pocketfleet_tokens_read_total');
      leave.abort();
      await Promise.all(calls);
      while (await metric('pocketfleet_running') > 0 || await metric('pocketfleet_queued') > 0)
        await new Promise((resolve) => setTimeout(resolve, 20));
      const after = await metric('pocketfleet_tokens_read_total');
      this.rows.push({name: `F: tokens read for each of ${clients} clients after they left`, wanted: 512, lower: true,
                      ratio: (after - before) / clients, ours: after - before, peer: NaN});
      say(`F: ${after - before} tokens were read after ${clients} clients had left`);
    } finally {
      await server.stop();
    }
  }

  // Fairness: what others wait for while a long prompt is read. Nothing was asked of the ratio; both figures are printed.
  async H() {
    const length = this.tokens(7000);
    const setting = {slots: 3, ctx: this.context(length, 200)};
    const server = await Server.start('ours', this.options.ours, oursArgs(this.options, setting));
    const seen = {};
    let texts;
    try {
      const made = new Texts(server, 6);
      texts = {long: await made.of(length), short: await made.of(50), stream: Math.min(20_000, setting.ctx - 100)};
      seen.ours = await beside(server, texts);
    } finally {
      await server.stop();
    }
    const peer = await Server.start('peer', this.options.peer, peerArgs(this.options, setting));
    try {
      seen.peer = await beside(peer, texts);
    } finally {
      await peer.stop();
    }
    for (const [name, key] of [['H: worst gap of a stream beside the prompt (ms)', 'gap_ms'], ['H: short verdict beside it (ms)', 'short_ms']]) {
      this.rows.push({name, wanted: 1, ratio: seen.peer[key] / seen.ours[key], ours: seen.ours[key], peer: seen.peer[key]});
    }
    say(`H: ours read for ${seen.ours.read_ms.toFixed(0)} ms, ${seen.ours.pieces} pieces; peer ${seen.peer.read_ms.toFixed(0)} ms, ${seen.peer.pieces}`);
  }
}

export async function main(args) {
  const options = readOptions(args);
  if (options === undefined) return console.log(kUsage);
  const bench = new Bench(options);
  const load_before = loadavg()[0];
  const line = (file, list) => `${file} ${list.join(' ')}`.replaceAll(root + '/', '').replaceAll(scratch, 'SCRATCH');
  console.log(`${cpus()[0].model}, ${cpus().length} cores; ${options.threads} threads; lengths x ${options.scale}, counts x ${
      options.count}, the peer's part of A, C and D1 ${options.peerPart}; load ${load_before.toFixed(1)}`);
  console.log(`ours: ${line(options.ours, oursArgs(options, {slots: 1, ctx: bench.context(bench.tokens(5500), bench.tokens(1500))})('PORT'))}`);
  console.log(`peer: ${line(options.peer, peerArgs(options, {slots: 1, ctx: bench.context(bench.tokens(5500), bench.tokens(1500))})('PORT'))}`);
  try {
    for (const name of options.only) {
      if (!['A', 'B', 'C', 'D1', 'D2', 'E', 'F', 'H'].includes(name)) throw new Error(`--only knows A, B, C, D1, D2, E, F and H, not ${name}`);
      console.error(name);
      await bench[name]();
    }
  } finally {
    rmSync(scratch, {recursive: true, force: true});
  }
  const figure = (value) => (typeof value === 'number' ? value : value.per_h).toFixed(0);
  console.log('\n| work | ours | llama-server | ratio | wanted |\n|---|---|---|---|---|');
  for (const {name, ours, peer, ratio, wanted, lower} of bench.rows) {
    const met = lower ? ratio <= wanted : ratio >= wanted;
    console.log(`| ${name} | ${figure(ours)} | ${figure(peer)} | ${ratio.toFixed(3)} | ${lower ? 'at most' : 'at least'} ${wanted}${
        met ? '' : ' (missed)'} |`);
  }
  const version = spawnSync(options.peer, ['--version'], {encoding: 'utf8'}).stderr.split('\n').find((text) => text.startsWith('version'));
  const commit = spawnSync('git', ['-C', root, 'rev-parse', '--short', 'HEAD'], {encoding: 'utf8'}).stdout.trim();
  console.log('\n' + JSON.stringify({benchmark: 'verdicts', cpu: cpus()[0].model, threads: options.threads, scale: options.scale,
                                     count: options.count, peer_part: options.peerPart, commit, load_before, load_after: loadavg()[0], peer_version: version,
                                     results: bench.rows}));
}
