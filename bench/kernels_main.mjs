// Starts build/*/bin/kernels_bench for each model and number of threads and prints a table and its JSON lines.
import {execFileSync} from 'node:child_process';
import {existsSync} from 'node:fs';
import {loadavg} from 'node:os';
import {dirname, join} from 'node:path';
import {fileURLToPath} from 'node:url';
import {parseArgs} from 'node:util';

const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));

const HELP = `bench/kernels: plain llama.cpp and our kernels, in one process, in turn

  --program FILE   the program that measures       [build/bench/bin/kernels_bench]
  --model LIST     models, with commas between     [build/synth-0.8b-q4_0.gguf]
  --threads LIST   numbers of threads              [1,2]
  --rounds N       rounds of each                  [5]
  --prompts LIST   tokens to read                  [512,2048]
  --write N        tokens to write; 0: none        [64]

Example: bench/kernels --model build/synth-0.8b-q4_0.gguf,build/synth-0.8b-q4_k.gguf --threads 1 --rounds 3`;

export function main(argv) {
  const {values} = parseArgs({
    args: argv,
    options: {
      help: {type: 'boolean', short: 'h'},
      program: {type: 'string', default: join(ROOT, 'build/bench/bin/kernels_bench')},
      model: {type: 'string', default: join(ROOT, 'build/synth-0.8b-q4_0.gguf')},
      threads: {type: 'string', default: '1,2'},
      rounds: {type: 'string', default: '5'},
      prompts: {type: 'string', default: '512,2048'},
      write: {type: 'string', default: '64'},
    },
  });
  if (values.help) return console.log(HELP);
  if (!existsSync(values.program)) throw new Error(`no ${values.program}: cmake --preset bench && cmake --build --preset bench`);
  console.log(`load ${loadavg()[0].toFixed(1)}; batches of 512, f16 cache, flash attention on for both`);
  console.log('| model | threads | work | llama.cpp, tokens/s | ours | ratio | ratio of the best | spread of both |\n|---|---|---|---|---|---|---|---|');
  const lines = [];
  for (const model of values.model.split(',')) {
    if (!existsSync(model)) throw new Error(`no ${model}: build/bench/bin/synth_model --size 0.8b --type q4_0 ${model}`);
    for (const threads of values.threads.split(',')) {
      const line = execFileSync(values.program, [model, '--threads', threads, '--rounds', values.rounds, '--prompts', values.prompts, '--write', values.write],
                                {encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit']}).trim();
      lines.push(line);
      const result = JSON.parse(line);
      for (const [work, row] of Object.entries(result)) {
        if (!/^(pp|tg)\d+$/.test(work)) continue;
        const percent = row.spread.map((x) => `${(100 * x).toFixed(0)} %`).join(', ');
        console.log(`| ${model.split('/').at(-1)} | ${threads} | ${work} | ${row['llama.cpp'].toFixed(1)} | ${row.ours.toFixed(1)} | ${
            row.ratio.toFixed(2)} | ${row.best_ratio.toFixed(2)} | ${percent} |`);
      }
      console.log(`| | ${threads} | loading, s | ${result.load_s[0]} | ${result.load_s[1]} | | | |`);
    }
  }
  for (const line of lines) console.log(line);
}
