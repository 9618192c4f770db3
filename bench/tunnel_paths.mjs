// The ways to one local server that bench/tunnel compares, each with a public side and a far side:
//   direct   user -> HAProxy that ends TLS -> local server              what the others add to
//   haproxy  user -> HAProxy by server name -> the same as direct
//   ssh      user -> the same HAProxy -> sshd = ssh -R -> the same as direct
//   h2,quic  user -> relay = tunnel -> local server
import {once} from 'node:events';
import {closeSync, existsSync, ftruncateSync, mkdirSync, mkdtempSync, openSync, readFileSync, writeFileSync} from 'node:fs';
import {createServer} from 'node:net';
import {userInfo} from 'node:os';
import {join} from 'node:path';

import {
  descendants,
  find,
  folder,
  freePort,
  makeRelayCertificate,
  makeSshdFolder,
  makeTerminatorCertificate,
  Program,
  run,
  sleep
} from './tunnel_programs.mjs';

export const kSuffix = 'fleet.test';
export const kAnswerBytes = 1024;

const kReady_ms = 30_000;
const kSettle_ms = 1_000;

// Uploads end here. The answer comes when all bytes have come, so that a time measured by it holds them all.
async function startSink() {
  const server = createServer((socket) => {
    let head = '';
    let missing;
    socket.on('data', (bytes) => {
      let count = bytes.length;
      if (missing === undefined) {
        head += bytes.toString('latin1');
        const end = head.indexOf('\r\n\r\n');
        if (end < 0) return;
        missing = Number(/^content-length: *(\d+)/im.exec(head)?.[1] ?? 0);
        count = head.length - end - 4;
      }
      missing -= count;
      if (missing <= 0) socket.end('HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n');
    });
    socket.on('error', () => {});
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  server.unref();
  return server.address().port;
}

// The local server that all ways lead to: nginx with one worker, files by sendfile. It would read what it throws away in pieces
// of 4 KiB, so it hands uploads on to a sink of this script as they come.
export class Target {
  static async start() {
    const target = new Target();
    target.port = await freePort();
    const sink = await startSink();
    const at = (name) => join(folder(), name);
    mkdirSync(at('www'));
    writeFileSync(at('www/answer'), 'x'.repeat(kAnswerBytes));
    writeFileSync(at('nginx.conf'), `
      daemon off; master_process off; worker_processes 1; pid ${at('nginx.pid')}; error_log ${at('nginx.log')};
      events { worker_connections 1000; }
      http {
        access_log off; sendfile on; tcp_nodelay on; keepalive_requests 1000000000; keepalive_timeout 3600;
        default_type application/octet-stream; client_header_buffer_size 4k; client_max_body_size 0; client_body_buffer_size 256k;
        client_body_temp_path ${at('b')}; proxy_temp_path ${at('p')}; fastcgi_temp_path ${at('f')}; uwsgi_temp_path ${at('u')};
        scgi_temp_path ${at('s')};
        server {
          listen 127.0.0.1:${target.port} backlog=1024;
          location / { root ${at('www')}; }
          location /upload { proxy_pass http://127.0.0.1:${sink}; proxy_http_version 1.1; proxy_request_buffering off; }
        }
      }\n`);
    target.program = new Program(find('nginx', 'nginx-light'), ['-p', folder(), '-c', at('nginx.conf')]);
    await target.program.listening(target.port);
    return target;
  }

  // A sparse file of so many bytes. It is served under `name` and lies in `file` for uploads.
  body(bytes) {
    const name = `body-${bytes}`;
    const file = join(folder(), 'www', name);
    if (!existsSync(file)) {
      const fd = openSync(file, 'w');
      ftruncateSync(fd, bytes);
      closeSync(fd);
    }
    return {name, file};
  }
}

async function startHaproxy(name, threads, port, settings) {
  const file = join(folder(), `${name}.cfg`);
  // 50 streams need 100 pipes; larger ones save calls of splice().
  writeFileSync(file, `
  global
    nbthread ${threads}
    maxconn 200
    maxpipes 128
    tune.pipesize 262144
  defaults
    mode tcp
    option splice-auto
    option tcp-smart-accept
    option tcp-smart-connect
    timeout connect 5s
    timeout client 1h
    timeout server 1h
${settings}\n`);
  const program = new Program(find('haproxy', 'haproxy'), ['-db', '-f', file]);
  await program.listening(port);
  return program;
}

// Plays the tunnel's part in front of the local server: ends TLS, one thread, bytes as they come.
async function startTerminator(target) {
  const port = await freePort();
  const program = await startHaproxy('terminator', 1, port, `
  listen users
    bind 127.0.0.1:${port} ssl crt ${makeTerminatorCertificate(kSuffix)} alpn http/1.1
    server local 127.0.0.1:${target.port}`);
  return {port, program};
}

async function startFront(threads, terminatorPort, sshPort) {
  const port = await freePort();
  const program = await startHaproxy('front', threads, port, `
  frontend users
    bind 127.0.0.1:${port}
    tcp-request inspect-delay 5s
    tcp-request content accept if { req_ssl_hello_type 1 }
    tcp-request content reject
    use_backend plain if { req_ssl_sni -i plain.${kSuffix} }
    use_backend forwarded if { req_ssl_sni -i forwarded.${kSuffix} }
  backend plain
    server far 127.0.0.1:${terminatorPort}
  backend forwarded
    server far 127.0.0.1:${sshPort}`);
  return {port, program};
}

// A forward from a port of sshd's side to the terminator, with keys that live as long as this script.
async function startForward(terminatorPort) {
  const sshd = find('sshd', 'openssh-server');
  const ssh = find('ssh', 'openssh-client');
  const keygen = find('ssh-keygen', 'openssh-client');
  const at = (name) => join(folder(), name);
  for (const name of ['ssh_host', 'ssh_user']) run(keygen, ['-q', '-t', 'ed25519', '-N', '', '-C', 'bench', '-f', at(name)]);
  const sshdPort = await freePort();
  const port = await freePort();
  writeFileSync(at('ssh_authorized'), readFileSync(at('ssh_user.pub')), {mode: 0o600});
  writeFileSync(at('ssh_known'), `[127.0.0.1]:${sshdPort} ${readFileSync(at('ssh_host.pub'), 'latin1')}`);
  writeFileSync(at('sshd_config'), `
Port ${sshdPort}
ListenAddress 127.0.0.1
HostKey ${at('ssh_host')}
AuthorizedKeysFile ${at('ssh_authorized')}
PidFile none
StrictModes no
UsePAM no
UseDNS no
PasswordAuthentication no
KbdInteractiveAuthentication no
PubkeyAuthentication yes
PermitRootLogin prohibit-password
AllowTcpForwarding remote
Compression no
Ciphers aes128-gcm@openssh.com
`);
  makeSshdFolder();
  const server = new Program(sshd, ['-D', '-e', '-f', at('sshd_config')]);
  await server.listening(sshdPort);
  const options = {
    BatchMode: 'yes',
    StrictHostKeyChecking: 'yes',
    UserKnownHostsFile: at('ssh_known'),
    GlobalKnownHostsFile: '/dev/null',
    IdentitiesOnly: 'yes',
    IdentityAgent: 'none',
    ExitOnForwardFailure: 'yes',
    Ciphers: 'aes128-gcm@openssh.com',
    Compression: 'no',
    ControlMaster: 'no',
    ControlPath: 'none',
    LogLevel: 'ERROR',
  };
  const client = new Program(ssh, [
    '-F', 'none', '-N', '-T', '-p', String(sshdPort), '-i', at('ssh_user'),
    ...Object.entries(options).flatMap(([name, value]) => ['-o', `${name}=${value}`]), '-R',
    `127.0.0.1:${port}:127.0.0.1:${terminatorPort}`, `${userInfo().username}@127.0.0.1`
  ]);
  try {
    await client.listening(port);
  } catch (error) {
    throw new Error(`${error.message}\nsshd says: ${server.log}`);
  }
  // One process of sshd listens, another one carries this connection. Those that let it in go after that.
  await sleep(kSettle_ms);
  return {port, server, client, serverPids: [server.pid, ...descendants(server.pid)]};
}

let relayFiles;

// `ports`: those of a relay that has gone, for one that takes its place.
export async function startRelay(options, ports = {}) {
  relayFiles ??= makeRelayCertificate();
  const {ca, certificate, key} = relayFiles;
  const plain = 'relay --host 127.0.0.1 --admin 127.0.0.1:0 --new-per-source 0 --most-per-source 0 --quiet';
  const program = new Program(options.ours, [
    ...plain.split(' '), '--public-port', String(ports.users ?? 0), '--agent-port', String(ports.agents ?? 0), '--suffix',
    kSuffix, '--certificate', certificate, '--key', key, '--workers', String(options.threads)
  ]);
  const [users, agents, admin] =
      (await program.line(
           (line) => /users on 127\.0\.0\.1:(\d+) and agents on 127\.0\.0\.1:(\d+), metrics on 127\.0\.0\.1:(\d+)/.exec(line),
           {within_ms: kReady_ms}))
          .slice(1)
          .map(Number);
  return {program, ca, ports: {users, agents}, admin};
}

// Many agents in one process, once all of them are there.
export async function startAgents(options, relay, count) {
  const program = new Program(
      options.agents,
      ['--relay', `localhost:${relay.ports.agents}`, '--ca', relay.ca, '--suffix', kSuffix, '--count', String(count)]);
  const up = await program.line((line) => JSON.parse(line).up && JSON.parse(line), {within_ms: 120_000 + 20 * count});
  return {program, up};
}

async function startTunnel(options, relay, target, carrier) {
  const state = mkdtempSync(join(folder(), 'state-'));
  const program = new Program(options.ours, [
    'tunnel', '--to', `127.0.0.1:${target.port}`, '--relay', `localhost:${relay.ports.agents}`, '--relay-ca', relay.ca,
    '--suffix', kSuffix, '--state', state, '--self-signed', '--carrier', carrier, '--json', '--quiet'
  ]);
  const status = await program.line((line) => {
    const now = JSON.parse(line);
    return now.state === 'ready' && now.links === 2 ? now : undefined;
  }, {within_ms: kReady_ms});
  return {program, host: new URL(status.url).hostname, carrier: status.carrier};
}

// All ways, up. Those that do no work take no time, so they stay up together.
export async function startPaths(options, say) {
  const target = await Target.start();
  const terminator = await startTerminator(target);
  const forward = await startForward(terminator.port);
  const front = await startFront(options.threads, terminator.port, forward.port);
  const relay = await startRelay(options);
  const far = [terminator.program.pid];
  const paths = [
    {
      key: 'direct',
      label: 'TLS terminator alone',
      host: `direct.${kSuffix}`,
      port: terminator.port,
      publicPids: [],
      farPids: far
    },
    {key: 'haproxy', label: 'HAProxy', host: `plain.${kSuffix}`, port: front.port, publicPids: [front.program.pid], farPids: far},
    {
      key: 'ssh',
      label: 'HAProxy + ssh -R',
      host: `forwarded.${kSuffix}`,
      port: front.port,
      publicPids: [front.program.pid, ...forward.serverPids],
      farPids: [forward.client.pid, ...far]
    },
  ];
  for (const carrier of ['h2', 'quic']) {
    const tunnel = await startTunnel(options, relay, target, carrier);
    if (tunnel.carrier !== carrier) {
      say(`this build carries nothing over ${carrier}: that column is left out`);
      await tunnel.program.stop();
      continue;
    }
    paths.push({
      key: carrier,
      label: carrier === 'h2' ? 'ours, h2' : 'ours, QUIC',
      host: tunnel.host,
      port: relay.ports.users,
      publicPids: [relay.program.pid],
      farPids: [tunnel.program.pid]
    });
  }
  return {target, paths};
}
