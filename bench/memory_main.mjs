// For each model and setting: what `model inspect` computes, a server that is loaded, and its resident memory.
import {execFileSync, spawn} from 'node:child_process';
import {once} from 'node:events';
import {readFileSync} from 'node:fs';
import {cpus} from 'node:os';
import {basename, join} from 'node:path';
import {createInterface} from 'node:readline';
import {parseArgs} from 'node:util';
import {root} from './binaries.mjs';

const kUsage = `bench/memory: memory as computed and as resident, for models and settings

  --ours FILE   the program   [build/release/bin/pocketfleet]
  --within X    exit code 1 when one is further off than this share   [0.03]
  MODEL...      model files

Example: bench/memory build/synth-0.8b-q4_0.gguf build/synth-0.8b-q8_0.gguf models/scam-guard/scam-guard-q4_0.gguf
`;
const kSettings = [
  ['--ctx', '8192', '--slots', '1'],
  ['--ctx', '2048', '--slots', '4'],
  ['--ctx', '8192', '--slots', '4'],
  ['--ctx', '16384', '--slots', '1', '--kv-type', 'q8_0'],
];

async function resident(binary, model, settings) {
  const server = spawn(binary, ['serve', model, '--port', '0', '--no-tuned', '--checkpoint-disk', '0', '--checkpoint-ram', '0', '--quiet', ...settings],
    {stdio: ['ignore', 'pipe', 'inherit']});
  const exit = once(server, 'exit');
  const lines = createInterface({input: server.stdout});
  const first = await Promise.race([once(lines, 'line'), exit]);
  const url = /listening on (\S+)/.exec(String(first[0]))?.[1];
  if (!url) throw new Error(`the server of ${model} ended with ${first[0]}`);
  while ((await fetch(`${url}/health`)).status !== 200) await new Promise((resolve) => setTimeout(resolve, 100));
  const kib = Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${server.pid}/status`, 'utf8'))[1]);
  server.kill('SIGTERM');
  await exit;
  return kib * 1024;
}

export async function main(argv) {
  const {values, positionals} = parseArgs({args: argv, allowPositionals: true,
    options: {ours: {type: 'string', default: join(root, 'build', 'release', 'bin', 'pocketfleet')}, within: {type: 'string', default: '0.03'},
              help: {type: 'boolean', short: 'h'}}});
  if (values.help || positionals.length === 0) return console.log(kUsage);
  const mib = (bytes) => Math.round(bytes / 2 ** 20);
  const rows = [];
  console.log('| model | settings | computed | resident | off |\n|---|---|---|---|---|');
  for (const model of positionals) {
    for (const settings of kSettings) {
      const {memory} = JSON.parse(execFileSync(values.ours, ['model', 'inspect', model, '--json', '--checkpoint-ram', '0', ...settings]));
      const bytes = await resident(values.ours, model, settings);
      const off = memory.total_bytes / bytes - 1;
      rows.push({model: basename(model), settings: settings.join(' '), computed_bytes: memory.total_bytes, resident_bytes: bytes, off});
      console.log(`| ${basename(model)} | ${settings.join(' ')} | ${mib(memory.total_bytes)} MiB | ${mib(bytes)} MiB | ${(off * 100).toFixed(1)} % |`);
    }
  }
  console.log('\n' + JSON.stringify({benchmark: 'memory', cpu: cpus()[0].model, rows}));
  if (rows.some(({off}) => Math.abs(off) > Number(values.within))) process.exitCode = 1;
}
