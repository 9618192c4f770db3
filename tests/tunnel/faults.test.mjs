// What happens on bad days: relays that restart, links that go silent, streams that are cut anywhere, strangers who send slowly.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync, readdirSync } from 'node:fs';
import { connect } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import tls from 'node:tls';
import { TcpImpairment } from '../impair.mjs';
import { Relay, Tunnel, connectTls, freePort, makeCertificate, request, startTarget } from './rig.mjs';

const until = async (condition, within_ms = 20_000) => {
  const deadline = Date.now() + within_ms;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`gave up waiting: ${condition}`);
    await sleep(20);
  }
};

describe('links', () => {
  test('come back after the relay was killed and started again', async () => {
    const target = await startTarget((call, answer) => answer.end('here'));
    const [publicPort, agentPort] = [await freePort(), await freePort()];
    let relay = await Relay.start({ publicPort, agentPort });
    const tunnel = Tunnel.start({ relay, to: target.address, args: ['--self-signed', '--carrier', 'h2'] });
    await tunnel.ready();
    await relay.stop('SIGKILL');
    const seen = tunnel.output.length;
    const failing = await tunnel.status((now) => now.state === 'failing', { from: seen - 1 });
    assert.ok(failing.error.length > 0);
    assert.ok(failing.next_try_ms > 0);
    relay = await Relay.start({ publicPort, agentPort });
    await tunnel.status((now) => now.state === 'ready', { from: tunnel.output.length });
    assert.equal((await request(relay, tunnel.host, { ca: tunnel.trusted() })).body.toString(), 'here');
    await tunnel.stop();
    await relay.stop();
    await target.stop();
  });

  test('that are half open do not keep a newer one from serving at once', async () => {
    const target = await startTarget((call, answer) => answer.end('here'));
    const relay = await Relay.start();
    const wire = new TcpImpairment({ to: { host: '127.0.0.1', port: relay.agentPort } });
    const port = await wire.listen();
    const first = Tunnel.start({ relay, relays: [`localhost:${port}`], to: target.address, args: ['--self-signed', '--carrier', 'h2'] });
    await first.ready();
    // The phone has lost its Wi-Fi: nothing arrives and nothing is closed. It comes back on another way with the same key.
    wire.stall();
    const second = Tunnel.start({ relay, to: target.address, state: first.state });
    await second.ready();
    const before = Date.now();
    assert.equal((await request(relay, second.host, { ca: second.trusted() })).body.toString(), 'here');
    assert.ok(Date.now() - before < 1_000, 'the first user after the return waits for nothing');
    await until(async () => (await relay.health()).links === 2);
    await Promise.all([first.stop('SIGKILL'), second.stop()]);
    await wire.close();
    await relay.stop();
    await target.stop();
  });

  test('of one address that come at the same moment are all kept', async () => {
    const target = await startTarget((call, answer) => answer.end('here'));
    const relay = await Relay.start();
    // Far away, so that each is asked whether it lives while others come and ask the same.
    const wire = new TcpImpairment({ to: { host: '127.0.0.1', port: relay.agentPort }, delay_ms: 200 });
    const port = await wire.listen();
    const tunnel = Tunnel.start({ relay, relays: [`localhost:${port}`], to: target.address, args: ['--self-signed', '--carrier', 'h2', '--links', '16'] });
    await tunnel.status((now) => now.links === 16);
    const seen = tunnel.output.length;
    await sleep(4_000);  // longer than an answer is waited for
    assert.deepEqual(tunnel.output.slice(seen), [], 'no link has gone');
    assert.doesNotMatch(relay.log, /did not answer/);
    assert.equal((await relay.health()).links, 16);
    await Promise.all([tunnel.stop(), wire.close()]);
    await relay.stop();
    await target.stop();
  });

  test('a relay that drains lets users end and takes no new ones', async () => {
    let finish;
    const target = await startTarget((call, answer) => {
      answer.write('begun ');
      finish = () => answer.end('ended');
    });
    const relay = await Relay.start();
    const tunnel = Tunnel.start({ relay, to: target.address });
    await tunnel.ready();
    const socket = await connectTls(relay, tunnel.host, { ca: tunnel.trusted() });
    socket.write(`GET / HTTP/1.1\r\nhost: ${tunnel.host}\r\nconnection: close\r\n\r\n`);
    let text = '';
    socket.on('data', (bytes) => { text += bytes; });
    await until(() => text.includes('begun'));
    relay.process.kill('SIGTERM');
    await until(async () => (await relay.health()).status === 'draining');
    await assert.rejects(connectTls(relay, tunnel.host, { ca: tunnel.trusted() }));
    finish();
    await once(socket, 'end');
    assert.match(text, /ended/);
    assert.deepEqual(await relay.exit, [0, null]);
    await tunnel.stop();
    await target.stop();
  });
});

describe('strangers', () => {
  let relay, tunnel, target;
  before(async () => {
    target = await startTarget((call, answer) => answer.end('here'));
    relay = await Relay.start();
    tunnel = Tunnel.start({ relay, to: target.address });
    await tunnel.ready();
  });
  after(async () => {
    await tunnel?.stop();
    await relay?.stop();
    await target?.stop();
  });

  test('a hello in pieces of one byte is routed, and one that takes longer than five seconds is not', async () => {
    const wire = new TcpImpairment({ to: { host: '127.0.0.1', port: relay.publicPort }, chunk_bytes: 1 });
    const publicPort = await wire.listen();
    assert.equal((await request({ publicPort }, tunnel.host, { ca: tunnel.trusted() })).body.toString(), 'here');
    const socket = connect(relay.publicPort, '127.0.0.1');
    await once(socket, 'connect');
    const begun = Date.now();
    const drip = setInterval(() => socket.write(Buffer.from([0x16])), 500);
    socket.on('error', () => {});
    await once(socket, 'close');
    clearInterval(drip);
    assert.ok(Date.now() - begun < 6_500);
    await wire.close();
  });

  test('what is no TLS is closed, and counted', async () => {
    const socket = connect(relay.publicPort, '127.0.0.1');
    socket.end('GET / HTTP/1.1\r\nhost: example.com\r\n\r\n');
    socket.on('error', () => {});
    socket.resume();
    await once(socket, 'close');
    await until(async () => (await relay.metric('pocketfleet_relay_users_total', 'not TLS')) >= 1);
  });
});

describe('server-sent events', () => {
  test('with characters of several bytes arrive unchanged and as they come, wherever they are cut', async () => {
    const text = 'data: {"w":"Zürich – 你好 🙂"}\n\n';
    const bytes = Buffer.from(text);
    const target = await startTarget((call, answer) => {
      answer.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' });
      const at = Number(new URL(call.url, 'http://x').searchParams.get('cut'));
      answer.write(bytes.subarray(0, at));
      setImmediate(() => {
        answer.write(bytes.subarray(at));
        answer.end();
      });
    });
    const relay = await Relay.start();
    const wire = new TcpImpairment({ to: { host: '127.0.0.1', port: relay.agentPort }, chunk_bytes: 7 });
    const tunnel = Tunnel.start({ relay, relays: [`localhost:${await wire.listen()}`], to: target.address, args: ['--self-signed', '--carrier', 'h2'] });
    await tunnel.ready();
    const ca = tunnel.trusted();
    for (let cut = 1; cut < bytes.length; ++cut) {
      const answer = await request(relay, tunnel.host, { path: `/?cut=${cut}`, ca });
      assert.equal(answer.body.toString(), text);
    }
    await tunnel.stop();
    await wire.close();
    await relay.stop();
    await target.stop();
  });

  test('the first byte of a stream comes within 100 ms, for GET and POST and any content type', async () => {
    const target = await startTarget((call, answer) => {
      answer.writeHead(200, { 'content-type': call.method === 'GET' ? 'text/event-stream' : 'text/event-stream; charset=utf-8' });
      answer.write(`data: ${Date.now()}\n\n`);
    });
    const relay = await Relay.start();
    const tunnel = Tunnel.start({ relay, to: target.address });
    await tunnel.ready();
    for (const method of ['GET', 'POST']) {
      const socket = await connectTls(relay, tunnel.host, { ca: tunnel.trusted() });
      socket.write(`${method} / HTTP/1.1\r\nhost: x\r\naccept-encoding: gzip\r\ncontent-length: 0\r\n\r\n`);
      let text = '';
      const late = await new Promise((resolve) => socket.on('data', (piece) => {
        text += piece;
        const sent = /data: (\d+)/.exec(text);
        if (sent) resolve(Date.now() - Number(sent[1]));
      }));
      assert.ok(late < 100, `${late} ms`);
      socket.destroy();
    }
    await tunnel.stop();
    await relay.stop();
    await target.stop();
  });
});

// What a process holds, and what it works while nothing happens.
const kQuiet_ms = 1_000;
const kTick_ms = 10;
const files = (pid) => readdirSync(`/proc/${pid}/fd`).length;
const threads = (pid) => readdirSync(`/proc/${pid}/task`).length;
const worked_ms = (pid) => readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ').slice(11, 13).reduce((sum, ticks) => sum + Number(ticks) * kTick_ms, 0);

describe('1,000 who come and go', () => {
  test('at any point of their way leave no file, no thread and no work behind, as users and as agents', async () => {
    const target = await startTarget((call, answer) => answer.write('begun'));
    const relay = await Relay.start();
    const tunnel = Tunnel.start({ relay, to: target.address });
    await tunnel.ready();
    const pids = [relay.process.pid, tunnel.process.pid];
    const credentials = makeCertificate(['agent']);
    const agent = { servername: 'localhost', ca: readFileSync(relay.ca), cert: readFileSync(credentials.certificate), key: readFileSync(credentials.key) };
    const user = { servername: tunnel.host, ca: tunnel.trusted() };

    // 0: no byte; 1: bytes that are no hello, or half a hello; 2: after the handshake; 3: after the first answer; all by a reset.
    const comeAndGo = async (port, options, stage) => {
      const socket = connect(port, '127.0.0.1');
      socket.on('error', () => {});
      await once(socket, 'connect');
      if (stage === 1) socket.write(Buffer.from([0x16, 0x03, 0x01, 0x02]));
      if (stage >= 2) {
        const secure = tls.connect({ socket, ...options });
        secure.on('error', () => {});
        await once(secure, 'secureConnect');
        if (stage === 3) {
          if (options === user) secure.write(`GET / HTTP/1.1\r\nhost: ${tunnel.host}\r\n\r\n`);
          await once(secure, 'data');
        }
      }
      socket.resetAndDestroy();
    };
    const round = async (count) => {
      for (let done = 0; done < count; done += 40) {
        await Promise.all(Array.from({ length: 20 }, (_, at) => [comeAndGo(relay.publicPort, user, at % 4), comeAndGo(relay.agentPort, agent, (at + done) % 4)]).flat());
      }
      await until(async () => (await relay.health()).users === 0);
    };
    await round(40);
    const base = pids.map(files);
    const base_threads = pids.map(threads);
    await round(1_000);
    await until(() => pids.every((pid, at) => files(pid) <= base[at] + 2));
    assert.deepEqual(pids.map(threads), base_threads);
    const before = pids.map(worked_ms);
    await sleep(kQuiet_ms);  // the measurement itself, not a wait for something
    pids.forEach((pid, at) => assert.ok(worked_ms(pid) - before[at] <= kQuiet_ms / 20, `${at === 0 ? 'the relay' : 'the tunnel'} works while nobody is there`));
    await tunnel.stop();
    await relay.stop();
    await target.stop();
  });
});

describe('few files', () => {
  test('2,000 connections with 256 files shed the new and keep the old', async () => {
    const target = await startTarget((call, answer) => answer.end('here'));
    const relay = await Relay.start({ prefix: ['prlimit', '--nofile=256:256', '--'] });
    const tunnel = Tunnel.start({ relay, to: target.address });
    await tunnel.ready();
    const old = await connectTls(relay, tunnel.host, { ca: tunnel.trusted() });
    const sockets = Array.from({ length: 2_000 }, () => {
      const socket = connect(relay.publicPort, '127.0.0.1');
      socket.on('error', () => {});
      return socket;
    });
    await until(async () => (await relay.metric('pocketfleet_relay_users_total', 'relay full')) + (await relay.metric('pocketfleet_relay_users_total', 'no file left')) > 1_000);
    old.write(`GET / HTTP/1.1\r\nhost: ${tunnel.host}\r\nconnection: close\r\n\r\n`);
    let text = '';
    old.on('data', (bytes) => { text += bytes; });
    await once(old, 'end');
    assert.match(text, /here$/);
    for (const socket of sockets) socket.destroy();
    await until(async () => (await relay.health()).users === 0);
    assert.equal((await request(relay, tunnel.host, { ca: tunnel.trusted() })).body.toString(), 'here');
    await tunnel.stop();
    await relay.stop();
    await target.stop();
  });
});
