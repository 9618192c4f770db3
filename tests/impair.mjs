// A bad network between two programs of a test: proxies for TCP and UDP that delay, cut in pieces, hold back, lose, reorder and double
// what passes, the same way for the same seed. Without dependencies. As a program:
//   node impair.mjs tcp|udp --to HOST:PORT [--listen PORT] [--delay-ms N] [--jitter-ms N] [--rate BYTES_PER_S] [--seed N]
//                   [--chunk N | --chunk AT,AT,...] (tcp)   [--loss P] [--reorder P] [--duplicate P] (udp)
// It prints one line, "listening on HOST:PORT", then obeys the lines it reads: stall, resume, cut (tcp), rebind (udp), counters. It
// ends with its input.
import dgram from 'node:dgram';
import { lookup } from 'node:dns/promises';
import net from 'node:net';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';

const kHost = '127.0.0.1';
const kMostQueuedBytes = 1 << 20;   // of one direction of one connection: beyond that the sender is held back
const kMostQueuedPackets = 4_096;   // of one direction: beyond that packets are dropped, as a router does
const kMostPaths = 1_024;           // UDP clients
const kReorderMs = 20;              // how much later a packet comes that is overtaken, at least
const kOptions = ['to', 'listen', 'rate', 'chunk', 'delay_ms', 'jitter_ms', 'loss', 'reorder', 'duplicate', 'seed'];

// Numbers in [0, 1).
export function generator(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let x = state;
    x = Math.imul(x ^ (x >>> 15), x | 1);
    x ^= x + Math.imul(x ^ (x >>> 7), x | 61);
    return ((x ^ (x >>> 14)) >>> 0) / 2 ** 32;
  };
}

// A wire that sends one byte after another: when the last of so many is sent.
class Wire {
  constructor(rate_bytes_per_s) {
    this.rate = rate_bytes_per_s;
    this.free_at = 0;
  }

  sent_at(now, bytes) {
    if (!(this.rate > 0)) return now;
    this.free_at = Math.max(this.free_at, now) + (bytes * 1000) / this.rate;
    return this.free_at;
  }
}

// Where a stream is cut: after every so many bytes, or at the given offsets from its beginning.
class Cutter {
  constructor(chunk_bytes) {
    this.every = Array.isArray(chunk_bytes) ? 0 : chunk_bytes;
    this.offsets = Array.isArray(chunk_bytes) ? [...chunk_bytes].sort((a, b) => a - b) : [];
    this.at = 0;
  }

  cut(bytes) {
    const pieces = [];
    for (let begin = 0; begin < bytes.length;) {
      const left = bytes.length - begin;
      while (this.offsets.length > 0 && this.offsets[0] <= this.at) this.offsets.shift();
      const next = this.every > 0 ? this.every - (this.at % this.every) : (this.offsets[0] ?? Infinity) - this.at;
      const size = Math.min(left, next);
      pieces.push(bytes.subarray(begin, begin + size));
      begin += size;
      this.at += size;
    }
    return pieces;
  }
}

// One direction of one TCP connection. Order is kept, whatever the jitter; the source is held back while too much is queued.
class Pipe {
  // fate: shared by both directions. Once `lost`, something has vanished, and a stream cannot go on over a hole.
  constructor(source, sink, options, random, fate, passed) {
    Object.assign(this, { source, sink, options, random, fate, passed });
    this.wire = new Wire(options.rate_bytes_per_s);
    this.cutter = new Cutter(options.chunk_bytes);
    this.queue = [];  // {due, bytes}; no bytes: the end of the stream
    this.queued = 0;
    this.last_due = 0;
    this.waits = false;  // for a timer or for the sink
    this.stalled = false;
    source.on('data', (bytes) => this.push(bytes));
    source.on('end', () => this.push(null));
    sink.on('drain', () => this.pump());
  }

  push(bytes) {
    if (this.stalled) this.fate.lost = true;
    if (this.fate.lost) return;
    for (const piece of bytes === null ? [null] : this.cutter.cut(bytes)) {
      const delay = this.options.delay_ms + this.options.jitter_ms * this.random();
      this.last_due = Math.max(this.last_due, this.wire.sent_at(performance.now(), piece?.length ?? 0) + delay);
      this.queue.push({ due: this.last_due, bytes: piece });
      this.queued += piece?.length ?? 0;
    }
    if (this.queued > kMostQueuedBytes) this.source.pause();
    this.pump();
  }

  pump() {
    if (this.waits || this.queue.length === 0 || this.sink.destroyed || this.sink.writableNeedDrain) return;
    this.waits = true;
    const wait = this.queue[0].due - performance.now();
    const pass = () => {
      this.waits = false;
      this.pass();
      this.pump();
    };
    // Each piece in a turn of its own, so that it leaves as a segment of its own.
    if (wait > 0) setTimeout(pass, Math.ceil(wait));
    else setImmediate(pass);
  }

  pass() {
    // It may have been stalled, cut or filled up in the meantime.
    if (this.queue.length === 0 || this.sink.destroyed || this.sink.writableNeedDrain) return;
    if (this.queue[0].due > performance.now()) return;
    const { bytes } = this.queue.shift();
    if (bytes === null) {
      this.sink.end();
      return;
    }
    this.queued -= bytes.length;
    this.passed(bytes.length);
    this.sink.write(bytes);
    if (this.queued <= kMostQueuedBytes / 2 && this.source.isPaused()) this.source.resume();
  }

  stall() {
    this.stalled = true;
    // What is under way vanishes too.
    if (this.queue.length > 0) this.fate.lost = true;
    this.queue = [];
    this.queued = 0;
    this.source.resume();
  }

  resume() {
    this.stalled = false;
  }
}

export class TcpImpairment {
  // chunk_bytes: the streams are cut after every so many bytes; a list: at these offsets of each direction. 0 of anything: none.
  // The rate is that of each direction of each connection.
  constructor({ to, delay_ms = 0, jitter_ms = 0, rate_bytes_per_s = 0, chunk_bytes = 0, seed = 1 }) {
    this.to = to;
    this.options = { delay_ms, jitter_ms, rate_bytes_per_s, chunk_bytes };
    this.seed = seed;
    this.stalled = false;
    this.pairs = new Set();
    this.counters = { connections: 0, open: 0, bytes_up: 0, bytes_down: 0, cut: 0 };
  }

  async listen(port = 0) {
    this.server = net.createServer({ allowHalfOpen: true, noDelay: true }, (client) => this.accept(client));
    this.server.listen(port, kHost);
    await once(this.server, 'listening');
    this.port = this.server.address().port;
    return this.port;
  }

  // From now on nothing passes: bytes vanish, and neither side learns that the other has gone. Both sockets stay open.
  stall() {
    this.stalled = true;
    for (const { pipes } of this.pairs) pipes.forEach((pipe) => pipe.stall());
  }

  // Connections that have lost something stay silent for good, as behind a NAT that has forgotten them; the others go on.
  resume() {
    this.stalled = false;
    for (const { pipes } of this.pairs) pipes.forEach((pipe) => pipe.resume());
  }

  // Resets every connection, on both sides.
  cut() {
    for (const { sockets } of this.pairs) {
      ++this.counters.cut;
      sockets.forEach((socket) => socket.resetAndDestroy());
    }
  }

  async close() {
    this.cut();
    if (!this.server?.listening) return;
    this.server.close();
    await once(this.server, 'close');
  }

  accept(client) {
    const server = net.connect({ ...this.to, allowHalfOpen: true, noDelay: true });
    const number = this.counters.connections++;
    ++this.counters.open;
    const sockets = [client, server];
    const fate = { lost: false };
    const pipe = (source, sink, direction, key) => new Pipe(source, sink, this.options,
      generator(this.seed + (2 * number + direction) * 0x9e3779b1), fate, (bytes) => { this.counters[key] += bytes; });
    const pipes = [pipe(client, server, 0, 'bytes_up'), pipe(server, client, 1, 'bytes_down')];
    const pair = { sockets, pipes };
    this.pairs.add(pair);
    if (this.stalled) pipes.forEach((one) => one.stall());

    sockets.forEach((socket, index) => {
      const other = sockets[1 - index];
      socket.on('error', () => {});  // 'close' follows
      socket.on('close', (failed) => {
        // A reset is passed on, unless nothing is; an ordinary end has been, by the pipe.
        if (failed && this.stalled) fate.lost = true;
        if (failed && !fate.lost && !other.destroyed) other.resetAndDestroy();
        if (sockets.every((one) => one.destroyed) && this.pairs.delete(pair)) --this.counters.open;
      });
    });
  }
}

// Packets of one direction, each delivered when it is due.
class PacketQueue {
  constructor(options, random) {
    Object.assign(this, { options, random });
    this.wire = new Wire(options.rate_bytes_per_s);
    this.queue = [];  // {due, deliver}, the next one first
    this.last_due = 0;
    this.timer = null;
    this.counters = { packets: 0, delivered: 0, lost: 0, reordered: 0, duplicated: 0, overflowed: 0, vanished: 0 };
  }

  push(bytes, deliver) {
    ++this.counters.packets;
    const { delay_ms, jitter_ms, loss, reorder, duplicate } = this.options;
    // As many numbers for each packet, whatever happens to it: what happens to the next does not depend on it.
    const [lose, late, twice, jitter] = [this.random(), this.random(), this.random(), this.random()];
    if (lose < loss) {
      ++this.counters.lost;
      return;
    }
    if (this.queue.length >= kMostQueuedPackets) {
      ++this.counters.overflowed;
      return;
    }
    let due = Math.max(this.last_due, this.wire.sent_at(performance.now(), bytes) + delay_ms + jitter_ms * jitter);
    if (late < reorder) {
      // Those behind it do not wait for it.
      ++this.counters.reordered;
      due += Math.max(kReorderMs, jitter_ms);
    } else {
      this.last_due = due;
    }
    this.add(due, deliver);
    if (twice < duplicate && this.queue.length < kMostQueuedPackets) {
      ++this.counters.duplicated;
      this.add(due, deliver);
    }
  }

  add(due, deliver) {
    let at = this.queue.length;
    while (at > 0 && this.queue[at - 1].due > due) --at;
    this.queue.splice(at, 0, { due, deliver });
    if (at === 0) this.arm();
  }

  arm() {
    clearTimeout(this.timer);
    this.timer = null;
    if (this.queue.length === 0) return;
    this.timer = setTimeout(() => this.deliver(), Math.max(0, Math.ceil(this.queue[0].due - performance.now())));
  }

  deliver() {
    while (this.queue.length > 0 && this.queue[0].due <= performance.now()) {
      ++this.counters.delivered;
      this.queue.shift().deliver();
    }
    this.arm();
  }

  vanish() {
    this.counters.vanished += this.queue.length;
    this.queue = [];
    this.arm();
  }
}

export class UdpImpairment {
  // loss, reorder and duplicate are parts of the packets, 0 to 1. Only `reorder` changes their order, jitter does not. The rate is
  // that of each direction, for all clients together.
  constructor({ to, delay_ms = 0, jitter_ms = 0, loss = 0, reorder = 0, duplicate = 0, rate_bytes_per_s = 0, seed = 1 }) {
    this.to = to;
    const options = { delay_ms, jitter_ms, loss, reorder, duplicate, rate_bytes_per_s };
    this.up = new PacketQueue(options, generator(seed));
    this.down = new PacketQueue(options, generator(seed + 0x9e3779b1));
    this.counters = { up: this.up.counters, down: this.down.counters, paths: 0, rebinds: 0 };
    this.stalled = false;
    this.closed = false;
    this.paths = new Map();  // by the client's address: { upstream }, the socket that the server sees
  }

  async listen(port = 0) {
    // Once, and not for each packet: names that are looked up would overtake each other.
    const { address, family } = await lookup(this.to.host);
    this.to = { host: address, port: this.to.port };
    this.family = `udp${family}`;
    this.front = dgram.createSocket('udp4');
    this.front.on('message', (packet, client) => this.from_client(packet, client));
    this.front.bind(port, kHost);
    await once(this.front, 'listening');
    // A port that nobody listens on any more answers with an error: to a lost packet like any other.
    this.front.on('error', () => {});
    this.port = this.front.address().port;
    return this.port;
  }

  stall() {
    this.stalled = true;
    this.up.vanish();
    this.down.vanish();
  }

  resume() {
    this.stalled = false;
  }

  // The server sees each client at another port from now on, as when a NAT forgets it; what it sends to the old one is lost.
  async rebind() {
    ++this.counters.rebinds;
    await Promise.all([...this.paths.values()].map(async (path) => {
      const old = path.upstream;
      path.upstream = this.open_upstream(path.client);
      await once(path.upstream, 'listening');
      old.close();
    }));
  }

  async close() {
    if (this.closed) return;
    this.closed = true;
    this.stall();
    for (const { upstream } of this.paths.values()) upstream.close();
    this.front?.close();
  }

  from_client(packet, client) {
    if (this.stalled) {
      ++this.up.counters.vanished;
      return;
    }
    const key = `${client.address}:${client.port}`;
    let path = this.paths.get(key);
    if (!path) {
      if (this.paths.size >= kMostPaths) {
        ++this.up.counters.overflowed;
        return;
      }
      path = { client, upstream: this.open_upstream(client) };
      this.paths.set(key, path);
      ++this.counters.paths;
    }
    this.up.push(packet.length, () => path.upstream.send(packet, this.to.port, this.to.host, () => {}));
  }

  open_upstream(client) {
    const upstream = dgram.createSocket(this.family);
    upstream.on('message', (packet) => {
      if (this.stalled) {
        ++this.down.counters.vanished;
        return;
      }
      this.down.push(packet.length, () => this.front.send(packet, client.port, client.address, () => {}));
    });
    upstream.on('error', () => {});
    upstream.bind();
    return upstream;
  }
}

async function main(kind, words) {
  const options = {};
  for (let at = 0; at + 1 < words.length; at += 2) options[words[at].replace(/^--/, '').replaceAll('-', '_')] = words[at + 1];
  const { to, listen, rate, chunk, ...rest } = options;
  const end = to?.lastIndexOf(':') ?? -1;
  const known = Object.keys(options).every((name) => kOptions.includes(name));
  if (!['tcp', 'udp'].includes(kind) || end < 1 || words.length % 2 !== 0 || !known) {
    console.error('usage: node impair.mjs tcp|udp --to HOST:PORT [--listen PORT] [options]');
    process.exit(2);
  }
  const numbers = Object.fromEntries(Object.entries(rest).map(([name, value]) => [name, Number(value)]));
  const Impairment = kind === 'tcp' ? TcpImpairment : UdpImpairment;
  const proxy = new Impairment({
    ...numbers,
    to: { host: to.slice(0, end).replace(/^\[|\]$/g, ''), port: Number(to.slice(end + 1)) },
    rate_bytes_per_s: Number(rate ?? 0),
    chunk_bytes: chunk?.includes(',') ? chunk.split(',').map(Number) : Number(chunk ?? 0),
  });
  console.log(`listening on ${kHost}:${await proxy.listen(Number(listen ?? 0))}`);
  for await (const line of createInterface({ input: process.stdin })) {
    const word = line.trim();
    if (word === 'counters') console.log(JSON.stringify(proxy.counters));
    else if (['stall', 'resume', 'cut', 'rebind'].includes(word) && proxy[word]) {
      await proxy[word]();
      console.log(`${word} done`);
    } else {
      console.log(`unknown: ${word}`);
    }
  }
  await proxy.close();
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) await main(process.argv[2], process.argv.slice(3));
