// Who may serve an address, and what a relay tells about users.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createServer as createTcpServer } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { Relay, Tunnel, connectTls, request, startNames, startTarget, suffix } from './rig.mjs';

describe('an authorisation service', () => {
  let target, service, names, relay, answer, asked;

  before(async () => {
    target = await startTarget((call, response) => response.end('here'));
    service = await startTarget(async (call, response) => {
      const pieces = [];
      for await (const piece of call) pieces.push(piece);
      asked = JSON.parse(Buffer.concat(pieces));
      response.statusCode = answer.status;
      response.end(JSON.stringify(answer.body ?? {}));
    });
    names = await startNames();
    relay = await Relay.start({ args: ['--authorise', `http://${service.address}/agents`, '--nameserver', names.dns] });
  });
  after(async () => {
    await relay?.stop();
    await names?.stop();
    await service?.stop();
    await target?.stop();
  });

  for (const carrier of ['h2', 'quic']) {
    test(`lets in whom it knows, over ${carrier}`, async () => {
      answer = { status: 200 };
      const tunnel = Tunnel.start({ relay, to: target.address, args: ['--self-signed', '--carrier', carrier, '--links', '1'] });
      await tunnel.ready();
      assert.equal(asked.domain, tunnel.host);
      const id = createHash('sha256').update(Buffer.from(asked.identity_key, 'hex')).digest('hex').slice(0, 16);
      assert.equal(`${id}.${suffix}`, tunnel.host);
      assert.match(asked.agent_key, /^0[23][0-9a-f]{64}$/);
      assert.equal((await request(relay, tunnel.host, { ca: tunnel.trusted() })).body.toString(), 'here');
      await tunnel.stop();
    });

    test(`refuses others with its reason, which both sides are told, over ${carrier}`, async () => {
      answer = { status: 403, body: { reason: 'the deployment has ended' } };
      const tunnel = Tunnel.start({ relay, to: target.address, args: ['--self-signed', '--carrier', carrier, '--links', '1'] });
      const failing = await tunnel.status((now) => now.state === 'failing');
      assert.match(failing.error, /unauthorized: auth handler rejected: the deployment has ended/);
      assert.match(relay.log, /agent_refused.*the deployment has ended/);
      assert.ok(await relay.metric('pocketfleet_relay_agents_total', `carrier="${carrier}"`, 'refused') >= 1);
      await tunnel.stop();
    });
  }

  test('names a source, and the suffix has to allow that one in DNS', async () => {
    const source = Buffer.alloc(32, 7);
    answer = { status: 200, body: { source: source.toString('hex') } };
    await names.setTxt(`_acu.${suffix}.`, 'for somebody else');
    const refused = Tunnel.start({ relay, to: target.address, args: ['--self-signed', '--carrier', 'h2', '--links', '1'] });
    assert.match((await refused.status((now) => now.state === 'failing')).error, /deployment source not authorized by TXT/);
    await refused.stop();
    const value = createHash('sha256').update(source).update(suffix).digest('base64');
    await names.setTxt(`_acu.${suffix}.`, value);
    const tunnel = Tunnel.start({ relay, to: target.address, args: ['--self-signed', '--carrier', 'h2', '--links', '1'] });
    await tunnel.ready();
    await tunnel.stop();
  });

  test('that is away keeps agents out and lets them come again', async () => {
    answer = { status: 500 };
    const tunnel = Tunnel.start({ relay, to: target.address, args: ['--self-signed', '--carrier', 'h2', '--links', '1'] });
    await tunnel.status((now) => now.state === 'failing');
    answer = { status: 200 };
    await tunnel.ready({ within_ms: 60_000 });
    await tunnel.stop();
  });
});

describe('a suffix that the relay does not have', () => {
  test('is refused, and both sides say why', async () => {
    const relay = await Relay.start();
    const tunnel = Tunnel.start({ relay, to: '127.0.0.1:1', ofSuffix: 'other.test', args: ['--self-signed', '--carrier', 'h2', '--links', '1'] });
    assert.match((await tunnel.status((now) => now.state === 'failing')).error, /domain suffix not allowed/);
    assert.match(relay.log, /domain suffix not allowed/);
    await tunnel.stop();
    await relay.stop();
  });
});

describe('the PROXY protocol', () => {
  test('tells the local server who called, where both ends are asked to', async () => {
    const seen = [];
    const server = createTcpServer((socket) => {
      let bytes = Buffer.alloc(0);
      socket.on('data', (piece) => {
        bytes = Buffer.concat([bytes, piece]);
        const end = bytes.indexOf('\r\n\r\n', 28);
        if (end < 0) return;
        seen.push({ port: bytes.readUInt16BE(24), host: [...bytes.subarray(16, 20)].join('.'), signature: bytes.subarray(0, 12).toString('latin1'), request: bytes.subarray(28).toString() });
        socket.end('HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok');
      });
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const relay = await Relay.start({ args: ['--proxy-protocol'] });
    for (const carrier of ['h2', 'quic']) {
      const tunnel = Tunnel.start({ relay, to: `127.0.0.1:${server.address().port}`, args: ['--self-signed', '--carrier', carrier, '--send-proxy'] });
      await tunnel.ready();
      const socket = await connectTls(relay, tunnel.host, { ca: tunnel.trusted() });
      const { localPort } = socket;
      socket.write(`GET /x HTTP/1.1\r\nhost: ${tunnel.host}\r\n\r\n`);
      let text = '';
      for await (const piece of socket) text += piece;
      assert.match(text, /ok$/);
      const caller = seen.pop();
      assert.equal(caller.signature, '\r\n\r\n\0\r\nQUIT\n');
      assert.equal(`${caller.host}:${caller.port}`, `127.0.0.1:${localPort}`);
      assert.match(caller.request, /^GET \/x /);
      await tunnel.stop();
    }
    server.close();
    await relay.stop();
  });
});
