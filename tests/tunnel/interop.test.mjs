// Both ends of the tunnel meet programs that are not ours: quic-go for QUIC, nghttp for HTTP/2. (nghttpd and h2load want an authority in
// each request, which this protocol leaves out.)
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import dgram from 'node:dgram';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import tls from 'node:tls';
import { Program, Relay, Tunnel, folder, makeCertificate, request, root, startTarget, suffix } from './rig.mjs';

const has = (program) => spawnSync('sh', ['-c', `command -v ${program}`]).status === 0;
const kHere = join(root, 'tests', 'tunnel');

// 20 users at once send 3 MB each and get them back.
async function echo(through, host, ca) {
  const body = randomBytes(3_000_000);
  const answers = await Promise.all(Array.from({ length: 20 }, () => request(through, host, { ca, method: 'POST', headers: { 'content-length': body.length }, body })));
  for (const answer of answers) assert.ok(answer.body.equals(body));
}

// The first datagram of each client arrives after its second one.
async function startSwap(to) {
  const front = dgram.createSocket('udp4');
  const upstream = dgram.createSocket('udp4');
  let held, client;
  let sent = 0;
  front.on('message', (packet, from) => {
    client = from;
    if (++sent === 1) {
      held = packet;
      return;
    }
    upstream.send(packet, to, '127.0.0.1');
    if (held) upstream.send(held, to, '127.0.0.1');
    held = undefined;
  });
  upstream.on('message', (packet) => front.send(packet, client.port, client.address));
  front.bind(0, '127.0.0.1');
  await once(front, 'listening');
  return { port: front.address().port, sent: () => sent, stop: () => { front.close(); upstream.close(); } };
}

describe('quic-go', { skip: has('go') ? false : 'Go is not installed: scripts/setup --tests installs it' }, () => {
  const peer = join(folder, 'quic_peer');

  before(() => {
    const built = spawnSync('go', ['build', '-o', peer, 'main.go'],
                            { cwd: join(kHere, 'quic_peer'), encoding: 'utf8',
                              env: { ...process.env, GO111MODULE: 'off', GOPATH: '/usr/share/gocode', GOCACHE: process.env.GOCACHE ?? join(root, 'build', 'go-cache'), GOFLAGS: '' } });
    assert.equal(built.status, 0, built.stderr);
  });

  test('as an agent proves its address and serves users', async () => {
    const relay = await Relay.start();
    const agent = new Program(peer, ['agent', '--relay', `localhost:${relay.agentPort}`, '--ca', relay.ca, '--suffix', suffix]);
    const { domain, certificate } = await agent.line((line) => JSON.parse(line));
    assert.match(domain, /^[0-9a-f]{16}\.fleet\.test$/);
    await echo(relay, domain, certificate);
    await agent.stop();
    await relay.stop();
  });

  for (const [form, ours, theirs] of [['in our form', [], []], ['in the legacy form', ['--accept', 'legacy'], ['--legacy']]]) {
    test(`as a relay takes our proof ${form} and carries users to us`, async () => {
      const target = await startTarget((call, answer) => call.pipe(answer));
      const { certificate, key, ca } = makeCertificate(['localhost', '127.0.0.1']);
      const relay = new Program(peer, ['relay', '--certificate', certificate, '--key', key, ...theirs]);
      const ports = await relay.line((line) => JSON.parse(line));
      const tunnel = Tunnel.start({ relays: [`localhost:${ports.agents}`], ca, to: target.address, args: ['--self-signed', '--carrier', 'quic', '--links', '1', ...ours] });
      const said = await relay.line((line) => JSON.parse(line), { from: 1 });
      await tunnel.ready();
      assert.equal(said.domain, tunnel.host);
      await echo({ publicPort: ports.users }, tunnel.host, tunnel.trusted());
      await tunnel.stop();
      await relay.stop();
      await target.stop();
    });
  }

  test('may say its hello in two datagrams, of which the second comes first', async () => {
    const relay = await Relay.start();
    const swap = await startSwap(relay.agentPort);
    const agent = new Program(peer, ['agent', '--relay', `localhost:${swap.port}`, '--ca', relay.ca, '--suffix', suffix, '--wide']);
    const { domain, certificate } = await agent.line((line) => JSON.parse(line));
    const answer = await request(relay, domain, { ca: certificate, method: 'POST', headers: { 'content-length': 4 }, body: 'here' });
    assert.equal(answer.body.toString(), 'here');
    assert.ok(swap.sent() >= 2);
    await agent.stop();
    swap.stop();
    await relay.stop();
  });

  // It always wants an ALPN name, so it cannot play an agent of the public network.
  test('without our ALPN name gets no link', async () => {
    const relay = await Relay.start();
    const agent = new Program(peer, ['agent', '--relay', `localhost:${relay.agentPort}`, '--ca', relay.ca, '--suffix', suffix, '--legacy']);
    assert.notEqual((await agent.exit)[0], 0);
    assert.match(agent.log, /no application protocol/);
    assert.equal((await relay.health()).links, 0);
    await relay.stop();
  });
});

describe('nghttp', { skip: has('nghttp') ? false : 'nghttp is not installed: scripts/setup --tests installs it' }, () => {
  test('as a relay reads the control items of our agent', async () => {
    const { certificate, key, ca } = makeCertificate(['localhost', '127.0.0.1']);
    let arrived;
    const agents = tls.createServer({ cert: readFileSync(certificate), key: readFileSync(key), requestCert: true, rejectUnauthorized: false }, (socket) => arrived?.(socket));
    agents.listen(0, '127.0.0.1');
    await once(agents, 'listening');
    const link = new Promise((resolve) => { arrived = resolve; });
    const tunnel = Tunnel.start({ relays: [`localhost:${agents.address().port}`], ca, to: '127.0.0.1:1', args: ['--self-signed', '--carrier', 'h2', '--links', '1', '--accept', 'legacy'] });
    const socket = await link;
    socket.on('error', () => {});
    const bridge = createServer((client) => { client.pipe(socket).pipe(client); client.on('error', () => {}); });
    bridge.listen(0, '127.0.0.1');
    await once(bridge, 'listening');
    const base = `http://127.0.0.1:${bridge.address().port}/_ctrl`;
    const tool = new Program('nghttp', ['--verbose', '--no-dep', `${base}/domain`, `${base}/sig`, `${base}/key_auth`]);
    const [code] = await tool.exit;
    const said = tool.output.join('\n');
    assert.equal(code, 0, tool.log + said);
    assert.equal(said.match(/:status: 200/g)?.length, 3, said);
    assert.match(said, new RegExp(`[0-9a-f]{16}\\.${suffix.replace('.', '\\.')}`));
    await tunnel.stop();
    bridge.close();
    agents.close();
  });
});
