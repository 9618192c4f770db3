// Where the benchmarks find the program, its peer and their model, unless they are told.
import {existsSync, readdirSync, statSync} from 'node:fs';
import {dirname, join} from 'node:path';
import {fileURLToPath} from 'node:url';

export const root = join(dirname(fileURLToPath(import.meta.url)), '..');
export const speedModel = join(root, 'build', 'synth-0.8b-q4_0.gguf');

function newest(files) {
  return files.filter(existsSync).sort((a, b) => statSync(b).mtimeMs - statSync(a).mtimeMs)[0];
}

function under(folder, tail) {
  const base = join(root, folder);
  return existsSync(base) ? readdirSync(base).map((name) => join(base, name, tail)) : [];
}

// What was named, or the newest that is built. Throws, and says what to do, when there is none.
export function findBinaries({ours, peer}) {
  const found = {
    ours: ours ?? newest(['bench', 'release'].map((preset) => join(root, 'build', preset, 'bin', 'pocketfleet'))),
    peer: peer ?? newest(under('.deps', 'bin/llama-server').filter((file) => file.includes('llama-'))),
  };
  if (!found.ours)
    throw new Error('no pocketfleet is built: run cmake --preset bench && cmake --build --preset bench, or pass --ours FILE');
  if (!found.peer) throw new Error('no llama-server is built: build the target llama_peers, or pass --llama-server FILE');
  return found;
}

export function checkSpeedModel(file, option) {
  if (existsSync(file)) return;
  throw new Error(`${file} does not exist: write it with synth_model --size 0.8b --type q4_0 FILE, or pass ${option} FILE`);
}
