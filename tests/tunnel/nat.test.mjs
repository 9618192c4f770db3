// An agent on a phone behind a router: three network namespaces of this test's own, with NAT (nftables) in the middle one.
//   this one: relay and users, 203.0.113.1  <->  router, 203.0.113.2 and 192.168.7.1  <->  phone, 192.168.7.10
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readlinkSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Program, Relay, Tunnel, connectTls, folder, request } from './rig.mjs';

const kInside = 'POCKETFLEET_TEST_NAMESPACE';
const kTargetPort = 8080;  // in a namespace that nobody else uses
// User namespaces make it work without root where the system has them.
const unshare = process.getuid() === 0 ? ['unshare', '--net'] : ['unshare', '--map-root-user', '--net'];

function run(command, input) {
  const done = spawnSync(command[0], command.slice(1), { encoding: 'utf8', input });
  if (done.status !== 0) throw new Error(`${command.join(' ')}: ${done.error ?? done.stderr}`);
}

// A further namespace, held by a process, which the commands of `inside` are put into.
async function makeNamespace() {
  const holder = spawn('unshare', ['--net', 'sleep', '600'], { stdio: 'ignore' });
  process.on('exit', () => holder.kill('SIGKILL'));
  const own = readlinkSync('/proc/self/ns/net');
  while (readlinkSync(`/proc/${holder.pid}/ns/net`) === own) await new Promise((resolve) => setTimeout(resolve, 5));
  const prefix = ['nsenter', '--target', String(holder.pid), '--net'];
  return { pid: holder.pid, prefix, run: (line, input) => run([...prefix, 'sh', '-c', line], input), stop: () => holder.kill('SIGKILL') };
}

const kNat = `
table ip pocketfleet {
  chain after {
    type nat hook postrouting priority 100;
    oifname "outside" masquerade
  }
  chain pass {
    type filter hook forward priority 0; policy accept;
    iifname "outside" ct state != { established, related } drop
  }
}
`;

const kTarget = `
require('node:http').createServer((call, answer) => {
  if (call.url === '/') return answer.end('from behind the router');
  answer.write('begun ');
  call.on('data', () => answer.end('ended'));
}).listen(${kTargetPort}, '127.0.0.1', () => console.log('listening'));`;

function skipReason() {
  const probe = spawnSync(unshare[0], [...unshare.slice(1), 'sh', '-c', 'ip link set lo up && ip link add name probe0 type veth peer name probe1 && nft add table ip probe'], { encoding: 'utf8' });
  return probe.status === 0 ? undefined : `no network namespaces with nftables here: ${(probe.error?.message ?? probe.stderr).trim()}`;
}

if (!process.env[kInside]) {
  test('an agent behind a NAT, in network namespaces', (t) => {
    const reason = skipReason();
    if (reason) return t.skip(reason);
    const { NODE_TEST_CONTEXT: _, ...env } = process.env;
    const file = fileURLToPath(import.meta.url);
    const inside = spawnSync(unshare[0], [...unshare.slice(1), process.execPath, '--test', '--test-force-exit', file], { encoding: 'utf8', env: { ...env, [kInside]: '1' } });
    assert.equal(inside.status, 0, inside.stdout + inside.stderr);
    assert.match(inside.stdout, /# pass 4\n/);
  });
} else {
  let router, phone, target;

  before(async () => {
    run(['sh', '-c', 'ip link set lo up']);
    router = await makeNamespace();
    phone = await makeNamespace();
    run(['sh', '-c', `ip link add name wan type veth peer name outside netns ${router.pid} && ip addr add 203.0.113.1/24 dev wan && ip link set wan up`]);
    router.run('ip link set lo up && ip addr add 203.0.113.2/24 dev outside && ip link set outside up');
    router.run(`ip link add name inside type veth peer name wifi netns ${phone.pid} && ip addr add 192.168.7.1/24 dev inside && ip link set inside up`);
    router.run('echo 1 > /proc/sys/net/ipv4/ip_forward && nft -f -', kNat);
    phone.run('ip link set lo up && ip addr add 192.168.7.10/24 dev wifi && ip link set wifi up && ip route add default via 192.168.7.1');
    const script = join(folder, 'target.cjs');
    writeFileSync(script, kTarget);
    target = new Program(phone.prefix[0], [...phone.prefix.slice(1), process.execPath, script]);
    await target.line((line) => line === 'listening');
  });
  after(async () => {
    await target?.stop();
    router?.stop();
    phone?.stop();
  });

  for (const carrier of ['h2', 'quic']) describe(`over ${carrier}`, () => {
    let relay, tunnel;

    before(async () => {
      relay = await Relay.start({ host: '203.0.113.1', names: ['203.0.113.1'] });
      tunnel = Tunnel.start({ relay, relays: [`203.0.113.1:${relay.agentPort}`], to: `127.0.0.1:${kTargetPort}`, prefix: phone.prefix,
                              args: ['--self-signed', '--carrier', carrier, '--links', '1'] });
      await tunnel.ready();
    });
    after(async () => {
      await tunnel?.stop();
      await relay?.stop();
    });

    test('an address leads to a machine that nobody outside can connect to', async () => {
      assert.equal((await request(relay, tunnel.host, { ca: tunnel.trusted() })).body.toString(), 'from behind the router');
      const direct = connect(kTargetPort, '203.0.113.2');
      const [error] = await once(direct, 'error');
      assert.equal(error.code, 'ECONNREFUSED');
    });

    test(carrier === 'quic' ? 'a stream goes on when the router gets another address' : 'the address works again soon after the router got another address', async () => {
      const socket = await connectTls(relay, tunnel.host, { ca: tunnel.trusted() });
      let text = '';
      socket.on('data', (bytes) => { text += bytes; });
      socket.on('error', () => {});
      socket.write(`POST /slow HTTP/1.1\r\nhost: ${tunnel.host}\r\nconnection: close\r\ncontent-length: 1\r\n\r\n`);
      while (!text.includes('begun')) await once(socket, 'data');
      // A new address outside: the router forgets what it had translated to the old one.
      router.run('ip addr del 203.0.113.2/24 dev outside && ip addr add 203.0.113.3/24 dev outside');
      if (carrier === 'quic') {
        const before_ms = Date.now();
        socket.write('x');
        while (!text.includes('ended')) await once(socket, 'data');
        assert.ok(Date.now() - before_ms < 20_000, 'the stream waits no longer than for the next keepalive');
      } else {
        const seen = tunnel.output.length;
        await tunnel.status((now) => now.state === 'ready', { from: seen, within_ms: 60_000 });
      }
      socket.destroy();
      assert.equal((await request(relay, tunnel.host, { ca: tunnel.trusted() })).body.toString(), 'from behind the router');
      router.run('ip addr del 203.0.113.3/24 dev outside && ip addr add 203.0.113.2/24 dev outside');
    });
  });
}
