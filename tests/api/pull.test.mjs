// `pocketfleet model pull` against a hub and a CDN whose faults are played: the file is right or absent, and little comes twice.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { createServer as createSecureServer } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { Server, binary, guard } from './server.mjs';

const kSize = 24 << 20;
const bytes = randomBytes(kSize);
const sha256 = (data) => createHash('sha256').update(data).digest('hex');

// One repository, acme/guard, with one model. `cdn(request, response, state)` answers for the bytes; return false to leave it to
// the well-behaved one.
class Hub {
  static async start({ cdn, content = bytes, listed = true } = {}) {
    const hub = new Hub();
    hub.content = content;
    hub.sent = 0;
    hub.requests = 0;
    hub.server = createServer((request, response) => hub.answer(request, response, cdn, listed));
    hub.server.listen(0, '127.0.0.1');
    await once(hub.server, 'listening');
    hub.url = `http://127.0.0.1:${hub.server.address().port}`;
    return hub;
  }

  answer(request, response, cdn, listed) {
    const { pathname } = new URL(request.url, this.url);
    if (pathname === '/api/models/acme/guard/tree/main') {
      const digest = listed ? { lfs: { oid: sha256(this.content), size: this.content.length } } : {};
      response.setHeader('content-type', 'application/json');
      return response.end(JSON.stringify([{ type: 'file', path: 'guard-Q4_0.gguf', size: this.content.length, ...digest }]));
    }
    if (pathname === '/acme/guard/resolve/main/guard-Q4_0.gguf') {
      // A relative place, as the hub's own.
      response.writeHead(this.requests % 2 ? 307 : 302, { location: `/cdn/${this.requests}` });
      return response.end();
    }
    if (!pathname.startsWith('/cdn/')) return response.writeHead(404).end();
    ++this.requests;
    if (cdn && cdn(request, response, this) !== false) return undefined;
    return this.send(request, response);
  }

  // The bytes that are asked for; `drop`: the connection breaks after so many.
  send(request, response, { drop = Infinity, ranges = true, etag = '"v1"', slow_ms = 0, length } = {}) {
    const content = this.content;
    const asked = /bytes=(\d+)-(\d*)/.exec(request.headers.range ?? '');
    const same = !request.headers['if-range'] || request.headers['if-range'] === etag;
    const ranged = ranges && asked && same;
    const begin = ranged ? Number(asked[1]) : 0;
    const end = ranged && asked[2] ? Math.min(Number(asked[2]) + 1, content.length) : content.length;
    response.writeHead(ranged ? 206 : 200, {
      etag, 'content-length': length ?? end - begin, ...(ranged ? { 'content-range': `bytes ${begin}-${end - 1}/${content.length}` } : {}),
    });
    let at = begin;
    const step = () => {
      while (at < end) {
        if (response.destroyed || response.closed) return undefined;
        if (at - begin >= drop) return response.destroy();
        const piece = content.subarray(at, Math.min(at + 65_536, end));
        at += piece.length;
        this.sent += piece.length;
        if (slow_ms > 0) return response.write(piece, () => setTimeout(step, slow_ms));
        if (!response.write(piece)) return response.once('drain', step);
      }
      return response.end();
    };
    response.on('error', () => {});
    step();
  }

  stop() {
    this.server.closeAllConnections();
    this.server.close();
  }
}

const folders = [];
after(() => folders.forEach((folder) => rmSync(folder, { recursive: true, force: true })));
function newFolder() {
  folders.push(mkdtempSync(join(tmpdir(), 'pocketfleet-pull-')));
  return folders.at(-1);
}

function start(hub, folder, args = []) {
  const child = spawn(binary, ['model', 'pull', 'hf:acme/guard', '--cache', folder, '--json', ...args], { env: { ...process.env, HF_ENDPOINT: hub.url, HF_TOKEN: '' } });
  child.out = '';
  child.err = '';
  child.stdout.on('data', (data) => { child.out += data; });
  child.stderr.on('data', (data) => { child.err += data; });
  child.ended = once(child, 'close');
  return child;
}

async function pull(hub, folder, args) {
  const child = start(hub, folder, args);
  const [code] = await child.ended;
  return { code, err: child.err, said: child.out ? JSON.parse(child.out) : undefined };
}

function expectRight(result, hub) {
  assert.equal(result.code, 0, result.err);
  assert.equal(sha256(readFileSync(result.said.path)), sha256(hub.content));
}

const expectAbsent = (folder) => assert.deepEqual(existsSync(join(folder, 'models')) ? readdirSync(join(folder, 'models')) : [], []);

describe('a pull', () => {
  for (const [name, cdn, args = []] of [
    ['from a server that does all right', undefined],
    ['over several connections', undefined, ['--connections', '4']],
    ['over a line that breaks every 5 MB', (request, response, hub) => hub.send(request, response, { drop: 5_000_000 })],
    ['over a line that breaks every 5 MB, several connections', (request, response, hub) => hub.send(request, response, { drop: 5_000_000 }), ['--connections', '3']],
    ['that is sent away twice', (request, response, hub) => hub.requests <= 2 && response.writeHead(hub.requests === 1 ? 429 : 503, { 'retry-after': '1' }).end()],
    ['whose signed link expires at 60 %', (request, response, hub) => {
      if (hub.requests === 1) return hub.send(request, response, { drop: kSize * 0.6 });
      return hub.requests === 2 && response.writeHead(403).end();
    }],
    ['from a server that ignores ranges', (request, response, hub) => hub.send(request, response, { ranges: false })],
    ['whose first answer ends early', (request, response, hub) => hub.requests === 1 && hub.send(request, response, { drop: 9_000_000 })],
  ]) {
    test(name, async () => {
      const hub = await Hub.start({ cdn });
      try {
        expectRight(await pull(hub, newFolder(), args), hub);
        assert.ok(hub.sent < 1.1 * kSize, `${hub.sent} bytes were sent for ${kSize}`);
      } finally {
        hub.stop();
      }
    });
  }

  test('of a file that changes meanwhile gets the new one whole', async () => {
    const hub = await Hub.start({
      listed: false,
      cdn: (request, response, state) => {
        if (state.requests === 1) return state.send(request, response, { drop: 10_000_000 });
        state.content = state.newer ??= Buffer.concat([randomBytes(1000), bytes.subarray(1000)]);
        return state.send(request, response, { etag: '"v2"' });
      },
    });
    try {
      expectRight(await pull(hub, newFolder()), hub);
    } finally {
      hub.stop();
    }
  });

  test('of other bytes than the hub announced leaves nothing', async () => {
    const hub = await Hub.start({
      cdn: (request, response, state) => {
        state.good ??= state.content;
        state.content = state.bad ??= Buffer.concat([bytes.subarray(0, kSize - 1), Buffer.from([bytes[kSize - 1] ^ 1])]);
        state.send(request, response);
        state.content = state.good;
        return undefined;
      },
    });
    try {
      const folder = newFolder();
      const result = await pull(hub, folder);
      assert.equal(result.code, 2);
      assert.match(result.err, /SHA-256/);
      expectAbsent(folder);
    } finally {
      hub.stop();
    }
  });

  test('that is killed again and again is right in the end', async () => {
    const hub = await Hub.start({ cdn: (request, response, state) => state.send(request, response, { slow_ms: 6 }) });
    const folder = newFolder();
    try {
      let result;
      let kills = 0;
      for (let life = 0; life < 40 && result === undefined; ++life) {
        const child = start(hub, folder);
        const timer = setTimeout(() => child.kill('SIGKILL'), 150 + ((life * 7919) % 400));
        const [code, signal] = await child.ended;
        clearTimeout(timer);
        if (signal === 'SIGKILL') {
          ++kills;
          expectAbsent(folder);
        } else result = { code, err: child.err, said: JSON.parse(child.out || 'null') };
      }
      assert.ok(result, 'it was never left alone long enough');
      assert.ok(kills >= 3, `only ${kills} were killed`);
      // What stood in the sockets when the process went was sent, too.
      assert.ok(hub.sent < 1.1 * kSize + kills * 2 ** 20, `${hub.sent} bytes were sent, with ${kills} kills`);
      expectRight(result, hub);
    } finally {
      hub.stop();
    }
  });

  test('by two processes at once fetches the file once', async () => {
    const hub = await Hub.start({ cdn: (request, response, state) => state.send(request, response, { slow_ms: 1 }) });
    const folder = newFolder();
    try {
      const [one, other] = await Promise.all([pull(hub, folder, ['--connections', '1']), pull(hub, folder, ['--connections', '1'])]);
      expectRight(one, hub);
      expectRight(other, hub);
      assert.ok(hub.sent < 1.1 * kSize, `${hub.sent} bytes were sent`);
    } finally {
      hub.stop();
    }
  });

  test('of what is not there says so', async () => {
    const hub = await Hub.start();
    try {
      const child = spawn(binary, ['model', 'pull', 'hf:acme/nothing', '--cache', newFolder()], { env: { ...process.env, HF_ENDPOINT: hub.url } });
      let err = '';
      child.stderr.on('data', (data) => { err += data; });
      assert.equal((await once(child, 'close'))[0], 2);
      assert.match(err, /HF_TOKEN/);
    } finally {
      hub.stop();
    }
  });
});

test('an encrypted source is believed if its certificate is trusted, as SSL_CERT_FILE says', async (t) => {
  if (spawnSync('openssl', ['version']).status !== 0) return t.skip('needs openssl');
  const place = newFolder();
  const [key, certificate] = [join(place, 'key.pem'), join(place, 'certificate.pem')];
  const made = spawnSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2', '-subj',
    '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost', '-keyout', key, '-out', certificate]);
  assert.equal(made.status, 0, made.stderr.toString());
  const server = createSecureServer({ key: readFileSync(key), cert: readFileSync(certificate) }, (request, response) => response.end(bytes));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const reference = `https://localhost:${server.address().port}/guard.gguf`;
  const run = async (environment) => {
    const child = spawn(binary, ['model', 'pull', reference, '--cache', join(place, 'cache'), '--json', '--quiet'], { env: { ...process.env, ...environment } });
    let [out, err] = ['', ''];
    child.stdout.on('data', (data) => { out += data; });
    child.stderr.on('data', (data) => { err += data; });
    const [code] = await once(child, 'close');
    return { code, out, err };
  };
  try {
    const trusted = await run({ SSL_CERT_FILE: certificate });
    assert.equal(trusted.code, 0, trusted.err);
    assert.equal(JSON.parse(trusted.out).sha256, sha256(bytes));
    rmSync(join(place, 'cache'), { recursive: true, force: true });
    const refused = await run({ SSL_CERT_FILE: '' });
    assert.equal(refused.code, 2);
    assert.match(refused.err, /certificate/i);
  } finally {
    server.close();
    server.closeAllConnections();
  }
});

test('a model is served by its name on the hub, and again without the hub', async () => {
  const hub = await Hub.start({ content: readFileSync(guard) });
  const folder = newFolder();
  process.env.HF_ENDPOINT = hub.url;
  try {
    for (const online of [true, false]) {
      if (!online) hub.stop();
      const server = await Server.start({ model: 'hf:acme/guard:Q4_0', args: ['--model-cache', folder] });
      const models = await (await fetch(`${server.url}/v1/models`)).json();
      assert.equal(models.data[0].id, 'guard-Q4_0');
      assert.equal((await server.stop()).code, 0);
    }
  } finally {
    hub.stop();
    delete process.env.HF_ENDPOINT;
  }
});
