// An address behind a relay, from end to end: real TLS clients, a real certificate authority.
import assert from 'node:assert/strict';
import { X509Certificate, randomBytes } from 'node:crypto';
import { copyFileSync, mkdtempSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { UdpImpairment } from '../impair.mjs';
import { after, before, describe, test } from 'node:test';
import { Relay, Tunnel, connectTls, folder, request, sha256, startPebble, startPipe, startTarget, suffix } from './rig.mjs';

for (const carrier of ['h2', 'quic']) describe(`a tunnel over ${carrier}`, () => {
  let relay, tunnel, target;

  before(async () => {
    target = await startTarget(async (call, answer) => {
      const pieces = [];
      for await (const piece of call) pieces.push(piece);
      answer.setHeader('x-digest', sha256(Buffer.concat(pieces)));
      answer.end(`${call.method} ${call.url} ${Buffer.concat(pieces).length}`);
    });
    relay = await Relay.start();
    tunnel = Tunnel.start({ relay, to: target.address, args: ['--self-signed', '--carrier', carrier] });
    assert.equal((await tunnel.ready()).carrier, carrier);
  });
  after(async () => {
    await tunnel?.stop();
    await relay?.stop();
    await target?.stop();
  });

  test('answers a request at its address', async () => {
    assert.match(tunnel.host, new RegExp(`^[0-9a-f]{16}\\.${suffix}$`));
    const answer = await request(relay, tunnel.host, { path: '/v1/models', ca: tunnel.trusted() });
    assert.equal(answer.status, 200);
    assert.equal(answer.body.toString(), 'GET /v1/models 0');
  });

  test('carries a body of 8 MiB unchanged', async () => {
    const body = randomBytes(8 << 20);
    const answer = await request(relay, tunnel.host, { method: 'POST', body: Readable.from([body]), ca: tunnel.trusted() });
    assert.equal(answer.headers['x-digest'], sha256(body));
  });

  test('keeps 200 connections at once', async () => {
    const answers = await Promise.all(Array.from({ length: 200 }, (_, i) => request(relay, tunnel.host, { path: `/${i}`, ca: tunnel.trusted() })));
    answers.forEach((answer, i) => assert.equal(answer.body.toString(), `GET /${i} 0`));
  });

  test('the relay counts what it carried, and logs no contents', async () => {
    assert.ok(await relay.metric('pocketfleet_relay_users_total', 'outcome="carried"') >= 202);
    assert.ok(await relay.metric('pocketfleet_relay_bytes_total', 'from_users') > 8 << 20);
    assert.equal((await relay.health()).links, 2);
    assert.equal(await relay.metric('pocketfleet_relay_agents_total', `carrier="${carrier}"`, 'joined'), 2);
    assert.ok(!relay.log.includes('/v1/models'));
  });

  test('an address that nobody has is refused with a TLS alert', async () => {
    await assert.rejects(connectTls(relay, `0123456789abcdef.${suffix}`), /unrecognized name/);
    assert.ok(await relay.metric('pocketfleet_relay_users_total', 'outcome="unknown name"') >= 1);
  });

  test('a local server that is away is a 503 for the client', async () => {
    const lonely = Tunnel.start({ relay, to: '127.0.0.1:1', args: ['--self-signed', '--carrier', carrier] });
    await lonely.ready();
    const answer = await request(relay, lonely.host, { ca: lonely.trusted() });
    assert.equal(answer.status, 503);
    assert.equal(answer.headers['retry-after'], '5');
    assert.equal(JSON.parse(answer.body).error.code, 'unavailable');
    const { host } = lonely;
    await lonely.stop();
    await assert.rejects(connectTls(relay, host), /internal error/);
    assert.ok(await relay.metric('pocketfleet_relay_users_total', 'outcome="agent away"') >= 1);
  });
});

describe('a tunnel that may choose', () => {
  test('falls back to HTTP/2 where UDP does not get through, and comes back when it does', async () => {
    let finish;
    const target = await startTarget((call, answer) => {
      if (call.url === '/') return answer.end('here');
      answer.write('begun ');
      finish = () => answer.end('ended');
    });
    const relay = await Relay.start();
    const udp = new UdpImpairment({ to: { host: '127.0.0.1', port: relay.agentPort } });
    const port = await udp.listen();
    const tcp = await startPipe(port, relay.agentPort);
    udp.stall();
    const tunnel = Tunnel.start({ relay, relays: [`localhost:${port}`], to: target.address, args: ['--self-signed', '--quic-retry', '1', '--links', '1'] });
    assert.equal((await tunnel.ready()).carrier, 'h2');
    udp.resume();
    await tunnel.status((now) => now.carrier === 'quic' && now.links === 2);
    await tunnel.status((now) => now.carrier === 'quic' && now.links === 1);
    assert.equal((await request(relay, tunnel.host, { ca: tunnel.trusted() })).body.toString(), 'here');
    // The machine's address changes in the middle of a connection: the stream goes on.
    const socket = await connectTls(relay, tunnel.host, { ca: tunnel.trusted() });
    socket.write(`GET /slow HTTP/1.1\r\nhost: ${tunnel.host}\r\nconnection: close\r\n\r\n`);
    let text = '';
    for await (const bytes of socket) {
      text += bytes;
      if (finish && text.includes('begun')) {
        await udp.rebind();
        finish();
        finish = undefined;
      }
    }
    assert.match(text, /begun[^]*ended/, `${tunnel.output.join('\n')}\n${tunnel.log}\n${relay.log}`);
    await tunnel.stop();
    tcp.close();
    await udp.close();
    await relay.stop();
    await target.stop();
  });
});

describe('a tunnel with a certificate authority', () => {
  test('shares its certificate with others that hold the same key: one orders, and one renews', async () => {
    const target = await startTarget((call, answer) => answer.end('here'));
    const relay = await Relay.start();
    const authority = await startPebble({ relayPort: relay.publicPort, validity_s: 30 });
    const args = ['--acme-directory', authority.directory, '--acme-ca', authority.ca, '--agree-terms', '--public-port', String(relay.publicPort)];
    // One makes the key, and signs for itself: that is no help to those who order, not even in the same folder.
    const maker = Tunnel.start({ relay, to: target.address, args: ['--self-signed'] });
    await maker.ready();
    const machines = Array.from({ length: 3 }, (_, at) => {
      const state = at === 0 ? maker.state : mkdtempSync(join(folder, 'state-'));
      if (at > 0) copyFileSync(join(maker.state, 'identity.key'), join(state, 'identity.key'));
      return Tunnel.start({ relay, to: target.address, state, args });
    });
    await Promise.all(machines.map((machine) => machine.ready({ within_ms: 60_000 })));
    const serial = (machine) => new X509Certificate(readFileSync(join(machine.state, `${machine.host}.pem`), 'utf8')).serialNumber;
    const first = serial(machines[0]);
    assert.deepEqual(machines.map(serial), [first, first, first]);
    const until_ms = machines[0].output.map(JSON.parse).at(-1).certificate_until_ms;
    await Promise.all(machines.map((machine) => machine.status((now) => now.certificate_until_ms > until_ms, { within_ms: 60_000 })));
    const renewed = machines.map(serial);
    assert.deepEqual(renewed, [renewed[0], renewed[0], renewed[0]], 'one renews, and the others take what it got');
    await Promise.all([maker, ...machines].map((machine) => machine.stop()));
    await authority.stop();
    await relay.stop();
    await target.stop();
  });

  for (const carrier of ['h2', 'quic']) test(`over ${carrier} orders a certificate through the relay, keeps it over a restart, and its key never leaves`, async () => {
    const target = await startTarget((call, answer) => answer.end('here'));
    const relay = await Relay.start();
    const authority = await startPebble({ relayPort: relay.publicPort });
    const args = ['--acme-directory', authority.directory, '--acme-ca', authority.ca, '--agree-terms', '--carrier', carrier];
    const first = Tunnel.start({ relay, to: target.address, args });
    await first.ready({ within_ms: 60_000 });
    const answer = await request(relay, first.host, { ca: authority.rootPem });
    assert.equal(answer.body.toString(), 'here');
    const chain = readFileSync(join(first.state, `${first.host}.pem`), 'utf8');
    assert.equal(new X509Certificate(chain).subjectAltName, `DNS:${first.host}`);
    await first.stop();

    await authority.stop();
    const again = Tunnel.start({ relay, to: target.address, state: first.state, args });
    await again.ready();
    assert.equal(again.host, first.host);
    assert.equal((await request(relay, again.host, { ca: authority.rootPem })).body.toString(), 'here');
    await again.stop();
    await relay.stop();
    await target.stop();
  });
});
