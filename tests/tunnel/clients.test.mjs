// What clients do with an address, and what operators do with a relay.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { copyFileSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import tls from 'node:tls';
import { Relay, Tunnel, connectTls, folder, makeCertificate, request, startTarget, suffix } from './rig.mjs';

const kPiece = randomBytes(1_000_000);
const kBulkBytes = 1_000 * kPiece.length;

const wanted = (() => {
  const digest = createHash('sha256');
  for (let sent = 0; sent < kBulkBytes; sent += kPiece.length) digest.update(kPiece);
  return digest.digest('hex');
})();

for (const carrier of ['h2', 'quic']) describe(`over ${carrier}`, () => {
  let relay, tunnel, target, trusted;

  before(async () => {
    target = await startTarget(async (call, answer) => {
      if (call.method === 'GET') {
        for (let sent = 0; sent < kBulkBytes; sent += kPiece.length) {
          if (!answer.write(kPiece)) await once(answer, 'drain');
        }
        return answer.end();
      }
      const digest = createHash('sha256');
      for await (const piece of call) digest.update(piece);
      answer.end(digest.digest('hex'));
    });
    target.server.on('upgrade', (call, socket) => {
      socket.write('HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n');
      socket.pipe(socket);
    });
    relay = await Relay.start();
    tunnel = Tunnel.start({ relay, to: target.address, args: ['--self-signed', '--carrier', carrier] });
    await tunnel.ready();
    trusted = join(tunnel.state, `${tunnel.host}.self-signed.pem`);
  });
  after(async () => {
    await tunnel?.stop();
    await relay?.stop();
    await target?.stop();
  });

  const curl = async (args, input) => {
    const call = spawn('curl', ['-sS', '--cacert', trusted, '--resolve', `${tunnel.host}:${relay.publicPort}:127.0.0.1`, ...args, `https://${tunnel.host}:${relay.publicPort}/`]);
    const digest = createHash('sha256');
    let bytes = 0;
    let text = '';
    let errors = '';
    call.stdout.on('data', (piece) => {
      digest.update(piece);
      bytes += piece.length;
      if (text.length < 1_000) text += piece;
    });
    call.stderr.on('data', (piece) => { errors += piece; });
    if (input) {
      for (let sent = 0; sent < kBulkBytes; sent += input.length) {
        if (!call.stdin.write(input)) await once(call.stdin, 'drain');
      }
    }
    call.stdin.end();
    const [code] = await once(call, 'close');
    assert.equal(code, 0, errors);
    return { digest: digest.digest('hex'), bytes, text };
  };
  test('curl fetches 1 GB, and every byte is right', async () => {
    const got = await curl([]);
    assert.equal(got.bytes, kBulkBytes);
    assert.equal(got.digest, wanted);
  });

  test('curl sends 1 GB, and every byte is right', async () => {
    assert.equal((await curl(['-X', 'POST', '-T', '-'], kPiece)).text, wanted);
  });

  test('an upgrade to WebSocket passes, and bytes go both ways after it', async () => {
    const socket = await connectTls(relay, tunnel.host, { ca: tunnel.trusted() });
    socket.write(`GET / HTTP/1.1\r\nhost: ${tunnel.host}\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n`);
    let text = '';
    socket.on('data', (piece) => { text += piece; });
    while (!text.includes('\r\n\r\n')) await once(socket, 'data');
    assert.match(text, /^HTTP\/1\.1 101 /);
    text = '';
    socket.write('there and back');
    while (text !== 'there and back') await once(socket, 'data');
    socket.end();
  });
});

describe('several relays', () => {
  test('lead to one tunnel, and one that goes is no loss', async () => {
    const target = await startTarget((call, answer) => answer.end('here'));
    const relays = [await Relay.start(), await Relay.start()];
    const tunnel = Tunnel.start({ relays: relays.map((relay) => `localhost:${relay.agentPort}`), ca: relays[0].ca, to: target.address, args: ['--self-signed', '--links', '1'] });
    await tunnel.status((now) => now.links === 2);
    await tunnel.ready();
    for (const relay of relays) assert.equal((await request(relay, tunnel.host, { ca: tunnel.trusted() })).body.toString(), 'here');
    await relays[0].stop();
    const status = await tunnel.status((now) => now.links === 1 && now.error, { from: tunnel.output.length - 1 });
    assert.equal(status.state, 'ready');
    assert.equal((await request(relays[1], tunnel.host, { ca: tunnel.trusted() })).body.toString(), 'here');
    await tunnel.stop();
    await relays[1].stop();
    await target.stop();
  });
});

describe('a relay that is told to reload', () => {
  test('takes the new certificate and new suffixes, and keeps what runs', async () => {
    const target = await startTarget((call, answer) => answer.end('here'));
    const suffixes = join(mkdtempSync(join(folder, 'suffixes-')), 'list');
    writeFileSync(suffixes, '# of this fleet\nfirst.test\n');
    const relay = await Relay.start({ args: ['--suffix-file', suffixes] });
    const tunnel = Tunnel.start({ relay, to: target.address, args: ['--self-signed', '--carrier', 'h2'] });
    await tunnel.ready();
    const own = makeCertificate(['agent']);
    const serial = async () => {
      const socket = tls.connect({ host: '127.0.0.1', port: relay.agentPort, servername: 'localhost', ca: readFileSync(relay.ca), cert: readFileSync(own.certificate), key: readFileSync(own.key) });
      await once(socket, 'secureConnect');
      const { serialNumber } = socket.getPeerCertificate();
      socket.destroy();
      return serialNumber;
    };
    const before = await serial();
    const next = makeCertificate(['localhost', '127.0.0.1']);
    copyFileSync(next.certificate, relay.certificate);
    copyFileSync(next.key, relay.key);
    writeFileSync(suffixes, 'second.test\n');
    relay.process.kill('SIGHUP');
    while (!relay.log.includes('event=reloaded')) await once(relay.process.stderr, 'data');
    assert.notEqual(await serial(), before);
    const newcomer = Tunnel.start({ relay, to: target.address, ofSuffix: 'second.test', args: ['--self-signed', '--carrier', 'h2'] });
    await newcomer.ready();
    const late = Tunnel.start({ relay, to: target.address, ofSuffix: 'first.test', args: ['--self-signed', '--carrier', 'h2'] });
    assert.match((await late.status((now) => now.state === 'failing')).error, /suffix not allowed/);
    assert.equal((await request(relay, tunnel.host, { ca: tunnel.trusted() })).body.toString(), 'here');
    assert.ok(tunnel.host.endsWith(suffix));
    await Promise.all([tunnel.stop(), newcomer.stop(), late.stop()]);
    await relay.stop();
    await target.stop();
  });
});
