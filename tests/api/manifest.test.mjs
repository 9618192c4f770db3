// A manifest made at home is served elsewhere: the right bytes on an engine that was tried, writing what it wrote at home, or not at all.
import assert from 'node:assert/strict';
import { execFile, execFileSync } from 'node:child_process';
import { createPublicKey, verify } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { after, before, describe, test } from 'node:test';
import { Server, binary, guard, profile, review } from './server.mjs';

const run = promisify(execFile);

describe('manifest', () => {
  const folder = mkdtempSync(join(tmpdir(), 'pocketfleet-manifest-'));
  const path = join(folder, 'guard.manifest.json');
  const keyFile = join(folder, 'deployer.pem');
  after(() => rmSync(folder, { recursive: true, force: true }));

  const make = async (...more) => {
    const { stdout } = await run(binary, ['model', 'manifest', join(folder, 'guard.gguf'), '--golden', join(folder, 'golden.jsonl'), '--licence',
      'Apache-2.0', '--output', path, '--json', ...more]);
    return JSON.parse(stdout);
  };
  // Ends with exit code 2 and a sentence.
  const refused = async (manifest, sentence, args = []) => {
    const file = join(folder, 'changed.manifest.json');
    writeFileSync(file, typeof manifest === 'string' ? manifest : JSON.stringify(manifest));
    // A golden prompt is read once the model is loaded, after the port is bound.
    try {
      const server = await Server.start({ model: file, args: ['--profile', profile, ...args], ready: false });
      const [code] = await server.exit;
      assert.equal(code, 2, server.log);
      assert.match(server.log, sentence);
    } catch (error) {
      if (error.log === undefined) throw error;
      assert.equal(error.code, 2);
      assert.match(error.log, sentence);
    }
  };
  const read = () => JSON.parse(readFileSync(path, 'utf8'));

  before(async () => {
    copyFileSync(guard, join(folder, 'guard.gguf'));
    writeFileSync(join(folder, 'golden.jsonl'), [
      { messages: review('Congratulations! You have won a 1000 pound prize. Call 09061701461 now') },
      { messages: review('are you coming home for dinner?') },
    ].map((line) => JSON.stringify(line)).join('\n'));
  });

  test('a signed manifest is served, and its golden prompts are read first', async () => {
    const made = await make('--key', keyFile);
    assert.equal(made.golden, 2);
    const server = await Server.start({ model: path, args: ['--profile', profile, '--manifest-key', made.key] });
    try {
      assert.equal((await (await fetch(`${server.url}/v1/models`)).json()).data[0].id, 'guard');
      assert.ok(await server.metric('pocketfleet_tokens_written_total') > 0, 'the golden prompts were not written behind');
      const answer = await server.post('/v1/classify', { profile: 'scam-guard', input: 'You have won! Call 09061701461' });
      assert.equal(answer.status, 200, answer.text);
    } finally {
      await server.stop();
    }
  });

  test('the signature is one that others can check: ECDSA with SHA-256 over the canonical text', async () => {
    await make('--key', keyFile);
    const { signature, ...rest } = read();
    const canonical = (value) => Array.isArray(value) ? `[${value.map(canonical).join(',')}]`
      : value !== null && typeof value === 'object' ? `{${Object.keys(value).sort().map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`).join(',')}}`
        : JSON.stringify(value);
    const key = createPublicKey(readFileSync(keyFile, 'utf8'));
    const text = Buffer.from(canonical(rest));
    const value = Buffer.from(signature.value, 'base64');
    assert.ok(verify('sha256', text, { key, dsaEncoding: 'ieee-p1363' }, value));
    text[100] ^= 1;
    assert.ok(!verify('sha256', text, { key, dsaEncoding: 'ieee-p1363' }, value));
  });

  test('a manifest elsewhere names a file beside it, and once both were fetched needs no network', async () => {
    const key = (await make('--key', keyFile)).key;
    const site = createServer((call, answer) => {
      const name = call.url.slice(1);
      if (!['guard.manifest.json', 'guard.gguf'].includes(name)) {
        answer.statusCode = 404;
        return answer.end();
      }
      const bytes = readFileSync(join(folder, name));
      const range = /bytes=(\d+)-(\d*)/.exec(call.headers.range ?? '');
      const [begin, end] = range ? [Number(range[1]), range[2] ? Number(range[2]) : bytes.length - 1] : [0, bytes.length - 1];
      answer.writeHead(range ? 206 : 200, { etag: '"1"', 'content-length': end - begin + 1, ...(range && { 'content-range': `bytes ${begin}-${end}/${bytes.length}` }) });
      answer.end(bytes.subarray(begin, end + 1));
    });
    site.listen(0, '127.0.0.1');
    await once(site, 'listening');
    const url = `http://127.0.0.1:${site.address().port}/guard.manifest.json`;
    const cache = join(folder, 'cache');
    const pull = (reference, ...more) => run(binary, ['model', 'pull', reference, '--cache', cache, '--json', ...more]);
    const pulled = JSON.parse((await pull(url, '--manifest-key', key)).stdout);
    assert.deepEqual(readFileSync(pulled.path), readFileSync(join(folder, 'guard.gguf')));
    await assert.rejects(pull(url.replace('guard', 'other')), /404/);
    await assert.rejects(pull(url, '--manifest-key', `A${'B'.repeat(43)}`), /asked for/);
    site.closeAllConnections();
    site.close();
    await once(site, 'close');
    const server = await Server.start({ model: url, args: ['--profile', profile, '--model-cache', cache, '--manifest-key', key] });
    assert.equal((await server.post('/v1/classify', { profile: 'scam-guard', input: 'You have won! Call 0900 now' })).json.data[0].label, '5');
    await server.stop();
  });

  test('whoever changes a manifest, or signs it with another key, is found out', async () => {
    const { key } = await make('--key', keyFile);
    await refused({ ...read(), licence: 'MIT' }, /signature is wrong: it was changed after it was signed/);
    const { signature, ...unsigned } = read();
    await refused(unsigned, /not signed, and a signature of .* is asked for/, ['--manifest-key', key]);
    await make('--key', join(folder, 'stranger.pem'));
    await refused(read(), /is signed by .*, and a signature of .* is asked for/, ['--manifest-key', key]);
    await refused({ ...unsigned, signature: { key: 'AAAA', value: signature.value } }, /key has 33 bytes/);
  });

  // C-64: a model that writes something else here than at home gets no traffic.
  test('another token from a golden prompt ends the server, which says which one', async () => {
    await make();
    const manifest = read();
    manifest.golden[1].tokens[0] += 1;
    await refused(manifest, /golden prompt 2 of 2: the model writes something else, token 1: \d+ \(.*\) was expected, and \d+ \(/);
    const retokenised = read();
    retokenised.golden[0].prompt_tokens[5] += 1;
    await refused(retokenised, /golden prompt 1 of 2: its text is read as other tokens, token 6/);
  });

  test('other bytes, another template and an engine that was not tried are refused before anything is loaded', async () => {
    await make();
    const manifest = read();
    await refused({ ...manifest, files: [{ ...manifest.files[0], sha256: 'ab'.repeat(32) }] }, /its SHA-256 is [0-9a-f]{64}, and the manifest says abab/);
    await refused({ ...manifest, files: [{ ...manifest.files[0], size_bytes: 5 }] }, /its size is \d+, and the manifest says 5/);
    await refused({ ...manifest, chat_template_sha256: '' }, /chat template's SHA-256 is [0-9a-f]{64}, and the manifest says none/);
    await refused({ ...manifest, engine: { name: 'llama.cpp', from: '9.0.0', to: '9.9.9' } }, /made for llama\.cpp 9\.0\.0 to 9\.9\.9, and this is llama\.cpp/);
    await refused('{"format": 1}', /"format" must be a string/);
  });

  test('a prompt that leaves the model in doubt, or a line that is none, is named', () => {
    const attempt = (line) => {
      writeFileSync(join(folder, 'bad.jsonl'), line);
      try {
        execFileSync(binary, ['model', 'manifest', join(folder, 'guard.gguf'), '--golden', join(folder, 'bad.jsonl'), '--output', path], { stdio: 'pipe' });
      } catch (error) {
        assert.equal(error.status, 2);
        return error.stderr.toString();
      }
      return 'made';
    };
    assert.match(attempt('{"text": "x"}'), /line 1: has neither "prompt" nor "messages"/);
    assert.match(attempt('\n{"messages": [{"role": "user"}]}'), /line 2: holds a message without/);
    assert.match(attempt('nonsense'), /line 1/);
    assert.match(attempt(''), /holds no prompt/);
  });
});
