// Options, the order of the rounds, and the report of bench/tunnel.
import {spawnSync} from 'node:child_process';
import {existsSync, readdirSync, statSync} from 'node:fs';
import {cpus, loadavg} from 'node:os';
import {join} from 'node:path';
import {parseArgs} from 'node:util';

import {root} from './binaries.mjs';
import {bulk, idleMemory, latencies, percentile, recoveries} from './tunnel_measure.mjs';
import {startPaths} from './tunnel_paths.mjs';
import {endAll, find, raiseOpenFiles, version} from './tunnel_programs.mjs';

const kUsage = `bench/tunnel: our relay and tunnel against HAProxy, alone and in front of ssh -R, in turns on loopback

  --ours FILE     the program to measure                 [newest of build/bench and build/release: bin/pocketfleet]
  --agents FILE   tunnel_agents, for memory and recovery [newest of build/bench and build/release: bin/tunnel_agents]
  --only LIST     of: latency, download, upload, memory, recovery   [all]
  --rounds N      rounds; what counts is the median      [5]
  --size BYTES    of all bodies of one sample together   [1073741824]
  --requests N    of one sample of latency               [2000]
  --tunnels N     idle tunnels when memory is read       [9000]
  --threads N     of the relay and of HAProxy            [2]
  --json          nothing on standard output but the line of JSON

Needs: haproxy, openssh-server, nginx (scripts/setup --dev installs them), curl, openssl.
Example: bench/tunnel --only latency,download --rounds 3 --size 268435456
`;

const kWorks = ['latency', 'download', 'upload', 'memory', 'recovery'];
const kStreams = [1, 50];
const kWarm = 200;
const kRecovering = 1000;
const kOtherFiles = 300;  // of a program beside its tunnels
const kWanted = {
  added_p50_ms: 1,
  per_processor: 0.8,
  kib_per_tunnel: 64,
  peak_over_mean: 2
};

const say = (text) => console.error(`  ${text}`);

export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

// What was named, or the newest that is built without sanitizers.
function built(named, name, option) {
  const files = ['bench', 'release'].map((preset) => join(root, 'build', preset, 'bin', name)).filter(existsSync);
  const file = named ?? files.sort((a, b) => statSync(b).mtimeMs - statSync(a).mtimeMs)[0];
  if (file === undefined) {
    throw new Error(`no ${name} is built: run cmake --preset bench && cmake --build --preset bench, or pass ${option} FILE`);
  }
  if (!existsSync(file)) throw new Error(`${file} does not exist: pass another ${option} FILE`);
  return file;
}

function readOptions(args) {
  const {values} = parseArgs({
    args,
    options: {
      help: {type: 'boolean', short: 'h'},
      ours: {type: 'string'},
      agents: {type: 'string'},
      only: {type: 'string', default: kWorks.join(',')},
      rounds: {type: 'string', default: '5'},
      size: {type: 'string', default: String(1 << 30)},
      requests: {type: 'string', default: '2000'},
      tunnels: {type: 'string', default: '9000'},
      threads: {type: 'string', default: '2'},
      json: {type: 'boolean', default: false},
    }
  });
  if (values.help) return undefined;
  const only = values.only.split(',');
  for (const name of only) {
    if (!kWorks.includes(name)) throw new Error(`--only knows ${kWorks.join(', ')}, not ${name}`);
  }
  const numbers = {rounds: 1, size: 10_000_000, requests: 100, tunnels: 1, threads: 1};
  for (const [name, least] of Object.entries(numbers)) {
    numbers[name] = Number(values[name]);
    if (!Number.isInteger(numbers[name]) || numbers[name] < least)
      throw new Error(`--${name} must be a whole number of ${least} or more`);
  }
  const options = {only, ...numbers, json: values.json, ours: built(values.ours, 'pocketfleet', '--ours')};
  if (only.includes('memory') || only.includes('recovery')) {
    options.agents = built(values.agents, 'tunnel_agents', '--agents');
    const most = (only.includes('memory') ? Math.max(options.tunnels, kRecovering) : kRecovering) + kOtherFiles;
    const room = raiseOpenFiles(most) - kOtherFiles;
    if (room < 1)
      throw new Error(`a program may have ${room + kOtherFiles} files open, which is too few: raise the limit (ulimit -n)`);
    options.recovering = Math.min(kRecovering, room);
    if (only.includes('memory') && room < options.tunnels) {
      say(`a program may have ${room + kOtherFiles} files open and the limit cannot be raised: ${room} tunnels and not ${
          options.tunnels}`);
      options.tunnels = room;
    }
  }
  return options;
}

class Samples {
  constructor() {
    this.of = new Map();
    this.most_foreign_cores = 0;
  }

  add(measure, key, value) {
    const name = `${measure} of ${key}`;
    if (!this.of.has(name)) this.of.set(name, []);
    this.of.get(name).push(value);
  }

  values(measure, key) { return this.of.get(`${measure} of ${key}`) ?? []; }

  median(measure, key) { return median(this.values(measure, key)); }
}

async function measurePaths(options, samples) {
  const {target, paths} = await startPaths(options, say);
  // Nothing counts that is there only the first time: pages of files, code, connections inside.
  for (const path of paths) await latencies(path, {count: 20, warm: 0});
  for (const direction of ['download', 'upload']) {
    if (!options.only.includes(direction)) continue;
    for (const streams of kStreams) await bulk(paths[0], target, {direction, streams, size: options.size});
  }
  for (let round = 0; round < options.rounds; ++round) {
    console.error(`round ${round + 1}`);
    // Each round begins with another one, so that a machine that heats up or cools down favours none.
    const order = [...paths.slice(round % paths.length), ...paths.slice(0, round % paths.length)];
    if (options.only.includes('latency')) {
      const seen = {};
      for (const path of order) {
        const times = await latencies(path, {count: options.requests, warm: kWarm});
        seen[path.key] = {p50: percentile(times, 0.5), p99: percentile(times, 0.99)};
        say(`${path.label}: p50 ${seen[path.key].p50.toFixed(3)} ms, p99 ${seen[path.key].p99.toFixed(3)} ms`);
      }
      for (const {key} of paths) {
        for (const part of ['p50', 'p99']) {
          samples.add(part, key, seen[key][part]);
          samples.add(`added ${part}`, key, seen[key][part] - seen.direct[part]);
        }
      }
    }
    for (const direction of ['download', 'upload']) {
      if (!options.only.includes(direction)) continue;
      for (const streams of kStreams) {
        for (const path of order) {
          const {mb_per_s, public_s_per_gb, far_s_per_gb, foreign} =
              await bulk(path, target, {direction, streams, size: options.size});
          const kind = `${direction} ${streams}`;
          samples.add(`${kind} rate`, path.key, mb_per_s);
          samples.add(`${kind} processor`, path.key, public_s_per_gb + far_s_per_gb);
          samples.add(`${kind} processor, public side`, path.key, public_s_per_gb);
          samples.most_foreign_cores = Math.max(samples.most_foreign_cores, foreign);
          say(`${path.label}: ${kind}: ${mb_per_s.toFixed(0)} MB/s, processor ${public_s_per_gb.toFixed(2)} + ${
              far_s_per_gb.toFixed(2)} s/GB; others: ${foreign.toFixed(2)} cores`);
        }
      }
    }
  }
  return paths;
}

const kinds = (options) => ['download', 'upload']
                               .filter((name) => options.only.includes(name))
                               .flatMap((name) => kStreams.map((streams) => `${name} ${streams}`));

const title = (kind) =>
    kind.replace(/^(\w+) (\d+)/, (_, name, streams) => `${name}, ${streams} ${streams === '1' ? 'stream' : 'streams'}`);

// One column for each way.
function absoluteRows(options, samples, paths) {
  const rows = [];
  const add = (name, measure, digits, without = []) => {
    rows.push({
      name,
      digits,
      of: Object.fromEntries(paths.filter(({key}) => !without.includes(key)).map(({key}) => {
        const values = samples.values(measure, key);
        return [key, {median: median(values), least: Math.min(...values), most: Math.max(...values)}];
      }))
    });
  };
  if (options.only.includes('latency')) {
    for (const part of ['p50', 'p99']) add(`${part} (ms)`, part, 3);
    for (const part of ['p50', 'p99']) add(`added ${part} (ms)`, `added ${part}`, 3, ['direct']);
  }
  for (const kind of kinds(options)) {
    add(`${title(kind)} (MB/s)`, `${kind} rate`, 0);
    add(`${title(kind)}, processor (s/GB)`, `${kind} processor`, 2);
    add(`${title(kind)}, processor of the public side (s/GB)`, `${kind} processor, public side`, 2, ['direct']);
  }
  return rows;
}

// Ours to the others: above 1 ours is better.
function ratioRows(options, samples, paths) {
  const rows = [];
  const add = (name, measure, lowerIsBetter, wanted) => {
    const of = {};
    for (const {key: ours} of paths.filter(({key}) => key === 'h2' || key === 'quic')) {
      for (const peer of ['haproxy', 'ssh']) {
        const [a, b] = [samples.median(measure, ours), samples.median(measure, peer)];
        of[`${ours} ${peer}`] = lowerIsBetter ? b / a : a / b;
      }
    }
    rows.push({name, wanted, of});
  };
  for (const kind of kinds(options)) {
    add(title(kind), `${kind} rate`, false);
    add(`${title(kind)}, by processor time`, `${kind} processor`, true, kWanted.per_processor);
    add(`${title(kind)}, by processor time of the public side`, `${kind} processor, public side`, true);
  }
  return rows;
}

function wantedRows(options, samples, paths, memory, seen) {
  const rows = [];
  if (options.only.includes('latency')) {
    for (const {key, label} of paths.filter(({key}) => key === 'h2' || key === 'quic')) {
      rows.push(
          {name: `added p50, ${label} (ms)`, figure: samples.median('added p50', key), digits: 3, below: kWanted.added_p50_ms});
      rows.push({name: `added p99, ${label} (ms)`, figure: samples.median('added p99', key), digits: 3});
    }
  }
  if (memory) {
    rows.push({
      name: `memory of the relay for an idle tunnel, ${memory.tunnels} of them (KiB)`,
      figure: memory.kib_per_tunnel,
      digits: 1,
      below: kWanted.kib_per_tunnel
    });
  }
  if (seen) {
    const all = (name) => seen.map((one) => one[name]);
    rows.push({
      name: `all of ${options.recovering} agents back after a kill and 3 s without a relay (s from the kill)`,
      figure: median(all('ms')) / 1000,
      digits: 1
    });
    rows.push({name: 'connections in the busiest second', figure: median(all('peak_per_s')), digits: 0});
    rows.push({name: 'the same over the mean', figure: median(all('peak_over_mean')), digits: 2, below: kWanted.peak_over_mean});
  }
  return rows.map((row) => ({...row, met: row.below === undefined ? undefined : row.figure < row.below}));
}

function print({absolute, ratios, wanted}, paths) {
  const line = (cells) => console.log(`| ${cells.join(' | ')} |`);
  const head = (cells) => {
    console.log('');
    line(cells);
    console.log('|---'.repeat(cells.length) + '|');
  };
  if (absolute.length > 0) {
    head(['median (range)', ...paths.map(({label}) => label)]);
    for (const {name, digits, of} of absolute) {
      line([
        name, ...paths.map(({key}) => {
          if (!of[key]) return '-';
          const [middle, least, most] = [of[key].median, of[key].least, of[key].most].map((value) => value.toFixed(digits));
          return `${middle} (${least} to ${most})`;
        })
      ]);
    }
  }
  if (ratios.length > 0) {
    const columns = Object.keys(ratios[0].of);
    const label = (key) => paths.find((path) => path.key === key).label;
    head([
      'ours to theirs; above 1 ours is better', ...columns.map((both) => both.split(' ').map(label).join(' to ')),
      'wanted of HAProxy alone'
    ]);
    for (const {name, wanted: least, of} of ratios) {
      const missed = least !== undefined && columns.some((both) => both.endsWith(' haproxy') && of[both] < least);
      line([
        name, ...columns.map((both) => of[both].toFixed(2)),
        least === undefined ? '-' : `at least ${least}${missed ? ' (missed)' : ''}`
      ]);
    }
  }
  if (wanted.length > 0) {
    head(['ours', 'figure', 'wanted']);
    for (const {name, figure, digits, below, met} of wanted) {
      line([name, figure.toFixed(digits), below === undefined ? '-' : `below ${below}${met ? '' : ' (missed)'}`]);
    }
  }
}

// Which programs there are. Says what is missing before anything is started.
function findPrograms(wantsPaths) {
  find('openssl', 'openssl');
  if (!wantsPaths) return {};
  find('sshd', 'openssh-server');
  find('ssh-keygen', 'openssh-client');
  return {
    haproxy: version(find('haproxy', 'haproxy'), ['-v']),
    ssh: version(find('ssh', 'openssh-client'), ['-V']),
    nginx: version(find('nginx', 'nginx-light'), ['-v']),
    curl: version(find('curl', 'curl'), ['--version']),
  };
}

async function measure(options, wantsPaths) {
  const samples = new Samples();
  const load_before = loadavg()[0];
  let memory;
  let seen;
  let paths = [];
  try {
    // Before the ways are started, so that nothing else runs meanwhile.
    if (options.only.includes('memory')) {
      console.error('memory');
      memory = await idleMemory(options, options.tunnels);
      say(`${memory.tunnels} tunnels up in ${(memory.up_ms / 1000).toFixed(1)} s: ${memory.before_kib} KiB before, ${
          memory.after_kib} KiB after, ${memory.kib_per_tunnel.toFixed(1)} KiB each`);
    }
    if (options.only.includes('recovery')) {
      console.error('recovery');
      seen = await recoveries(options, options.recovering, options.rounds, say);
    }
    if (wantsPaths) paths = await measurePaths(options, samples);
  } finally {
    endAll();
  }
  return {samples, memory, seen, paths, load_before, load_after: loadavg()[0]};
}

export async function main(args) {
  const options = readOptions(args);
  if (options === undefined) return console.log(kUsage);
  const wantsPaths = ['latency', 'download', 'upload'].some((work) => options.only.includes(work));
  const versions = findPrograms(wantsPaths);
  if (!options.json) {
    console.log(`${cpus()[0].model}, ${cpus().length} cores; relay and HAProxy with ${options.threads} threads; ${
        options.rounds} rounds; samples of ${options.size} bytes and ${options.requests} requests; load ${
        loadavg()[0].toFixed(1)}`);
    for (const [name, text] of Object.entries(versions)) console.log(`${name}: ${text}`);
  }
  const {samples, memory, seen, paths, load_before, load_after} = await measure(options, wantsPaths);
  const results = {
    absolute: absoluteRows(options, samples, paths),
    ratios: ratioRows(options, samples, paths),
    wanted: wantedRows(options, samples, paths, memory, seen)
  };
  if (!options.json) {
    print(results, paths);
    if (kinds(options).length > 0)
      console.log(`\nothers used at most ${samples.most_foreign_cores.toFixed(2)} cores during a sample`);
    console.log('');
  }
  const commit = spawnSync('git', ['-C', root, 'rev-parse', '--short', 'HEAD'], {encoding: 'utf8'}).stdout.trim();
  console.log(JSON.stringify({
    benchmark: 'tunnel',
    cpu: cpus()[0].model,
    cores: cpus().length,
    threads: options.threads,
    rounds: options.rounds,
    size_bytes: options.size,
    requests: options.requests,
    commit,
    load_before,
    load_after,
    most_foreign_cores: samples.most_foreign_cores,
    versions,
    memory,
    recoveries: seen,
    results
  }));
}
