// Starts one server at a time, talks to it over kept connections, and notes what else the machine was doing meanwhile.
import {spawn} from 'node:child_process';
import {once} from 'node:events';
import {readdirSync, readFileSync} from 'node:fs';
import {Agent, request} from 'node:http';
import {createServer} from 'node:net';

const kReadyWithin_ms = 180_000;
const kLogBytes = 16_384;

async function freePort() {
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const {port} = probe.address();
  probe.close();
  await once(probe, 'close');
  return port;
}

// A script that is stopped leaves no server behind.
const running = new Set();
for (const signal of ['SIGINT', 'SIGTERM']) {
  process.on(signal, () => {
    for (const child of running) child.kill('SIGKILL');
    process.exit(1);
  });
}

export class Server {
  // `args(port)` gives the command line; `side` is "ours" or "peer". `loaded`: returns once the model is loaded, though it may
  // still be warming up.
  static async start(side, binary, args, {loaded = false} = {}) {
    const server = new Server();
    server.side = side;
    server.port = await freePort();
    server.agent = new Agent({keepAlive: true, maxSockets: 64});
    server.process = spawn(binary, args(server.port), {stdio: ['ignore', 'ignore', 'pipe']});
    running.add(server.process);
    server.process.once('exit', () => running.delete(server.process));
    server.log = '';
    server.process.stderr.on('data', (bytes) => {
      server.log = (server.log + bytes).slice(-kLogBytes);
    });
    server.process.on('error', (error) => {
      server.log += error.message;
    });
    const deadline = Date.now() + kReadyWithin_ms;
    for (;;) {
      if (server.process.exitCode !== null || server.process.pid === undefined) throw new Error(`${binary} ended: ${server.log}`);
      const health = await server.send('GET', '/health').catch(() => undefined);
      if (health?.status === 200 || (loaded && health?.text.includes('"warming"'))) return server;
      if (Date.now() > deadline) {
        await server.stop();
        throw new Error(`${binary} was not ready within ${kReadyWithin_ms} ms: ${server.log}`);
      }
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }

  async stop() {
    this.agent.destroy();
    if (this.process.exitCode !== null || this.process.signalCode !== null) return;
    const exit = once(this.process, 'exit');
    this.process.kill('SIGTERM');
    const timer = setTimeout(() => this.process.kill('SIGKILL'), 10_000);
    await exit;
    clearTimeout(timer);
  }

  // The whole answer as text; `onData` sees the pieces as they come.
  send(method, path, body, onData) {
    return new Promise((resolve, reject) => {
      const bytes = body === undefined ? undefined : Buffer.from(JSON.stringify(body));
      const headers = bytes === undefined ? {} : {'content-type': 'application/json', 'content-length': bytes.length};
      const call = request({host: '127.0.0.1', port: this.port, method, path, headers, agent: this.agent}, (answer) => {
        const parts = [];
        answer.on('data', (part) => {
          parts.push(part);
          if (onData) onData(part);
        });
        answer.on('end', () => resolve({status: answer.statusCode, text: Buffer.concat(parts).toString()}));
        answer.on('error', reject);
      });
      // A kept connection may be closed by the server at the very moment it is used again.
      call.on(
          'error',
          (error) => (
              call.reusedSocket && error.code === 'ECONNRESET' ? resolve(this.send(method, path, body, onData)) : reject(error)));
      call.end(bytes);
    });
  }

  async post(path, body) {
    const answer = await this.send('POST', path, body);
    if (answer.status !== 200) throw new Error(`${this.side}: ${path} answered ${answer.status}: ${answer.text.slice(0, 500)}`);
    return JSON.parse(answer.text);
  }

  // A streamed answer: when its first event with output came, when it ended, and what the events said.
  async stream(path, body) {
    const started_ms = performance.now();
    let first_ms;
    let rest = '';
    const events = [];
    const answer = await this.send('POST', path, {...body, stream: true, stream_options: {include_usage: true}}, (part) => {
      const lines = (rest + part.toString('latin1')).split('\n');
      rest = lines.pop();
      for (const line of lines) {
        if (!line.startsWith('data: {')) continue;
        const event = JSON.parse(Buffer.from(line.slice(6), 'latin1').toString());
        events.push(event);
        const choice = event.choices?.[0];
        // With one token allowed, the end tells of the first token even when its bytes are not yet a character.
        if (choice && (choice.text || choice.delta?.content || choice.finish_reason)) first_ms ??= performance.now() - started_ms;
      }
    });
    if (answer.status !== 200) throw new Error(`${this.side}: ${path} answered ${answer.status}: ${answer.text.slice(0, 500)}`);
    const usage = events.findLast((event) => event.usage)?.usage;
    const timings = events.findLast((event) => event.timings)?.timings;
    if (!usage) throw new Error(`${this.side}: ${path} ended its stream without usage: ${answer.text.slice(-500)}`);
    return {started_ms, first_ms, total_ms: performance.now() - started_ms, usage, timings};
  }
}

const kTick_ms = 10;

function processTicks(pid) {
  const fields = readFileSync(`/proc/${pid}/stat`, 'latin1').split(') ')[1].split(' ');
  return Number(fields[11]) + Number(fields[12]);
}

// Processor time of all threads of a process, also of those that have ended since it was last asked, as far as ticks go.
function processor_ms(pid) {
  try {
    return readdirSync(`/proc/${pid}/task`)
               .reduce(
                   (sum, task) => sum + Number(readFileSync(`/proc/${pid}/task/${task}/schedstat`, 'latin1').split(' ')[0]), 0) /
        1e6;
  } catch {
    return NaN;
  }
}

// Time in which processors were busy for somebody else: what all did, less the server and this script. Time stolen by a host
// counts.
export class Watch {
  constructor(server) {
    this.server = server;
    this.started_ms = performance.now();
    this.busy = this.others();
  }

  others() {
    try {
      const [user, nice, system, , , irq, softirq, steal] =
          readFileSync('/proc/stat', 'latin1').split('\n')[0].split(/\s+/).slice(1).map(Number);
      return user + nice + system + irq + softirq + steal - processTicks(this.server.process.pid) - processTicks(process.pid);
    } catch {
      return 0;
    }
  }

  // Cores' worth of foreign work since the start.
  foreign() {
    return Math.max(0, ((this.others() - this.busy) * kTick_ms) / Math.max(kTick_ms, performance.now() - this.started_ms));
  }
}

// Runs `work` again, a few times, while others use the machine; what was least disturbed counts.
export async function undisturbed(server, {allowed, tries}, work) {
  let best;
  for (let attempt = 0; attempt < tries; ++attempt) {
    const watch = new Watch(server);
    const processor_before_ms = processor_ms(server.process.pid);
    const value = await work(attempt);
    const processor = processor_ms(server.process.pid) - processor_before_ms;
    const foreign = watch.foreign();
    if (best === undefined || foreign < best.foreign) best = {value, foreign, processor_ms: processor};
    if (best.foreign <= allowed) break;
  }
  return best;
}
