// What is measured of one way at a time, and of the relay alone.
import {writeFileSync} from 'node:fs';
import {join} from 'node:path';
import {connect} from 'node:tls';

import {kAnswerBytes, startAgents, startRelay} from './tunnel_paths.mjs';
import {find, folder, processor_s, Program, resident_kib, sleep, Watch} from './tunnel_programs.mjs';

// One for all ways, so that no difference is one of ciphers.
const kCipher = 'TLS_AES_128_GCM_SHA256';
const kRequestBytes = 1024;
const kStalled_ms = 10_000;
const kCurls = 5;
const kMostTransfer_s = 900;
const kSettle_ms = 5_000;
const kAway_ms = 3_000;
const kBack_ms = 180_000;

// A request of 1 KiB, whole.
function request(path) {
  const rest = '\r\n\r\n';
  const head = `GET /answer HTTP/1.1\r\nhost: ${path.host}\r\nx-filler: `;
  return head + 'x'.repeat(kRequestBytes - head.length - rest.length) + rest;
}

// Milliseconds from the request to the last byte of its answer, one request after the other over one connection.
export function latencies(path, {count, warm}) {
  return new Promise((resolve, reject) => {
    const socket = connect({
      host: '127.0.0.1',
      port: path.port,
      servername: path.host,
      rejectUnauthorized: false,
      ALPNProtocols: ['http/1.1'],
      ciphers: kCipher,
      minVersion: 'TLSv1.3'
    });
    socket.setNoDelay(true);
    socket.setTimeout(kStalled_ms);
    const text = request(path);
    const times = [];
    let head = '';
    let length;
    let got = 0;
    let asked_ms = 0;
    const fail = (why) => {
      socket.destroy();
      reject(new Error(`${path.label}: request ${times.length + 1}: ${why}`));
    };
    const ask = () => {
      got = 0;
      asked_ms = performance.now();
      socket.write(text);
    };
    socket.once('secureConnect', ask);
    socket.on('data', (bytes) => {
      got += bytes.length;
      // All answers are as long as the first.
      if (length === undefined) {
        head += bytes.toString('latin1');
        const end = head.indexOf('\r\n\r\n');
        if (end < 0) return;
        if (!head.startsWith('HTTP/1.1 200 ')) return fail(`answered ${head.slice(0, 200)}`);
        length = end + 4 + kAnswerBytes;
      }
      if (got < length) return;
      if (got > length) return fail(`${got} bytes came, not ${length}`);
      times.push(performance.now() - asked_ms);
      if (times.length < warm + count) return ask();
      socket.destroy();
      resolve(times.slice(warm));
    });
    socket.on('error', (error) => fail(error.message));
    socket.on('timeout', () => fail(`no answer within ${kStalled_ms / 1000} s`));
    socket.on('end', () => fail('the connection was closed'));
  });
}

export function percentile(values, part) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil(part * sorted.length) - 1)];
}

// The settings of one curl that carries `streams` bodies at once, each over a connection of its own.
function curlArgs(path, name, direction, body, streams) {
  const url = `https://${path.host}:${path.port}/${direction === 'download' ? body.name : 'upload'}`;
  const entry = `url = "${url}"\noutput = "/dev/null"\n${direction === 'upload' ? `upload-file = "${body.file}"\n` : ''}`;
  const file = join(folder(), name);
  writeFileSync(file, entry.repeat(streams));
  const plain = '-q --silent --show-error --insecure --http1.1 --tlsv1.3 --noproxy * --header Expect:';
  return [
    ...plain.split(' '), '--tls13-ciphers', kCipher, '--resolve', `${path.host}:${path.port}:127.0.0.1`, '--max-time',
    String(kMostTransfer_s), '--parallel', '--parallel-immediate', '--parallel-max', String(streams), '--write-out',
    '%{http_code} %{size_download} %{size_upload}\\n', '--config', file
  ];
}

// `streams` bodies at once, `size` bytes in all: rate, and processor time of both sides of the way.
export async function bulk(path, target, {direction, streams, size}) {
  const each = Math.floor(size / streams);
  const body = target.body(each);
  const curl = find('curl', 'curl');
  const programs = Math.min(kCurls, streams);
  const args = Array.from({length: programs}, (_, at) => {
    const part = Math.floor((streams * (at + 1)) / programs) - Math.floor((streams * at) / programs);
    return curlArgs(path, `curl-${at}`, direction, body, part);
  });
  const watch = new Watch();
  const before = [processor_s(path.publicPids), processor_s(path.farPids)];
  const begun_ms = performance.now();
  const curls = args.map((list) => new Program(curl, list));
  await Promise.all(curls.map((program) => program.gone));
  const took_s = (performance.now() - begun_ms) / 1000;
  const after = [processor_s(path.publicPids), processor_s(path.farPids)];
  const foreign = watch.foreign();
  await Promise.all(curls.map((program) => program.closed));
  const lines = curls.flatMap((program) => program.lines);
  const good = lines.filter((line) => {
    const [status, down, up] = line.split(' ').map(Number);
    return status === 200 && (direction === 'download' ? down : up) === each;
  });
  if (good.length !== streams) {
    throw new Error(`${path.label}: ${direction}: ${good.length} of ${streams} bodies of ${each} bytes came through. curl says: ${
            [...lines.slice(0, 3), ...curls.map((program) => program.log.trim())].join('; ')}`);
  }
  const gb = (each * streams) / 1e9;
  const [public_s, far_s] = after.map((value, at) => (value - before[at]) / gb);
  return {mb_per_s: (gb * 1000) / took_s, public_s_per_gb: public_s, far_s_per_gb: far_s, foreign};
}

// What a fresh relay grows by for each of `count` tunnels with one link and no users.
export async function idleMemory(options, count) {
  const relay = await startRelay(options);
  const before_kib = resident_kib(relay.program.pid);
  const agents = await startAgents(options, relay, count);
  await sleep(kSettle_ms);
  const {links} = await (await fetch(`http://127.0.0.1:${relay.admin}/health`)).json();
  const after_kib = resident_kib(relay.program.pid);
  await agents.program.stop();
  await relay.program.stop();
  if (links !== count) throw new Error(`the relay had ${links} links and not ${count} when its memory was read`);
  return {tunnels: count, up_ms: agents.up.ms, before_kib, after_kib, kib_per_tunnel: (after_kib - before_kib) / count};
}

// A relay that is killed and started again after a pause, a few times with the same agents. Times run from the kill.
export async function recoveries(options, count, rounds, say) {
  let relay = await startRelay(options);
  const agents = await startAgents(options, relay, count);
  const seen = [];
  for (let round = 0; round < rounds; ++round) {
    await sleep(kSettle_ms);
    const from = agents.program.lines.length;
    await relay.program.stop();
    await sleep(kAway_ms);
    relay = await startRelay(options, relay.ports);
    const back = await agents.program.line((line) => JSON.parse(line).back && JSON.parse(line), {within_ms: kBack_ms, from});
    seen.push({
      ms: back.ms,
      peak_per_s: back.peak_per_s,
      mean_per_s: back.mean_per_s,
      peak_over_mean: back.peak_per_s / back.mean_per_s
    });
    say(`recovery: ${back.back} agents back ${(back.ms / 1000).toFixed(1)} s after the kill, peak ${back.peak_per_s}/s, mean ${
        back.mean_per_s}/s`);
  }
  await agents.program.stop();
  await relay.program.stop();
  return seen;
}
