// Starts the real server for a test file and ends it afterwards. One helper for all suites.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
export const root = join(here, '..', '..');
export const models = process.env.POCKETFLEET_MODELS ?? join(root, 'models');
export const binary = process.env.POCKETFLEET ?? join(root, 'build', 'release', 'bin', 'pocketfleet');
export const shared = join(root, '..', 'shared');
export const guard = join(models, 'scam-guard', 'scam-guard-q4_0.gguf');
export const profile = join(models, 'scam-guard', 'profile.json');
export const systemPrompt = readFileSync(join(models, 'scam-guard', 'prompt.txt'), 'utf8');

export class Server {
  // Resolves once the port is bound, or rejects with the exit code when the program ends before.
  static async start({ model = guard, args = ['--profile', profile], ready = true } = {}) {
    const server = new Server();
    // Tests leave nothing in the user's cache, and find nothing there.
    const disk = args.some((argument) => argument.startsWith('--checkpoint-')) ? [] : ['--checkpoint-disk', '0'];
    server.process = spawn(binary, ['serve', model, '--port', '0', '--threads', '1', '--no-tuned', ...disk, ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
    server.log = '';
    server.process.stderr.on('data', (bytes) => { server.log += bytes; });
    server.exit = once(server.process, 'exit');
    const lines = createInterface({ input: server.process.stdout });
    const url = new Promise((resolve) => lines.on('line', (line) => {
      const match = /listening on (http:\/\/\S+)/.exec(line);
      if (match) resolve(match[1]);
    }));
    const first = await Promise.race([url, server.exit]);
    if (Array.isArray(first)) throw Object.assign(new Error(`the server ended: ${server.log}`), { code: first[0], signal: first[1], log: server.log });
    server.url = first;
    if (ready) await server.ready();
    return server;
  }

  async ready() {
    const deadline = Date.now() + 120_000;
    while (Date.now() < deadline) {
      const answer = await fetch(`${this.url}/health`);
      if (answer.status === 200) return;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    throw new Error(`not ready: ${this.log}`);
  }

  async stop() {
    if (this.process.exitCode === null && this.process.signalCode === null) this.process.kill('SIGTERM');
    const [code, signal] = await this.exit;
    return { code, signal };
  }

  async post(path, body, headers = {}) {
    const answer = await fetch(this.url + path, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: typeof body === 'string' || body instanceof Uint8Array ? body : JSON.stringify(body),
    });
    const text = await answer.text();
    let json;
    try { json = JSON.parse(text); } catch { json = undefined; }
    return { status: answer.status, headers: answer.headers, text, json };
  }

  chat(body, headers) {
    return this.post('/v1/chat/completions', body, headers);
  }

  async metric(name) {
    const text = await (await fetch(`${this.url}/metrics`)).text();
    const line = text.split('\n').find((candidate) => candidate.startsWith(name + ' ') || candidate.startsWith(name + '{'));
    return line === undefined ? undefined : Number(line.slice(line.lastIndexOf(' ') + 1));
  }

  async health() {
    return (await fetch(`${this.url}/health`)).json();
  }

  async waitFor(condition, within_ms = 10_000) {
    const deadline = Date.now() + within_ms;
    while (!(await condition())) {
      if (Date.now() > deadline) throw new Error(`gave up waiting: ${condition}`);
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  }

  // Waits until nothing runs and nothing waits.
  async idle(within_ms = 10_000) {
    await this.waitFor(async () => {
      const { running, queued } = await this.health();
      return running === 0 && queued === 0;
    }, within_ms);
  }
}

export const review = (text) => [
  { role: 'system', content: systemPrompt },
  { role: 'user', content: text },
];

export function testSplit() {
  return readFileSync(join(models, 'scam-guard', 'test.jsonl'), 'utf8').split('\n').filter(Boolean).map((line) => JSON.parse(line));
}

// Counts [caught, missed, false alarms, right] of risk levels given as digits.
export function confusion(samples, levels) {
  const counts = [0, 0, 0, 0];
  samples.forEach((sample, index) => {
    const flagged = Number(levels[index]) >= 4;
    counts[sample.label === 'spam' ? (flagged ? 0 : 1) : (flagged ? 2 : 3)] += 1;
  });
  return counts;
}

// What a refusal may take and how much memory may grow; builds with sanitizers are allowed more of both.
const sanitized = process.env.POCKETFLEET_SANITIZED === '1';
export const soon_ms = sanitized ? 2_000 : 50;
export const growth_kb = (64 << 10) * (sanitized ? 8 : 1);

// Asks so many times; the last answer and the shortest time, since the machine may be busy with others.
export async function fastest(times, ask) {
  let ms = Infinity;
  let answer;
  for (let round = 0; round < times; ++round) {
    const start = performance.now();
    answer = await ask();
    ms = Math.min(ms, performance.now() - start);
  }
  return { answer, ms };
}

// Runs `work` over `items`, so many at a time.
export async function mapLimit(items, limit, work) {
  const results = new Array(items.length);
  let next = 0;
  await Promise.all(Array.from({ length: limit }, async () => {
    while (next < items.length) {
      const index = next++;
      results[index] = await work(items[index], index);
    }
  }));
  return results;
}
