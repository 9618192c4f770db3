// Chromium as the user of an address: its hello (post-quantum key share, GREASE, ECH) is routed, and pages, streams and sockets work.
import assert from 'node:assert/strict';
import { createHash, X509Certificate } from 'node:crypto';
import { existsSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { chromium } from 'playwright-core';
import { Relay, Tunnel, startTarget } from './rig.mjs';

const kChromium = process.env.POCKETFLEET_CHROMIUM ?? '/usr/bin/chromium';
const kText = 'Grüße, 世界, 🐘';

describe('Chromium', { skip: existsSync(kChromium) ? false : `no ${kChromium}: scripts/setup --tests installs it` }, () => {
  let relay, target, browser;
  let nextEvent;  // lets the stream that is open say its next event

  before(async () => {
    target = await startTarget(async (call, answer) => {
      const { pathname, searchParams } = new URL(call.url, 'http://here');
      if (pathname === '/') {
        answer.setHeader('content-type', 'text/html; charset=utf-8');
        return answer.end(`<!doctype html><title>${kText}</title>`);
      }
      if (pathname === '/echo') return call.pipe(answer);
      if (pathname === '/number') return answer.end(searchParams.get('of'));
      if (pathname === '/next') {
        nextEvent();
        return answer.end();
      }
      answer.setHeader('content-type', 'text/event-stream; charset=utf-8');
      for (const word of kText.split(' ')) {
        answer.write(`data: ${word}\n\n`);
        await new Promise((resolve) => { nextEvent = resolve; });
      }
      answer.end('data: [DONE]\n\n');
    });
    target.server.on('upgrade', (call, socket) => {
      const accept = createHash('sha1').update(`${call.headers['sec-websocket-key']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest('base64');
      socket.write(`HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-accept: ${accept}\r\n\r\n`);
      // Text of less than 126 bytes, unmasked and sent back (RFC 6455, section 5.2).
      socket.on('data', (frame) => {
        if ((frame[0] & 0x0f) !== 1) return socket.end();
        const text = frame.subarray(6).map((byte, at) => byte ^ frame[2 + (at % 4)]);
        socket.write(Buffer.concat([Buffer.from([0x81, text.length]), text]));
      });
      socket.on('error', () => {});
    });
    relay = await Relay.start();
  });
  after(async () => {
    await relay?.stop();
    await target?.stop();
  });

  for (const carrier of ['h2', 'quic']) test(`loads a page, reads a stream as it comes, sends, and opens a WebSocket, over ${carrier}`, async () => {
    const tunnel = Tunnel.start({ relay, to: target.address, args: ['--self-signed', '--carrier', carrier] });
    await tunnel.ready();
    const spki = new X509Certificate(tunnel.trusted()).publicKey.export({ type: 'spki', format: 'der' });
    browser = await chromium.launch({
      executablePath: kChromium,
      args: ['--no-sandbox', `--host-resolver-rules=MAP ${tunnel.host} 127.0.0.1:${relay.publicPort}`,
             // This one key is trusted, whoever signed for it; any other is refused.
             `--ignore-certificate-errors-spki-list=${createHash('sha256').update(spki).digest('base64')}`],
    });
    try {
      const page = await browser.newPage();
      await page.goto(`https://${tunnel.host}/`);
      assert.equal(await page.title(), kText);
      const seen = await page.evaluate(async (text) => {
        const seen = {};
        const stream = await fetch('/events');
        const reader = stream.body.pipeThrough(new TextDecoderStream()).getReader();
        seen.events = '';
        for (;;) {
          const { value, done } = await reader.read();
          if (done) break;
          seen.events += value;
          if (seen.events.endsWith('\n\n') && !seen.events.includes('[DONE]')) await fetch('/next');
        }
        const bytes = new Uint8Array(4_000_000).map((_, at) => at * 31);
        const back = new Uint8Array(await (await fetch('/echo', { method: 'POST', body: bytes })).arrayBuffer());
        seen.echo = back.length === bytes.length && back.every((byte, at) => byte === bytes[at]);
        seen.numbers = await Promise.all(Array.from({ length: 64 }, async (_, of) => Number(await (await fetch(`/number?of=${of}`)).text())));
        seen.socket = await new Promise((resolve, reject) => {
          const socket = new WebSocket(`wss://${location.host}/socket`);
          socket.onopen = () => socket.send(text);
          socket.onmessage = ({ data }) => { resolve(data); socket.close(); };
          socket.onerror = () => reject(new Error('the socket failed'));
        });
        seen.protocol = performance.getEntriesByType('navigation')[0].nextHopProtocol;
        return seen;
      }, kText);
      assert.deepEqual(seen, {
        events: [...kText.split(' '), '[DONE]'].map((word) => `data: ${word}\n\n`).join(''),
        echo: true,
        numbers: Array.from({ length: 64 }, (_, of) => of),
        socket: kText,
        protocol: 'http/1.1',
      });
    } finally {
      await browser.close();
    }
    await tunnel.stop();
  });
});
