// Programs that bench/tunnel starts, what they use of the machine, and the folder for their files. All of it ends with it.
import {spawn, spawnSync} from 'node:child_process';
import {once} from 'node:events';
import {existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmdirSync, rmSync, writeFileSync} from 'node:fs';
import {connect, createServer} from 'node:net';
import {cpus, tmpdir} from 'node:os';
import {basename, join} from 'node:path';
import {createInterface} from 'node:readline';

const kLogBytes = 16_384;
const kTick_ms = 10;
const kSshdFolder = '/run/sshd';

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const running = new Set();
let work;
let madeSshdFolder = false;

// The folder for keys, settings and bodies; made on first use.
export function folder() {
  work ??= mkdtempSync(join(tmpdir(), 'pocketfleet-bench-tunnel-'));
  return work;
}

// As root, sshd wants a folder that is otherwise there only while it runs as a service. Made here, it goes again with the script.
export function makeSshdFolder() {
  if (process.getuid() !== 0 || existsSync(kSshdFolder)) return;
  mkdirSync(kSshdFolder, {mode: 0o755});
  madeSshdFolder = true;
}

export function endAll() {
  for (const program of running) program.kill();
}

process.on('exit', () => {
  endAll();
  if (work) rmSync(work, {recursive: true, force: true});
  if (madeSshdFolder) {
    try {
      rmdirSync(kSshdFolder);
    } catch {
    }
  }
});
for (const [signal, code] of [['SIGINT', 130], ['SIGTERM', 143], ['SIGHUP', 129]]) process.on(signal, () => process.exit(code));

// The fields of /proc/PID/stat after the name, or nothing when the process has gone.
function statFields(pid) {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'latin1');
    return text.slice(text.lastIndexOf(') ') + 2).split(' ').map((field, at) => (at === 0 ? field : Number(field)));
  } catch {
    return undefined;
  }
}

export function descendants(pid) {
  const children = new Map();
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    const parent = statFields(name)?.[1];
    if (parent !== undefined) children.set(parent, [...(children.get(parent) ?? []), Number(name)]);
  }
  const found = [];
  for (const next = [pid]; next.length > 0;) {
    const mine = children.get(next.pop()) ?? [];
    found.push(...mine);
    next.push(...mine);
  }
  return found;
}

// Processor time, user and system, that these processes have used since they began.
export function processor_s(pids) {
  const ticks = pids.reduce((sum, pid) => {
    const fields = statFields(pid);
    if (!fields) throw new Error(`process ${pid} ended while it was measured`);
    return sum + fields[11] + fields[12];
  }, 0);
  return (ticks * kTick_ms) / 1000;
}

export const resident_kib = (pid) => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))[1]);

// Cores' worth of work by others: what all processors did, less this script and everything it started. Good to about a tenth.
export class Watch {
  constructor() {
    this.begun_ms = performance.now();
    this.others = Watch.othersNow();
  }

  static othersNow() {
    const [user, nice, system, , , irq, softirq, steal] =
        readFileSync('/proc/stat', 'latin1').split('\n')[0].split(/\s+/).slice(1).map(Number);
    // With those that have ended and been waited for, so that nothing is lost when a client goes.
    const mine = [process.pid, ...descendants(process.pid)].reduce((sum, pid) => {
      const fields = statFields(pid);
      return fields ? sum + fields[11] + fields[12] + fields[13] + fields[14] : sum;
    }, 0);
    return user + nice + system + irq + softirq + steal - mine;
  }

  foreign() {
    const span_ms = Math.max(kTick_ms, performance.now() - this.begun_ms);
    return Math.min(cpus().length, Math.max(0, ((Watch.othersNow() - this.others) * kTick_ms) / span_ms));
  }
}

export class Program {
  constructor(file, args) {
    this.name = basename(file);
    this.process = spawn(file, args, {stdio: ['ignore', 'pipe', 'pipe']});
    this.log = '';
    this.lines = [];
    this.process.stderr.on('data', (bytes) => {
      this.log = (this.log + bytes).slice(-kLogBytes);
    });
    createInterface({input: this.process.stdout}).on('line', (line) => this.lines.push(line));
    running.add(this);
    this.gone = new Promise((resolve) => {
      const end = (how) => {
        this.ended ??= how;
        running.delete(this);
        resolve();
      };
      this.process.once('exit', (code, signal) => end(code ?? signal));
      this.process.once('error', (error) => {
        this.log += error.message;
        end('an error');
      });
    });
    // When its output has been read as well.
    this.closed = new Promise((resolve) => {
      this.process.once('close', resolve);
      this.process.once('error', resolve);
    });
  }

  get pid() { return this.process.pid; }

  // What `wanted` gives for the first line, from the line `from` on, that it gives something for.
  async line(wanted, {within_ms, from = 0}) {
    const until_ms = performance.now() + within_ms;
    for (let at = from;;) {
      for (; at < this.lines.length; ++at) {
        const value = wanted(this.lines[at]);
        if (value) return value;
      }
      this.check();
      if (performance.now() > until_ms) {
        throw new Error(`${this.name} did not say within ${Math.round(within_ms / 1000)} s what was waited for. It said:\n${
            this.lines.slice(-10).join('\n')}\n${this.log}`);
      }
      await sleep(20);
    }
  }

  // Until the port takes connections.
  async listening(port, within_ms = 20_000) {
    const until_ms = performance.now() + within_ms;
    while (!await takes(port)) {
      this.check();
      if (performance.now() > until_ms) throw new Error(`${this.name} does not listen on port ${port}: ${this.log}`);
      await sleep(50);
    }
  }

  check() {
    if (this.ended !== undefined) throw new Error(`${this.name} ended with ${this.ended}: ${this.log}`);
  }

  // At once, and all that it has started: nothing here has anything to save.
  kill() {
    if (this.ended !== undefined || this.pid === undefined) return;
    for (const pid of [...descendants(this.pid), this.pid]) {
      try {
        process.kill(pid, 'SIGKILL');
      } catch {
      }
    }
  }

  async stop() {
    this.kill();
    await this.gone;
  }
}

function takes(port) {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => {
      socket.destroy();
      resolve(true);
    });
    socket.on('error', () => resolve(false));
  });
}

export async function freePort() {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const {port} = server.address();
  server.close();
  await once(server, 'close');
  return port;
}

// The whole path of a program, since sshd must be started by it, and since some lie where only root looks.
export function find(program, packageName) {
  for (const place of [...(process.env.PATH ?? '').split(':'), '/usr/sbin', '/sbin', '/usr/local/sbin']) {
    if (place.startsWith('/') && existsSync(join(place, program))) return join(place, program);
  }
  throw new Error(`${program} is missing: scripts/setup --dev installs it (package ${packageName})`);
}

export function run(file, args) {
  const result = spawnSync(file, args, {encoding: 'utf8'});
  if (result.status !== 0) throw new Error(`${file} ${args.join(' ')}: ${result.error?.message ?? result.stderr}`);
}

// The first line that a program says of its version, wherever it says it.
export function version(file, args) {
  const {stdout, stderr} = spawnSync(file, args, {encoding: 'utf8'});
  return `${stdout ?? ''}${stderr ?? ''}`.split('\n')[0].trim();
}

function openFiles() {
  const [soft, hard] = /^Max open files\s+(\S+)\s+(\S+)/m.exec(readFileSync('/proc/self/limits', 'latin1')).slice(1);
  const number = (text) => (text === 'unlimited' ? Infinity : Number(text));
  return {soft: number(soft), hard: number(hard)};
}

// How many files each program may have open, after an attempt to make that `wanted`.
export function raiseOpenFiles(wanted) {
  const {soft, hard} = openFiles();
  if (soft >= wanted) return soft;
  const both = hard >= wanted ? `${wanted}:${hard === Infinity ? 'unlimited' : hard}` : `${wanted}:${wanted}`;
  spawnSync('prlimit', ['--pid', String(process.pid), `--nofile=${both}`]);
  return openFiles().soft;
}

const kEc = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'];

// A certificate for the relay and the authority that agents check it against.
export function makeRelayCertificate() {
  const at = (name) => join(folder(), name);
  run('openssl',
      ['req', '-x509', ...kEc, '-keyout', at('ca.key'), '-out', at('ca.pem'), '-days', '2', '-subj', '/CN=bench authority']);
  writeFileSync(at('relay.ext'), 'subjectAltName=DNS:localhost,IP:127.0.0.1\n');
  run('openssl', ['req', ...kEc, '-keyout', at('relay.key'), '-out', at('relay.csr'), '-subj', '/CN=bench relay']);
  run('openssl', [
    'x509', '-req', '-in', at('relay.csr'), '-CA', at('ca.pem'), '-CAkey', at('ca.key'), '-CAcreateserial', '-days', '2',
    '-extfile', at('relay.ext'), '-out', at('relay.pem')
  ]);
  return {ca: at('ca.pem'), certificate: at('relay.pem'), key: at('relay.key')};
}

// Chain and key in one file, as HAProxy wants them; P-256 as the tunnel's own.
export function makeTerminatorCertificate(suffix) {
  const at = (name) => join(folder(), name);
  run('openssl', [
    'req', '-x509', ...kEc, '-keyout', at('users.key'), '-out', at('users.crt'), '-days', '2', '-subj', `/CN=${suffix}`,
    '-addext', `subjectAltName=DNS:*.${suffix}`
  ]);
  writeFileSync(
      at('users.pem'), readFileSync(at('users.crt'), 'latin1') + readFileSync(at('users.key'), 'latin1'), {mode: 0o600});
  return at('users.pem');
}
