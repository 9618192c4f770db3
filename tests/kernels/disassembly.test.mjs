// The innermost loops of the kernels keep everything in registers: a compiler that starts to put sums on the stack at each step halves
// the speed and breaks nothing else, so only a look at its output tells.
import assert from 'node:assert/strict';
import {execFileSync} from 'node:child_process';
import {existsSync} from 'node:fs';
import test from 'node:test';

const library = process.env.POCKETFLEET_KERNELS_LIBRARY;
const WORK = /^v(pmaddubsw|fn?m(add|sub)\d+ps|pdpbusd|dpbf16ps)\b/;
const LEAST_WORK = 4;
const WIDEST_GAP = 12;

/** [{name, lines: [{address, text}]}] of a whole disassembly. */
function functionsOf(listing) {
  const functions = [];
  for (const line of listing.split('\n')) {
    const head = /^([0-9a-f]+) <(.*)>:$/.exec(line);
    if (head) functions.push({name: head[2], lines: []});
    const code = /^\s*([0-9a-f]+):\s+(.*)$/.exec(line);
    if (code && functions.length > 0) functions.at(-1).lines.push({address: parseInt(code[1], 16), text: code[2].trim()});
  }
  return functions;
}

/** The loops of a function that hold no other loop: from a jump's target to the jump. */
export function innermostLoops({lines}) {
  const at = new Map(lines.map((line, index) => [line.address, index]));
  const loops = [];
  lines.forEach(({text, address}, index) => {
    const jump = /^j[a-z]+\s+([0-9a-f]+)/.exec(text);
    const target = jump && parseInt(jump[1], 16);
    if (jump && target <= address && at.has(target)) loops.push([at.get(target), index]);
  });
  return loops.filter(([from, to]) => !loops.some(([f, t]) => (f !== from || t !== to) && f >= from && t <= to))
      .map(([from, to]) => lines.slice(from, to + 1).map(({text}) => text));
}

/**
 * Stores of vectors to the stack where a loop multiplies. A loop over whole blocks keeps its float sums in memory, on purpose, and touches them
 * once a block: so, where bytes are multiplied, only what stands among these multiplications counts.
 */
export function spills(loop) {
  const stores = (part) => part.filter((text) => /^vmov\w+\s+%[yz]mm\d+,.*\(%r[sb]p/.test(text));
  const products = loop.flatMap((text, index) => /^v(pmaddubsw|pdpbusd)\b/.test(text) ? [index] : []);
  if (products.length === 0) return stores(loop);
  return products.slice(1).flatMap((index, n) => index - products[n] <= WIDEST_GAP ? stores(loop.slice(products[n], index)) : []);
}

test('innermost loops of the kernels keep their vectors in registers', (t) => {
  if (!library || !existsSync(library)) return t.skip('POCKETFLEET_KERNELS_LIBRARY names no library');
  if (process.arch !== 'x64') return t.skip(`knows the instructions of x64 only, and this is ${process.arch}`);
  const listing = execFileSync('objdump', ['-d', '-C', '--no-show-raw-insn', library], {encoding: 'utf8', maxBuffer: 1 << 28});
  let looked = 0;
  const bad = [];
  for (const fn of functionsOf(listing)) {
    for (const loop of innermostLoops(fn)) {
      if (loop.filter((text) => WORK.test(text)).length < LEAST_WORK) continue;
      looked++;
      const found = spills(loop);
      if (found.length > 0) bad.push(`${fn.name.slice(0, 160)}: ${found.length} of ${loop.length} instructions, such as ${found[0]}`);
    }
  }
  assert.ok(looked >= 20, `only ${looked} loops were found: is this the library of the kernels?`);
  assert.deepEqual(bad, []);
});

const at = (texts) => ({name: 'tile', lines: texts.map((text, index) => ({text, address: 0x10 + index * 4}))});

test('a sum that goes through the stack at each step is found', () => {
  const loops = innermostLoops(at(['vpmaddubsw %ymm1,%ymm2,%ymm3', 'vpaddw 0x20(%rsp),%ymm3,%ymm3', 'vmovdqa %ymm3,0x20(%rsp)',
                                   'vpmaddubsw %ymm1,%ymm4,%ymm5', 'jne    10 <tile+0x10>']));
  assert.equal(loops.length, 1);
  assert.deepEqual(spills(loops[0]), ['vmovdqa %ymm3,0x20(%rsp)']);
});

test('a float sum that goes through the stack is found wherever it stands in its loop', () => {
  const [loop] = innermostLoops(at(['vfmadd231ps %ymm1,%ymm2,%ymm3', 'vmovaps %ymm3,-0x40(%rbp)', 'jb     10 <tile+0x10>']));
  assert.equal(spills(loop).length, 1);
});

test('a constant that is read from the stack, and a sum stored once a block, are no spills', () => {
  const texts = ['vpmaddubsw %ymm1,%ymm2,%ymm3', 'vpand  0x60(%rsp),%ymm4,%ymm5', 'vpmaddubsw %ymm5,%ymm2,%ymm3',
                 'vmovaps %ymm3,0x20(%rsp)', 'jne    10 <tile+0x10>'];
  assert.deepEqual(spills(innermostLoops(at(texts))[0]), []);
});
