// The proxies that stand for bad networks in other tests do what they say, and nothing else.
import assert from 'node:assert/strict';
import dgram from 'node:dgram';
import net from 'node:net';
import { after, describe, test } from 'node:test';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { TcpImpairment, UdpImpairment } from '../impair.mjs';

const kHost = '127.0.0.1';
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const digest = (bytes) => createHash('sha256').update(bytes).digest('hex');

async function eventually(condition, what, ms = 5_000) {
  const end = performance.now() + ms;
  while (!condition()) {
    assert.ok(performance.now() < end, `not in time: ${what}`);
    await pause(5);
  }
}

// Everything that is made in a test goes with it.
const closers = [];
const opened = (thing, close) => {
  closers.push(close);
  return thing;
};
const closeAll = async () => {
  for (const close of closers.splice(0).reverse()) await close();
};

// A server that says everything back and notes what it sees.
async function echoServer() {
  const seen = { sockets: [], chunks: [], ends: 0, port: 0 };
  const server = net.createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    seen.sockets.push(socket);
    socket.on('error', () => {});
    socket.on('data', (bytes) => {
      seen.chunks.push(bytes);
      if (!socket.write(bytes)) {
        socket.pause();
        socket.once('drain', () => socket.resume());
      }
    });
    socket.on('end', () => {
      ++seen.ends;
      socket.end();
    });
  });
  server.listen(0, kHost);
  await once(server, 'listening');
  seen.port = server.address().port;
  return opened(seen, () => {
    seen.sockets.forEach((socket) => socket.destroy());
    server.close();
  });
}

async function tcpThrough(options) {
  const server = await echoServer();
  const proxy = new TcpImpairment({ to: { host: kHost, port: server.port }, ...options });
  const port = await proxy.listen();
  opened(proxy, () => proxy.close());
  const dial = async () => {
    const socket = net.connect({ host: kHost, port, allowHalfOpen: true, noDelay: true });
    opened(socket, () => socket.destroy());
    const client = { socket, received: [], ended: false, error: null };
    socket.on('data', (bytes) => client.received.push(bytes));
    socket.on('end', () => { client.ended = true; });
    socket.on('error', (error) => { client.error = error; });
    await once(socket, 'connect');
    return client;
  };
  return { server, proxy, dial };
}

const sizeOf = (chunks) => chunks.reduce((sum, chunk) => sum + chunk.length, 0);

async function echoed(client, bytes) {
  client.socket.end(bytes);
  await eventually(() => client.ended, 'the end of the echo', 30_000);
  return Buffer.concat(client.received);
}

describe('a bad network for TCP', () => {
  after(closeAll);

  test('bytes arrive unchanged and in order, and so do the ends', async () => {
    for (const options of [{}, { delay_ms: 20, jitter_ms: 20, chunk_bytes: 700 }, { chunk_bytes: [1, 5, 517, 100_000] }, { jitter_ms: 3, chunk_bytes: 1_000 }]) {
      const { server, proxy, dial } = await tcpThrough(options);
      const bytes = randomBytes(300_000);
      const answer = await echoed(await dial(), bytes);
      assert.equal(digest(answer), digest(bytes), JSON.stringify(options));
      assert.equal(server.ends, 1);
      assert.deepEqual([proxy.counters.bytes_up, proxy.counters.bytes_down], [bytes.length, bytes.length]);
      await eventually(() => proxy.counters.open === 0, 'the connection is over');
    }
  });

  test('more than fits into any queue gets through a slow reader', async () => {
    const { dial } = await tcpThrough({ chunk_bytes: 50_000 });
    const client = await dial();
    const bytes = randomBytes(8 << 20);
    client.socket.pause();
    client.socket.end(bytes);
    await pause(200);
    client.socket.resume();
    await eventually(() => client.ended, 'the end of the echo', 30_000);
    assert.equal(digest(Buffer.concat(client.received)), digest(bytes));
  });

  test('the stream is cut at the offsets that are asked for', async () => {
    const { server, dial } = await tcpThrough({ chunk_bytes: [1, 10], jitter_ms: 30, seed: 3 });
    const bytes = randomBytes(100);
    assert.deepEqual(await echoed(await dial(), bytes), bytes);
    // The kernel may put pieces together again, but it makes no cut of its own in so little.
    const ends = new Set();
    let at = 0;
    for (const chunk of server.chunks) ends.add(at += chunk.length);
    for (const end of ends) assert.ok([1, 10, 100].includes(end), `cut at ${end}`);
  });

  test('a delay is kept, and so is a rate', async () => {
    const slow = await tcpThrough({ delay_ms: 100 });
    let begin = performance.now();
    await echoed(await slow.dial(), Buffer.from('x'));
    assert.ok(performance.now() - begin >= 195, `${performance.now() - begin} ms there and back`);
    const narrow = await tcpThrough({ rate_bytes_per_s: 100_000, chunk_bytes: 1_000 });
    begin = performance.now();
    await echoed(await narrow.dial(), randomBytes(30_000));
    assert.ok(performance.now() - begin >= 290, `${performance.now() - begin} ms for 30,000 bytes`);
  });

  test('while it stalls bytes vanish and both sockets stay open', async () => {
    const { server, proxy, dial } = await tcpThrough({});
    const used = await dial();
    const idle = await dial();
    used.socket.write('before');
    idle.socket.write('before');
    await eventually(() => sizeOf(used.received) === 6 && sizeOf(idle.received) === 6, 'the echo before the stall');
    proxy.stall();
    used.socket.write('lost');
    const late = await dial();
    late.socket.write('lost');
    await pause(100);
    assert.equal(sizeOf(server.chunks), 12);
    for (const client of [used, idle, late]) assert.ok(!client.ended && client.error === null && !client.socket.destroyed);
    assert.ok(server.sockets.every((socket) => !socket.destroyed && !socket.readableEnded));
    proxy.resume();
    idle.socket.write('after');
    await eventually(() => sizeOf(idle.received) === 11, 'the echo after the stall');
    // A stream with a hole in it does not go on.
    used.socket.write('after');
    await pause(100);
    assert.equal(sizeOf(used.received), 6);
    assert.equal(sizeOf(late.received), 0);
    const fresh = await dial();
    assert.equal((await echoed(fresh, Buffer.from('new'))).toString(), 'new');
  });

  test('a side that goes during a stall is not missed by the other', async () => {
    const { server, proxy, dial } = await tcpThrough({});
    const client = await dial();
    client.socket.write('x');
    await eventually(() => sizeOf(client.received) === 1, 'the echo');
    proxy.stall();
    client.socket.resetAndDestroy();
    await pause(100);
    proxy.resume();
    await pause(50);
    assert.ok(!server.sockets[0].destroyed && !server.sockets[0].readableEnded);
    assert.equal(proxy.counters.open, 1);
  });

  test('a cut resets both sides, and new connections are served', async () => {
    const { server, proxy, dial } = await tcpThrough({ delay_ms: 5 });
    const clients = [await dial(), await dial()];
    await eventually(() => server.sockets.length === 2, 'both connections');
    let resets = 0;
    server.sockets.forEach((socket) => socket.on('error', (error) => { if (error.code === 'ECONNRESET') ++resets; }));
    proxy.cut();
    await eventually(() => clients.every((client) => client.error?.code === 'ECONNRESET') && resets === 2, 'resets on both sides');
    assert.equal(proxy.counters.cut, 2);
    await eventually(() => proxy.counters.open === 0, 'nothing left');
    assert.equal((await echoed(await dial(), Buffer.from('again'))).toString(), 'again');
  });

  test('a reset of one side is passed on to the other', async () => {
    const { server, dial } = await tcpThrough({});
    const client = await dial();
    await eventually(() => server.sockets.length === 1, 'the connection');
    server.sockets[0].resetAndDestroy();
    await eventually(() => client.error?.code === 'ECONNRESET', 'the reset');
    assert.equal(client.ended, false);
  });
});

async function udpThrough(options) {
  const server = { socket: dgram.createSocket('udp4'), received: [], ports: new Set(), clients: [] };
  server.socket.on('message', (packet, client) => {
    server.received.push(packet.readUInt32BE(0));
    server.ports.add(client.port);
    server.socket.send(packet, client.port, client.address);
  });
  server.socket.bind(0, kHost);
  await once(server.socket, 'listening');
  opened(server, () => server.socket.close());
  const proxy = new UdpImpairment({ to: { host: kHost, port: server.socket.address().port }, ...options });
  const port = await proxy.listen();
  opened(proxy, () => proxy.close());
  const client = { socket: dgram.createSocket('udp4'), received: [] };
  client.socket.on('message', (packet) => client.received.push(packet.readUInt32BE(0)));
  opened(client, () => client.socket.close());
  let next = 0;
  // A few at a time, and no more before those have come in: no socket's buffer overflows.
  const send = async (count) => {
    for (let left = count; left > 0; --left) {
      const packet = Buffer.alloc(100);
      packet.writeUInt32BE(next++);
      client.socket.send(packet, port, kHost);
      if (next % 50 === 0) await eventually(() => proxy.counters.up.packets >= next, 'packets have come in');
    }
  };
  return { server, proxy, client, send };
}

const numbers = (count, first = 0) => Array.from({ length: count }, (_, index) => first + index);
// All `count` packets have gone as far as they go.
const settled = async (proxy, server, count) => {
  const { up, down } = proxy.counters;
  const through = (way, packets) => way.packets === packets && way.delivered === packets - way.lost + way.duplicated;
  await eventually(() => through(up, count), 'all packets have gone up');
  await eventually(() => server.received.length === up.delivered, 'all packets are there');
  await eventually(() => through(down, up.delivered), 'all packets have come down');
  await pause(20);
};

describe('a bad network for UDP', () => {
  after(closeAll);

  test('without faults packets arrive as they were sent, in order', async () => {
    const { proxy, server, client, send } = await udpThrough({ delay_ms: 10, jitter_ms: 10 });
    await send(500);
    await eventually(() => client.received.length === 500, 'all echoes');
    assert.deepEqual(server.received, numbers(500));
    assert.deepEqual(client.received, numbers(500));
    assert.equal(proxy.counters.paths, 1);
  });

  test('as many are lost and doubled as was asked for, the same ones for the same seed', async () => {
    const runs = [];
    for (const seed of [1, 1, 2]) {
      const { proxy, server, client, send } = await udpThrough({ loss: 0.2, duplicate: 0.1, seed });
      await send(2_000);
      await settled(proxy, server, 2_000);
      const { up, down } = proxy.counters;
      assert.equal(up.packets, 2_000);
      assert.ok(Math.abs(up.lost / 2_000 - 0.2) < 0.04, `lost ${up.lost} of 2000`);
      assert.ok(Math.abs(up.duplicated / (2_000 - up.lost) - 0.1) < 0.03, `doubled ${up.duplicated}`);
      assert.equal(server.received.length, 2_000 - up.lost + up.duplicated);
      assert.equal(down.packets, server.received.length);
      assert.equal(client.received.length, down.packets - down.lost + down.duplicated);
      runs.push(digest(JSON.stringify(server.received)));
      await closeAll();
    }
    assert.equal(runs[0], runs[1]);
    assert.notEqual(runs[0], runs[2]);
  });

  test('some are overtaken, and none is lost by it', async () => {
    const { proxy, server, send } = await udpThrough({ reorder: 0.1 });
    await send(1_000);
    await settled(proxy, server, 1_000);
    assert.notDeepEqual(server.received, numbers(1_000));
    assert.deepEqual([...server.received].sort((a, b) => a - b), numbers(1_000));
    const { reordered } = proxy.counters.up;
    assert.ok(reordered > 50 && reordered < 150, `${reordered} of 1000`);
  });

  test('a rate is kept', async () => {
    const { proxy, client, send } = await udpThrough({ rate_bytes_per_s: 100_000 });
    const begin = performance.now();
    await send(300);
    await eventually(() => client.received.length === 300, 'all echoes');
    assert.ok(performance.now() - begin >= 290, `${performance.now() - begin} ms for 30,000 bytes`);
    assert.equal(proxy.counters.up.overflowed, 0);
  });

  test('a queue that is full drops', async () => {
    const { proxy, send } = await udpThrough({ rate_bytes_per_s: 1_000 });
    await send(4_200);
    await eventually(() => proxy.counters.up.packets === 4_200, 'all packets have come in');
    assert.ok(proxy.counters.up.overflowed > 50, `${proxy.counters.up.overflowed} dropped`);
    assert.ok(proxy.up.queue.length <= 4_096);
  });

  test('while it stalls packets vanish, and afterwards it goes on', async () => {
    const { proxy, server, client, send } = await udpThrough({ delay_ms: 50 });
    await send(10);
    await eventually(() => client.received.length === 10, 'the echoes before');
    await send(5);
    await eventually(() => proxy.counters.up.packets === 15, 'packets under way');
    proxy.stall();
    await send(5);
    await eventually(() => proxy.counters.up.vanished === 10, 'packets that vanish');
    proxy.resume();
    await send(10);
    await eventually(() => client.received.length === 20, 'the echoes after');
    assert.deepEqual(server.received, [...numbers(10), ...numbers(10, 20)]);
  });

  test('after a rebinding the server sees another port and the client notices nothing', async () => {
    const { proxy, server, client, send } = await udpThrough({});
    await send(3);
    await eventually(() => client.received.length === 3, 'the echoes before');
    assert.equal(server.ports.size, 1);
    await proxy.rebind();
    await send(3);
    await eventually(() => client.received.length === 6, 'the echoes after');
    assert.equal(server.ports.size, 2);
    assert.equal(proxy.counters.rebinds, 1);
    // What the server sends to the old port comes to nobody.
    const [old] = server.ports;
    server.socket.send(Buffer.alloc(4), old, kHost);
    await pause(50);
    assert.equal(client.received.length, 6);
  });
});

describe('the proxies as a program', () => {
  after(closeAll);

  test('it says where it listens and obeys', async () => {
    const server = await echoServer();
    const program = fileURLToPath(new URL('../impair.mjs', import.meta.url));
    const child = spawn(process.execPath, [program, 'tcp', '--to', `${kHost}:${server.port}`, '--chunk', '3', '--delay-ms', '1'],
      { stdio: ['pipe', 'pipe', 'inherit'] });
    opened(child, () => child.kill());
    const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    const line = async () => (await lines.next()).value;
    const port = Number(/^listening on 127\.0\.0\.1:(\d+)$/.exec(await line())[1]);
    const socket = net.connect({ host: kHost, port });
    opened(socket, () => socket.destroy());
    socket.on('error', () => {});
    socket.write('abcdefgh');
    await eventually(() => sizeOf(server.chunks) === 8, 'the bytes');
    child.stdin.write('counters\n');
    const counters = JSON.parse(await line());
    assert.equal(counters.bytes_up, 8);
    child.stdin.write('cut\n');
    assert.equal(await line(), 'cut done');
    child.stdin.write('dance\n');
    assert.equal(await line(), 'unknown: dance');
    child.stdin.end();
    const [code] = await once(child, 'exit');
    assert.equal(code, 0);
  });

  test('what it does not know it refuses', async () => {
    const program = fileURLToPath(new URL('../impair.mjs', import.meta.url));
    for (const words of [[], ['tcp'], ['tcp', '--to', 'nowhere'], ['sctp', '--to', 'a:1'], ['udp', '--to', 'a:1', '--lost', '1']]) {
      const child = spawn(process.execPath, [program, ...words], { stdio: 'ignore' });
      const [code] = await once(child, 'exit');
      assert.equal(code, 2, words.join(' '));
    }
  });
});
