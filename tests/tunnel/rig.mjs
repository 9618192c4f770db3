// A relay, tunnels, a certificate authority (pebble) and local servers for a test file, all on loopback and on free ports.
import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import https from 'node:https';
import { connect, createServer as createTcpServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import tls from 'node:tls';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
export const root = join(here, '..', '..');
export const binary = process.env.POCKETFLEET ?? join(root, 'build', 'release', 'bin', 'pocketfleet');
export const suffix = 'fleet.test';

export const folder = mkdtempSync(join(tmpdir(), 'pocketfleet-tunnel-'));
process.on('exit', () => rmSync(folder, { recursive: true, force: true }));

function openssl(...args) {
  const result = spawnSync('openssl', args, { encoding: 'utf8' });
  if (result.status !== 0) throw new Error(`openssl ${args.join(' ')}: ${result.stderr}`);
}

// One authority of the test's own for relays and for pebble's own address.
export function makeAuthority() {
  const ca = join(folder, 'ca.pem');
  const caKey = join(folder, 'ca.key');
  if (!existsSync(ca)) {
    openssl('req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-keyout', caKey, '-out', ca, '-days', '2', '-subj', '/CN=test authority');
  }
  return { ca, caKey };
}

let certificates = 0;
export function makeCertificate(names) {
  const { ca, caKey } = makeAuthority();
  const base = join(folder, `server-${++certificates}`);
  const alternatives = names.map((name) => (/^[\d.]+$/.test(name) ? `IP:${name}` : `DNS:${name}`)).join(',');
  writeFileSync(`${base}.ext`, `subjectAltName=${alternatives}\n`);
  openssl('req', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-keyout', `${base}.key`, '-out', `${base}.csr`, '-subj', '/CN=test');
  openssl('x509', '-req', '-in', `${base}.csr`, '-CA', ca, '-CAkey', caKey, '-CAcreateserial', '-days', '2', '-extfile', `${base}.ext`, '-out', `${base}.pem`);
  return { certificate: `${base}.pem`, key: `${base}.key`, ca };
}

export async function freePort() {
  const server = createTcpServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  await once(server, 'close');
  return port;
}

const running = new Set();
process.on('exit', () => running.forEach((program) => program.kill('SIGKILL')));

// A program that is ended with the test file. `log` holds what it has written to standard error.
export class Program {
  constructor(command, args, options = {}) {
    this.process = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'], ...options });
    this.log = '';
    this.process.stderr.on('data', (bytes) => { this.log += bytes; });
    this.exit = once(this.process, 'exit');
    this.lines = createInterface({ input: this.process.stdout });
    this.output = [];
    this.waiting = [];
    this.lines.on('line', (line) => {
      this.output.push(line);
      for (const check of [...this.waiting]) check();
    });
    running.add(this.process);
    this.exit.then(() => running.delete(this.process));
  }

  // The first line, from `from` on, that `wanted` gives something for.
  async line(wanted, { from = 0, within_ms = 20_000 } = {}) {
    let timer;
    const found = new Promise((resolve, reject) => {
      const check = () => {
        for (const line of this.output.slice(from)) {
          const value = wanted(line);
          if (value !== undefined && value !== false && value !== null) {
            this.waiting.splice(this.waiting.indexOf(check), 1);
            return resolve(value);
          }
        }
      };
      this.waiting.push(check);
      timer = setTimeout(() => reject(new Error(`no such line within ${within_ms} ms\n${this.output.join('\n')}\n${this.log}`)), within_ms);
      check();
    });
    const ended = this.exit.then(([code]) => { throw new Error(`ended with ${code}\n${this.output.join('\n')}\n${this.log}`); });
    ended.catch(() => {});
    try {
      return await Promise.race([found, ended]);
    } finally {
      clearTimeout(timer);
    }
  }

  async stop(signal = 'SIGTERM') {
    if (this.process.exitCode === null && this.process.signalCode === null) this.process.kill(signal);
    return this.exit;
  }
}

export class Relay extends Program {
  // `own`: false for a relay whose certificate `args` say.
  static async start({ args = [], host = '127.0.0.1', publicPort = 0, agentPort = 0, names = ['localhost', '127.0.0.1'], prefix = [], own = true } = {}) {
    const { certificate, key, ca } = makeCertificate(names);
    const command = [...prefix, binary, 'relay', '--host', host, '--public-port', String(publicPort), '--agent-port', String(agentPort), '--admin',
                     '127.0.0.1:0', '--suffix', suffix, ...(own ? ['--certificate', certificate, '--key', key] : []), '--new-per-source', '0', '--most-per-source', '0',
                     ...args];
    const relay = new Relay(command[0], command.slice(1));
    relay.host = host;
    relay.ca = ca;
    relay.certificate = certificate;
    relay.key = key;
    const ports = await relay.line((line) => /users on [\d.]+:(\d+) and agents on [\d.]+:(\d+), metrics on 127\.0\.0\.1:(\d+)/.exec(line));
    [relay.publicPort, relay.agentPort, relay.adminPort] = ports.slice(1).map(Number);
    return relay;
  }

  async metrics() {
    return (await fetch(`http://127.0.0.1:${this.adminPort}/metrics`)).text();
  }

  // The value of a metric whose labels hold all of `labels`; 0 where it has not been counted yet.
  async metric(name, ...labels) {
    const text = await this.metrics();
    const lines = text.split('\n').filter((line) => line.startsWith(name) && labels.every((label) => line.includes(label)));
    return lines.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' ') + 1)), 0);
  }

  async health() {
    return (await fetch(`http://127.0.0.1:${this.adminPort}/health`)).json();
  }
}

export class Tunnel extends Program {
  static start({ relay, relays, to, state = mkdtempSync(join(folder, 'state-')), args = ['--self-signed'], ca = relay?.ca, ofSuffix = suffix, prefix = [] }) {
    const addresses = (relays ?? [`localhost:${relay.agentPort}`]).flatMap((address) => ['--relay', address]);
    const command = [...prefix, binary, 'tunnel', '--to', to, ...addresses, '--relay-ca', ca, '--suffix', ofSuffix, '--state', state, '--json', ...args];
    const tunnel = new Tunnel(command[0], command.slice(1));
    tunnel.state = state;
    return tunnel;
  }

  // The first status, from the line `from` on, for which `wanted` holds.
  async status(wanted, options) {
    return this.line((line) => {
      const status = JSON.parse(line);
      return wanted(status) ? status : undefined;
    }, options);
  }

  async ready(options) {
    const status = await this.status((now) => now.state === 'ready', options);
    this.url = status.url;
    this.host = new URL(status.url).hostname;
    return status;
  }

  // What clients have to trust, where the certificate is the tunnel's own.
  trusted() {
    return readFileSync(join(this.state, `${this.host}.self-signed.pem`), 'utf8');
  }
}

// A name server that says 127.0.0.1 of every name, and TXT records as they are set.
export async function startNames() {
  const dns = await freePort();
  const management = await freePort();
  const names = new Program('pebble-challtestsrv', ['-dns01', `127.0.0.1:${dns}`, '-http01', '', '-https01', '', '-tlsalpn01', '', '-management', `127.0.0.1:${management}`,
                                                    '-defaultIPv4', '127.0.0.1', '-defaultIPv6', '']);
  const setTxt = async (host, value) => {
    const answer = await fetch(`http://127.0.0.1:${management}/set-txt`, { method: 'POST', body: JSON.stringify({ host, value }) });
    if (!answer.ok) throw new Error(`set-txt: ${answer.status}`);
  };
  const until = Date.now() + 20_000;
  for (;;) {
    try {
      await setTxt('ready.test.', 'yes');
      return { dns: `127.0.0.1:${dns}`, setTxt, stop: () => names.stop() };
    } catch (error) {
      if (Date.now() > until) throw new Error(`the name server does not come: ${error}\n${names.log}`);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
}

// A certificate authority that looks for the addresses at `relayPort` of loopback. `rejectNonces`: percent.
export async function startPebble({ relayPort, rejectNonces = 20, validity_s = 3_600 }) {
  const directory = await freePort();
  const pebbleManagement = await freePort();
  const { certificate, key, ca } = makeCertificate(['localhost', '127.0.0.1']);
  const names = await startNames();
  const config = join(folder, `pebble-${directory}.json`);
  writeFileSync(config, JSON.stringify({
    pebble: {
      listenAddress: `127.0.0.1:${directory}`,
      managementListenAddress: `127.0.0.1:${pebbleManagement}`,
      certificate,
      privateKey: key,
      httpPort: 1,
      tlsPort: relayPort,
      ocspResponderURL: '',
      externalAccountBindingRequired: false,
      certificateValidityPeriod: validity_s,
    },
  }));
  const pebble = new Program('pebble', ['-config', config, '-dnsserver', names.dns],
                             { env: { ...process.env, PEBBLE_VA_NOSLEEP: '1', PEBBLE_WFE_NONCEREJECT: String(rejectNonces), PEBBLE_AUTHZREUSE: '0' } });
  const agent = new https.Agent({ ca: readFileSync(ca) });
  const get = (url) => new Promise((resolve, reject) => {
    https.get(url, { agent }, (answer) => {
      let text = '';
      answer.on('data', (bytes) => { text += bytes; }).on('end', () => resolve(text));
    }).on('error', reject);
  });
  const until = Date.now() + 20_000;
  let rootPem;
  while (rootPem === undefined) {
    try {
      rootPem = await get(`https://localhost:${pebbleManagement}/roots/0`);
    } catch (error) {
      if (Date.now() > until) throw new Error(`pebble does not come: ${error}\n${pebble.log}\n${pebble.output.join('\n')}`);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
  return {
    directory: `https://localhost:${directory}/dir`,
    ca,
    rootPem,
    pebble,
    stop: async () => {
      await Promise.all([pebble.stop(), names.stop()]);
    },
  };
}

// A local HTTP server for the tunnel to lead to.
export async function startTarget(handler) {
  const server = createServer(handler);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    address: `127.0.0.1:${server.address().port}`,
    server,
    stop: () => new Promise((resolve) => {
      server.closeAllConnections();
      server.close(resolve);
    }),
  };
}

// Passes TCP connections on from a port to another one.
export async function startPipe(from, to) {
  const server = createTcpServer((socket) => {
    const other = connect(to, '127.0.0.1');
    socket.pipe(other).pipe(socket);
    for (const one of [socket, other]) one.on('error', () => { socket.destroy(); other.destroy(); });
  });
  server.listen(from, '127.0.0.1');
  await once(server, 'listening');
  return server;
}

// A TLS connection to an address, through the relay's public port.
export function connectTls(relay, host, options = {}) {
  const socket = tls.connect({ host: relay.host ?? '127.0.0.1', port: relay.publicPort, servername: host, ALPNProtocols: ['http/1.1'], ...options });
  return new Promise((resolve, reject) => {
    socket.once('secureConnect', () => resolve(socket));
    socket.once('error', reject);
  });
}

// A whole request to an address, through the relay's public port. Resolves with status, headers and body.
export function request(relay, host, { path = '/', method = 'GET', headers = {}, body, ca, agent = false } = {}) {
  return new Promise((resolve, reject) => {
    const call = https.request({ host: relay.host ?? '127.0.0.1', port: relay.publicPort, servername: host, path, method, ca, agent, headers: { host, ...headers } }, (answer) => {
      const pieces = [];
      answer.on('data', (bytes) => pieces.push(bytes));
      answer.on('end', () => resolve({ status: answer.statusCode, headers: answer.headers, body: Buffer.concat(pieces) }));
      answer.on('error', reject);
    });
    call.on('error', reject);
    if (body !== undefined && typeof body.pipe === 'function') {
      body.pipe(call);
    } else {
      call.end(body);
    }
  });
}

export const sha256 = (bytes) => createHash('sha256').update(bytes).digest('hex');
