// A relay that orders its own certificate: before it has one, when it gets one, when it starts again, and when it renews.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import tls from 'node:tls';
import { Relay, binary, connectTls, folder, freePort, makeAuthority, makeCertificate, startPebble, suffix } from './rig.mjs';

const name = `relay.${suffix}`;
const agent = makeCertificate(['agent']);

const until = async (condition, within_ms = 20_000) => {
  const deadline = Date.now() + within_ms;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`gave up waiting: ${condition}`);
    await sleep(100);
  }
};

const ordered = (directory, ca, state) => ['--acme-name', name, '--acme-directory', directory, '--acme-ca', ca, '--agree-terms', '--state', state];

// The relay's certificate, as an agent sees it that trusts `ca`.
function seenByAgent(relay, ca) {
  const socket = tls.connect({ host: '127.0.0.1', port: relay.agentPort, servername: name, ca, cert: readFileSync(agent.certificate), key: readFileSync(agent.key) });
  return new Promise((resolve, reject) => {
    socket.once('secureConnect', () => {
      resolve(socket.getPeerCertificate());
      socket.destroy();
    });
    socket.once('error', reject);
  });
}

// What somebody gets who asks for the proof of the relay's name as an authority does.
const askForProof = (relay) => connectTls(relay, name, { ALPNProtocols: ['acme-tls/1'], rejectUnauthorized: false });

const takesQuic = (relay) => readFileSync('/proc/net/udp', 'utf8').includes(`0100007F:${relay.agentPort.toString(16).toUpperCase().padStart(4, '0')} `);

describe("the relay's own certificate", () => {
  test('comes from files or by order, and the relay says so when it is neither or both', () => {
    const state = join(folder, 'never');
    for (const [args, message] of [
      [[], /--certificate and --key, or --acme-name/],
      [['--acme-name', name, '--certificate', 'a.pem', '--key', 'a.key'], /say only one/],
      [['--certificate', 'a.pem'], /go together/],
      [['--acme-name', name, '--state', state], /--agree-terms/],
      [['--acme-name', 'no host', '--agree-terms', '--state', state], /"no host" is no host name/],
    ]) {
      const ended = spawnSync(binary, ['relay', '--host', '127.0.0.1', '--public-port', '0', '--agent-port', '0', '--admin', 'off', '--suffix', suffix, ...args],
                              { encoding: 'utf8', timeout: 10_000 });
      assert.match(ended.stderr, message);
      assert.equal(ended.status, 2);
    }
  });

  test('is missing while the authority is away: agents are turned away, and /health says that the relay starts', async () => {
    const nobody = `https://localhost:${await freePort()}/dir`;
    const relay = await Relay.start({ own: false, args: ordered(nobody, makeAuthority().ca, join(folder, 'waiting')) });
    const health = await fetch(`http://127.0.0.1:${relay.adminPort}/health`);
    assert.equal(health.status, 503);
    assert.equal((await health.json()).status, 'starting');
    await assert.rejects(seenByAgent(relay, readFileSync(makeAuthority().ca)), /disconnected|ECONNRESET/);
    assert.ok(await relay.metric('pocketfleet_relay_agents_total', 'outcome="no certificate"') >= 1);
    assert.equal(takesQuic(relay), false);
    await until(() => relay.log.includes('certificate_failed'));
    await assert.rejects(askForProof(relay), /unrecognized name/);
    assert.deepEqual(await relay.stop(), [0, null]);
  });

  test('is ordered for its name at the public port, and kept over a restart', async () => {
    const publicPort = await freePort();
    const authority = await startPebble({ relayPort: publicPort });
    const state = join(folder, 'kept');
    const args = ordered(authority.directory, authority.ca, state);
    const relay = await Relay.start({ own: false, publicPort, args });
    await until(async () => (await relay.health()).status === 'ok', 60_000);
    const first = await seenByAgent(relay, authority.rootPem);
    assert.equal(first.subjectaltname, `DNS:${name}`);
    assert.equal(takesQuic(relay), true);
    await until(async () => (await relay.metric('pocketfleet_relay_users_total', 'outcome="challenge"')) >= 1);
    await assert.rejects(askForProof(relay), /unrecognized name/);
    assert.equal(statSync(state).mode & 0o777, 0o700);
    assert.equal(statSync(join(state, 'relay.key')).mode & 0o777, 0o600);
    await relay.stop();
    await authority.stop();

    const again = await Relay.start({ own: false, publicPort, args });
    assert.equal((await again.health()).status, 'ok');
    assert.equal((await seenByAgent(again, authority.rootPem)).serialNumber, first.serialNumber);
    assert.equal(takesQuic(again), true);
    await again.stop();
  });

  test('is renewed while the relay runs', async () => {
    const publicPort = await freePort();
    const authority = await startPebble({ relayPort: publicPort, validity_s: 20 });
    const relay = await Relay.start({ own: false, publicPort, args: ordered(authority.directory, authority.ca, join(folder, 'renewed')) });
    await until(async () => (await relay.health()).status === 'ok', 60_000);
    const first = await seenByAgent(relay, authority.rootPem);
    await until(async () => (await seenByAgent(relay, authority.rootPem)).serialNumber !== first.serialNumber, 40_000);
    assert.equal((await relay.health()).status, 'ok');
    assert.ok(!relay.log.includes('quic_failed'), relay.log);
    await relay.stop();
    await authority.stop();
  });
});
