// Random users, agents and mishaps for a long time, against a relay and tunnels: users send, stream, leave and say nonsense; agents of
// strangers lie in every item; links stall, are cut and rebound; a tunnel is killed and comes back. At the end every byte that arrived was
// right, and nothing has leaked or grown. Run by scripts/soak.
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync, readdirSync } from 'node:fs';
import http2 from 'node:http2';
import { connect } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import tls from 'node:tls';
import { TcpImpairment, UdpImpairment, generator } from '../impair.mjs';
import { Relay, Tunnel, connectTls, makeCertificate, request, sha256, startTarget, suffix } from '../tunnel/rig.mjs';

const minutes = Number(process.argv[2] ?? 10);
const clients = Number(process.argv[3] ?? 12);
const random = generator(Number(process.argv[4] ?? 1));
const below = (limit) => Math.floor(random() * limit);
const pick = (list) => list[below(list.length)];

const tally = { answers: 0, streams: 0, left: 0, strangers: 0, mishaps: 0, unavailable: 0 };
const target = await startTarget(async (call, answer) => {
  call.on('error', () => {});
  if (call.url === '/stream') {
    for (let i = 0; i < 20 && !answer.destroyed; ++i) {
      answer.write(`data: ${i} Grüße, 世界\n\n`);
      await pause(below(20));
    }
    return answer.end('data: [DONE]\n\n');
  }
  call.pipe(answer);
});
const relay = await Relay.start();
const tcp = new TcpImpairment({ to: { host: '127.0.0.1', port: relay.agentPort } });
const udp = new UdpImpairment({ to: { host: '127.0.0.1', port: relay.agentPort }, loss: 0.01, reorder: 0.02, duplicate: 0.01 });
const h2Port = await tcp.listen();
const quicPort = await udp.listen();
const start = (port, carrier, state) => Tunnel.start({ relay, relays: [`localhost:${port}`], to: target.address, args: ['--self-signed', '--carrier', carrier], ...(state && { state }) });
// One that is left alone, one over each carrier whose way is bad, and one that is killed now and then.
const tunnels = [start(relay.agentPort, 'auto'), start(h2Port, 'h2'), start(quicPort, 'quic'), start(relay.agentPort, 'h2')];
await Promise.all(tunnels.map((tunnel) => tunnel.ready({ within_ms: 60_000 })));

// Where links are broken, a user may find nobody; what does arrive is right. The first tunnel has no such excuse.
const excused = (tunnel, error) => {
  if (tunnel === tunnels[0]) throw error;
  ++tally.unavailable;
};
const credentials = makeCertificate(['agent']);
const agentTls = { servername: 'localhost', ca: readFileSync(relay.ca), cert: readFileSync(credentials.certificate), key: readFileSync(credentials.key) };

// A session of a stranger that is refused may end with an error that no listener of its gets.
process.on('uncaughtException', (error) => {
  if (String(error.code).startsWith('ERR_HTTP2')) return;
  console.error(error);
  process.exit(1);
});

// Or until it is closed.
const secured = (socket) => Promise.race([once(socket, 'secureConnect'), once(socket, 'close')]).catch(() => {});

// An agent that answers the relay's control requests with these, over HTTP/2.
async function stranger(answers) {
  const socket = tls.connect({ host: '127.0.0.1', port: relay.agentPort, ...agentTls });
  socket.on('error', () => {});
  await secured(socket);
  if (socket.destroyed) return;
  const session = http2.performServerHandshake(socket);
  session.on('error', () => {});
  session.on('stream', (stream, headers) => {
    stream.on('error', () => {});
    const answer = answers[headers[':path']];
    if (answer === undefined) return stream.destroy();
    stream.respond({ ':status': 200, ...(headers[':path'] === '/_ctrl/sig' && { 'pocketfleet-proof': '1' }) });
    stream.end(answer);
  });
  await Promise.race([once(socket, 'close'), pause(15_000)]).catch(() => {});
  socket.destroy();
  ++tally.strangers;
}

const users = [
  async () => {
    const tunnel = pick(tunnels);
    const body = randomBytes(1 + below(pick([100, 10_000, 2_000_000])));
    try {
      const answer = await request(relay, tunnel.host, { ca: tunnel.trusted(), method: 'POST', body });
      if (answer.status !== 200) throw new Error(`${answer.status}`);
      assert.equal(sha256(answer.body), sha256(body));
      ++tally.answers;
    } catch (error) {
      if (error instanceof assert.AssertionError) throw error;
      excused(tunnel, error);
    }
  },
  async () => {
    const tunnel = pick(tunnels);
    try {
      const text = (await request(relay, tunnel.host, { ca: tunnel.trusted(), path: '/stream' })).body.toString();
      assert.equal(text, `${Array.from({ length: 20 }, (_, i) => `data: ${i} Grüße, 世界\n\n`).join('')}data: [DONE]\n\n`);
      ++tally.streams;
    } catch (error) {
      if (error instanceof assert.AssertionError && tunnel === tunnels[0]) throw error;
      excused(tunnel, error);
    }
  },
  // Those who leave in the middle, in one way or the other.
  async () => {
    const tunnel = pick(tunnels);
    try {
      const socket = await connectTls(relay, tunnel.host, { ca: tunnel.trusted() });
      socket.on('error', () => {});
      socket.write(`POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n`);
      socket.write(randomBytes(below(500_000)));
      await pause(below(100));
      if (random() < 0.5) socket.end();
      await pause(below(50));
      socket.destroy();
      ++tally.left;
    } catch (error) {
      excused(tunnel, error);
    }
  },
  async () => {
    const socket = connect(relay.publicPort, '127.0.0.1');
    socket.on('error', () => {});
    await once(socket, 'connect');
    socket.write(Buffer.concat([pick([Buffer.from([0x16, 0x03, 0x01]), Buffer.from([0x80]), Buffer.from('GET '), Buffer.alloc(0)]), randomBytes(below(2_000))]));
    await pause(below(50));
    socket.resetAndDestroy();
    ++tally.left;
  },
];
const other = () => `${randomBytes(8).toString('hex')}.${suffix}`;
const strangers = [
  () => stranger({ '/_ctrl/domain': pick([other(), '', 'x', `${tunnels[0].host}`, other().replace(suffix, 'foreign.test'), randomBytes(200)]), '/_ctrl/sig': randomBytes(pick([65, 64, 66, 0])), '/_ctrl/key_auth': '' }),
  () => stranger({ '/_ctrl/domain': Buffer.alloc(below(100_000), 'a'), '/_ctrl/sig': randomBytes(65), '/_ctrl/key_auth': Buffer.alloc(below(100_000), 'b') }),
  () => stranger({ '/_ctrl/domain': other() }),
  async () => {
    const socket = tls.connect({ host: '127.0.0.1', port: relay.agentPort, ...agentTls });
    socket.on('error', () => {});
    await secured(socket);
    if (socket.destroyed) return;
    socket.write(Buffer.concat([pick([Buffer.alloc(0), Buffer.from('000000040000000000', 'hex')]), randomBytes(below(500))]));
    await pause(below(100));
    socket.destroy();
    ++tally.strangers;
  },
];
const mishaps = [
  async () => tcp.cut(),
  async () => {
    tcp.stall();
    await pause(below(2_000));
    tcp.resume();
  },
  async () => udp.rebind(),
  async () => {
    udp.stall();
    await pause(below(2_000));
    udp.resume();
  },
  async () => relay.process.kill('SIGHUP'),
  async () => {
    const old = tunnels[3];
    const signal = pick(['SIGKILL', 'SIGTERM']);
    const [code] = await old.stop(signal);
    if (signal === 'SIGTERM') assert.equal(code, 0, old.log.slice(-4_000));
    tunnels[3] = start(relay.agentPort, 'h2', old.state);
    await tunnels[3].ready({ within_ms: 60_000 });
  },
];

const kMost_ms = 120_000;  // of one deed: links that have gone silent are noticed after 30 s
const files = (pid) => readdirSync(`/proc/${pid}/fd`).length;
const rss_kb = (pid) => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1]);
const started = Date.now();
const end = started + minutes * 60_000;
const levels_kb = [];
let failure;
const keep = async (deeds, most_pause_ms) => {
  while (Date.now() < end && !failure) {
    const late = new AbortController();
    try {
      const deed = pick(deeds);
      await Promise.race([deed(), pause(kMost_ms, undefined, { signal: late.signal }).then(() => { throw new Error(`longer than ${kMost_ms} ms: ${deed}`); })]);
    } catch (error) {
      if (!failure) console.error(error);
      failure ??= error;
    }
    late.abort();
    await pause(below(most_pause_ms));
  }
};
const base_files = files(relay.process.pid);
const watch = (async () => {
  while (Date.now() < end && !failure) {
    await pause(2_000);
    levels_kb.push(rss_kb(relay.process.pid) + rss_kb(tunnels[0].process.pid));
    process.stderr.write(`\r${((Date.now() - started) / 60_000).toFixed(1)} of ${minutes} min, ${JSON.stringify(tally)}, ${levels_kb.at(-1) >> 10} MiB `);
  }
})();
await Promise.all([
  ...Array.from({ length: clients }, () => keep(users, 50)),
  keep(strangers, 200),
  keep(strangers, 200),
  keep([async () => { await pick(mishaps)(); ++tally.mishaps; }], 4_000),
]);
await watch;
process.stderr.write('\n');

const programs = [['the relay', relay], ...tunnels.map((tunnel, at) => [`tunnel ${at}`, tunnel])];
try {
  if (failure) throw failure;
  const deadline = Date.now() + 60_000;
  while ((await relay.health()).users > 0 || files(relay.process.pid) > base_files + 10) {
    assert.ok(Date.now() < deadline, `files ${files(relay.process.pid)}, once ${base_files}; ${JSON.stringify(await relay.health())}`);
    await pause(100);
  }
  for (const tunnel of tunnels.slice(0, 3)) {
    let answer;
    while (answer?.status !== 200) {
      assert.ok(Date.now() < deadline, `${tunnel.host} does not come back\n${tunnel.log.slice(-2_000)}`);
      answer = await request(relay, tunnel.host, { ca: tunnel.trusted(), method: 'POST', body: 'here' }).catch(() => pause(100));
    }
    assert.equal(answer.body.toString(), 'here');
  }
} finally {
  for (const [name, program] of programs) {
    const [code, signal] = await program.stop();
    // A sanitizer that found something, a leak as well, says so with its exit code and on standard error.
    assert.equal(code, 0, `${name} ended with ${code ?? signal}: ${program.log.slice(-6_000)}`);
    assert.ok(!/ERROR: |WARNING: ThreadSanitizer|runtime error/.test(program.log), program.log.slice(-6_000));
  }
}
const third = Math.floor(levels_kb.length / 3);
const early_kb = Math.max(...levels_kb.slice(third, 2 * third));
const late_kb = Math.max(...levels_kb.slice(2 * third));
console.log(JSON.stringify({ minutes, clients, ...tally, early_mib: early_kb >> 10, late_mib: late_kb >> 10 }));
assert.ok(tally.answers > 50 && tally.strangers > 10 && tally.mishaps > 2, 'too little has happened to say anything');
assert.ok(late_kb - early_kb < 0.05 * early_kb + (16 << 10), `memory grew from ${early_kb} to ${late_kb} kB`);
await target.stop();
await Promise.all([tcp.close(), udp.close()]);
process.exit(0);
