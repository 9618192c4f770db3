// Options, the order of the rounds, and the report.
import {spawnSync} from 'node:child_process';
import {readFileSync} from 'node:fs';
import {cpus, loadavg} from 'node:os';
import {join} from 'node:path';
import {parseArgs} from 'node:util';

import {checkSpeedModel, findBinaries, root, speedModel} from './binaries.mjs';
import {firstToken, Numbers, verdictsByChat, verdictsByClassify, writing} from './serve_measure.mjs';
import {Server, undisturbed} from './serve_servers.mjs';

const guard = join(root, 'models', 'scam-guard');

const kUsage = `bench/serve: this server against llama-server, on the same model and threads, one after the other

  --ours FILE           the program to measure             [newest build/*/bin/pocketfleet of bench and release]
  --llama-server FILE   the peer                           [newest .deps/llama-*/bin/llama-server]
  --speed-model FILE    model for times and speeds         [build/synth-0.8b-q4_0.gguf]
  --guard-model FILE    model for verdicts                 [models/scam-guard/scam-guard-q4_0.gguf]
  --threads N           threads of both                    [one a core]
  --rounds N            rounds; each starts both servers   [5]
  --written N           tokens a chat writes               [64]
  --only LIST           of: first, write, verdicts         [all]
  --foreign X           cores' worth of other work at which a sample is taken again  [0.15]
  --tries N             how often at most                  [3]
`;

const kWanted = 0.97;
const kWantedVerdicts = 3;
const kMatrix = '57/5/0/444';
const kClassify = [{array: 506, parallel: 1}, {array: 64, parallel: 1}, {array: 64, parallel: 4}, {array: 16, parallel: 8}];
// Slots and requests at a time. The first is what the contract names; the others look for the peer's best.
const kPeerVerdicts = [{slots: 4, parallel: 4}, {slots: 1, parallel: 1}, {slots: 8, parallel: 8}, {slots: 16, parallel: 16}];

export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

class Samples {
  constructor() {
    this.of = new Map();
  }

  add(what, side, value, {foreign, processor_ms}) {
    const key = `${what} ${side}`;
    if (!this.of.has(key)) this.of.set(key, []);
    this.of.get(key).push({value, foreign, processor_ms});
  }

  values(what, side) {
    return (this.of.get(`${what} ${side}`) ?? []).map(({value}) => value);
  }

  processor(what, side) {
    return median((this.of.get(`${what} ${side}`) ?? []).map(({processor_ms}) => processor_ms));
  }

  foreign(what, side) {
    return Math.max(...(this.of.get(`${what} ${side}`) ?? []).map(({foreign}) => foreign));
  }
}

function readOptions(args) {
  const {values} = parseArgs({
    args,
    options: {
      help: {type: 'boolean'},
      ours: {type: 'string'},
      'llama-server': {type: 'string'},
      'speed-model': {type: 'string'},
      'guard-model': {type: 'string'},
      threads: {type: 'string'},
      rounds: {type: 'string', default: '5'},
      written: {type: 'string', default: '64'},
      only: {type: 'string', default: 'first,write,verdicts'},
      foreign: {type: 'string', default: '0.15'},
      tries: {type: 'string', default: '3'},
    }
  });
  if (values.help) return undefined;
  const options = {
    ...findBinaries({ours: values.ours, peer: values['llama-server']}),
    speed: values['speed-model'] ?? speedModel,
    guard: values['guard-model'] ?? join(guard, 'scam-guard-q4_0.gguf'),
    threads: Number(values.threads ?? cpus().length),
    rounds: Number(values.rounds),
    written: Number(values.written),
    only: values.only.split(','),
    quiet: {allowed: Number(values.foreign), tries: Number(values.tries)},
  };
  for (const name of ['threads', 'rounds', 'written']) {
    if (!Number.isInteger(options[name]) || options[name] < 1) throw new Error(`--${name} must be a whole number of 1 or more`);
  }
  if (options.only.includes('first') || options.only.includes('write')) checkSpeedModel(options.speed, '--speed-model');
  return options;
}

// How each server is started. The peer keeps no checkpoints and no store of old prompts where no prompt comes twice, as both cost
// it time.
function commands(options) {
  const threads = String(options.threads);
  const ours = (model, more) =>
      (port) => ['serve', model, '--port', String(port), '--threads', threads, '--thinking', 'off', '--quiet', '--checkpoint-disk', '0', ...more];
  const peer = (model, slots, perSlot, more) => (port) =>
      ['-m', model, '--port', String(port), '--host', '127.0.0.1', '--jinja', '-t', threads, '-tb', threads, '-np', String(slots),
       '-c', String(slots * perSlot), '-fa', 'on', '--no-webui', '--log-disable', ...more];
  return {
    oursSpeed: ours(options.speed, ['--slots', '4', '--ctx', '2560']),
    peerSpeed: peer(options.speed, 4, 2560, ['--ctx-checkpoints', '0', '--cache-ram', '0']),
    oursGuard: ours(options.guard, ['--slots', '4', '--profile', join(guard, 'profile.json')]),
    peerGuard: (slots) => peer(options.guard, slots, 1024, []),
  };
}

async function measureSpeed(side, start, options, round, samples) {
  const server = await start();
  try {
    const numbers = new Numbers(round + 1);
    await writing(server, numbers, 1, 8);
    const take = async (what, pick, work) => {
      const sample = await undisturbed(server, options.quiet, work);
      const {value} = sample;
      samples.add(what, side, pick(value), sample);
      console.error(`  ${side} ${what}: ${pick(value).toFixed(1)} (processor ${sample.processor_ms.toFixed(0)} ms; others: ${
          sample.foreign.toFixed(2)} cores) ${JSON.stringify(value.timings ?? value.answers?.[0].timings ?? {})}`);
    };
    if (options.only.includes('first')) {
      await take('first 512', ({first_ms}) => first_ms, () => firstToken(server, numbers, 512));
      await take('first 2048', ({first_ms}) => first_ms, () => firstToken(server, numbers, 2048));
    }
    if (options.only.includes('write')) {
      await take('write 1', ({per_s}) => per_s, () => writing(server, numbers, 1, options.written));
      await take('write 4', ({per_s}) => per_s, () => writing(server, numbers, 4, options.written));
    }
  } finally {
    await server.stop();
  }
}

async function measureVerdicts(side, start, settings, options, samples, work) {
  const server = await start();
  try {
    await work(server, settings[0]);
    for (const setting of settings) {
      const sample = await undisturbed(server, options.quiet, () => work(server, setting));
      const {value} = sample;
      if (value.matrix !== kMatrix)
        throw new Error(`${side} decides ${value.matrix} with ${JSON.stringify(setting)}, not ${kMatrix}`);
      const what = `verdicts ${JSON.stringify(setting)}`;
      samples.add(what, side, value.per_s, sample);
      console.error(`  ${side} ${what}: ${value.per_s.toFixed(0)}/s (processor ${sample.processor_ms.toFixed(0)} ms; others: ${
          sample.foreign.toFixed(2)} cores)`);
    }
  } finally {
    await server.stop();
  }
}

function best(samples, side, settings) {
  const all = settings.map((setting) => ({
                             setting,
                             processor: samples.processor(`verdicts ${JSON.stringify(setting)}`, side),
                             values: samples.values(`verdicts ${JSON.stringify(setting)}`, side),
                             foreign: samples.foreign(`verdicts ${JSON.stringify(setting)}`, side)
                           }));
  return all.reduce((a, b) => (median(b.values) > median(a.values) ? b : a));
}

function report(options, samples) {
  const rows = [];
  const add = (name, unit, ours, peer, lowerIsBetter, wanted, foreign, processor) => {
    const ratio = lowerIsBetter ? median(peer) / median(ours) : median(ours) / median(peer);
    rows.push({
      name,
      unit,
      ours: median(ours),
      peer: median(peer),
      ratio,
      wanted,
      ours_range: [Math.min(...ours), Math.max(...ours)],
      peer_range: [Math.min(...peer), Math.max(...peer)],
      most_foreign_cores: foreign,
      processor_ms: processor
    });
  };
  const speed = [
    ['first 512', 'first token after 512 tokens', 'ms', true], ['first 2048', 'first token after 2,048 tokens', 'ms', true],
    ['write 1', 'written, one chat', 'tokens/s', false], ['write 4', 'written, 4 chats', 'tokens/s', false]
  ];
  for (const [what, name, unit, lower] of speed) {
    if (!options.only.includes(what.split(' ')[0])) continue;
    add(name, unit, samples.values(what, 'ours'), samples.values(what, 'peer'), lower, kWanted,
        Math.max(samples.foreign(what, 'ours'), samples.foreign(what, 'peer')),
        [samples.processor(what, 'ours'), samples.processor(what, 'peer')]);
  }
  if (options.only.includes('verdicts')) {
    const ours = best(samples, 'ours', kClassify);
    const four = best(samples, 'peer', kPeerVerdicts.slice(0, 1));
    const peer = best(samples, 'peer', kPeerVerdicts);
    add('verdicts, peer with 4 slots', 'verdicts/s', ours.values, four.values, false, kWantedVerdicts,
        Math.max(ours.foreign, four.foreign), [ours.processor, four.processor]);
    add('verdicts, peer at its best', 'verdicts/s', ours.values, peer.values, false, kWantedVerdicts,
        Math.max(ours.foreign, peer.foreign), [ours.processor, peer.processor]);
    console.log(`verdicts: ours at its best with ${JSON.stringify(ours.setting)}, the peer with ${
        JSON.stringify(peer.setting)}; both decide ${kMatrix}`);
  }
  const digits = (value) => (value >= 100 ? value.toFixed(0) : value.toFixed(1));
  const range = ([low, high]) => `${digits(low)}-${digits(high)}`;
  console.log(
      `\n| | ours | (range) | llama-server | (range) | ratio | wanted | ratio by processor time |\n|---|---|---|---|---|---|---|---|`);
  for (const row of rows) {
    console.log(
        `| ${row.name} (${row.unit}) | ${digits(row.ours)} | ${range(row.ours_range)} | ${digits(row.peer)} | ${
            range(row.peer_range)} ` +
        `| ${row.ratio.toFixed(2)} | ${row.wanted.toFixed(2)} ${row.ratio >= row.wanted ? '' : '(missed)'} | ${
            (row.processor_ms[1] / row.processor_ms[0]).toFixed(2)} |`);
  }
  return rows;
}

export async function main(args) {
  const options = readOptions(args);
  if (options === undefined) return console.log(kUsage);
  const command = commands(options);
  const profile = JSON.parse(readFileSync(join(guard, 'profile.json'), 'utf8'));
  const messages = readFileSync(join(guard, 'test.jsonl'), 'utf8').split('\n').filter(Boolean).map((line) => JSON.parse(line));
  const line = (file, list) => `${file} ${list.join(' ')}`.replaceAll(root + '/', '');
  const started = {};
  const wants = (what) => options.only.includes(what);
  if (wants('first') || wants('write')) {
    started.ours_speed = line(options.ours, command.oursSpeed('PORT'));
    started.peer_speed = line(options.peer, command.peerSpeed('PORT'));
  }
  if (wants('verdicts')) {
    started.ours_verdicts = line(options.ours, command.oursGuard('PORT'));
    started.peer_verdicts = line(options.peer, command.peerGuard(4)('PORT'));
  }
  const load_before = loadavg()[0];
  console.log(`${cpus()[0].model}, ${cpus().length} cores; ${options.threads} threads; ${options.rounds} rounds; load ${
      load_before.toFixed(1)}`);
  for (const [name, text] of Object.entries(started)) console.log(`${name}: ${text}`);

  const samples = new Samples();
  for (let round = 0; round < options.rounds; ++round) {
    console.error(`round ${round + 1}`);
    const work = [
      async () => {
        if (wants('first') || wants('write')) {
          await measureSpeed('ours', () => Server.start('ours', options.ours, command.oursSpeed), options, round, samples);
        }
        if (wants('verdicts')) {
          await measureVerdicts(
              'ours', () => Server.start('ours', options.ours, command.oursGuard), kClassify, options, samples,
              (server, setting) => verdictsByClassify(server, messages, setting));
        }
      },
      async () => {
        if (wants('first') || wants('write')) {
          await measureSpeed('peer', () => Server.start('peer', options.peer, command.peerSpeed), options, round, samples);
        }
        for (const setting of wants('verdicts') ? kPeerVerdicts : []) {
          await measureVerdicts(
              'peer', () => Server.start('peer', options.peer, command.peerGuard(setting.slots)), [setting], options, samples,
              (server, {parallel}) => verdictsByChat(server, messages, profile.instructions, parallel));
        }
      },
    ];
    // Every other round begins with the other one, so that a machine that heats up or cools down favours none.
    for (const step of round % 2 ? work.reverse() : work) await step();
  }

  const rows = report(options, samples);
  // It goes to standard error.
  const peer_version =
      spawnSync(options.peer, ['--version'], {encoding: 'utf8'}).stderr.split('\n').find((text) => text.startsWith('version'));
  console.log('\n' + JSON.stringify({
    benchmark: 'serve',
    cpu: cpus()[0].model,
    cores: cpus().length,
    threads: options.threads,
    rounds: options.rounds,
    written: options.written,
    load_before,
    load_after: loadavg()[0],
    peer_version,
    commands: started,
    results: rows
  }));
}
