// The Vercel AI SDK with its OpenAI-compatible provider against the real server.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateObject, generateText, streamText, tool } from 'ai';
import { z } from 'zod';
import { Server, systemPrompt } from './server.mjs';

const SCAM = 'WINNER! Claim your 900 pound prize now, call 09061701461. Code KL341. Valid 12 hours only';

describe('the Vercel AI SDK', () => {
  let server;
  let model;
  before(async () => {
    server = await Server.start({ args: ['--thinking', 'off'] });
    const provider = createOpenAICompatible({ name: 'pocketfleet', baseURL: `${server.url}/v1`, supportsStructuredOutputs: true });
    model = provider((await (await fetch(`${server.url}/v1/models`)).json()).data[0].id);
  });
  after(() => server.stop());

  test('generates text', async () => {
    const { text, finishReason, usage } = await generateText({ model, system: systemPrompt, prompt: SCAM, temperature: 0, maxRetries: 0 });
    assert.equal(text, 'RISK_LEVEL: 5');
    assert.equal(finishReason, 'stop');
    assert.ok(usage.inputTokens > 0);
  });

  test('streams text', async () => {
    const { textStream } = streamText({ model, system: systemPrompt, prompt: SCAM, temperature: 0, maxRetries: 0 });
    let text = '';
    for await (const piece of textStream) text += piece;
    assert.equal(text, 'RISK_LEVEL: 5');
  });

  test('generates an object that fits its schema', async () => {
    const { object } = await generateObject({
      model, system: systemPrompt, prompt: SCAM, temperature: 0, maxRetries: 0,
      schema: z.object({ level: z.enum(['low', 'high']), scam: z.boolean() }),
    });
    assert.ok(['low', 'high'].includes(object.level));
    assert.equal(typeof object.scam, 'boolean');
  });

  test('calls a tool', async () => {
    const { toolCalls } = await generateText({
      model, prompt: 'What is the weather?', temperature: 0, maxRetries: 0, maxOutputTokens: 200,
      tools: { weather: tool({ description: 'the weather of a city', inputSchema: z.object({ city: z.enum(['Berne', 'Zug']) }) }) },
      toolChoice: 'required', providerOptions: { pocketfleet: { parallel_tool_calls: false } },
    });
    assert.equal(toolCalls[0].toolName, 'weather');
    assert.ok(['Berne', 'Zug'].includes(toolCalls[0].input.city));
  });
});
