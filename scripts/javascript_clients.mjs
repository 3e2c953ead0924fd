// The official JavaScript clients of OpenAI, Anthropic and Ollama against a running `leap serve`. By hand, where node is:
//
//     mkdir /tmp/clients && cd /tmp/clients && npm install openai @anthropic-ai/sdk ollama
//     cp .../scripts/javascript_clients.mjs . && node javascript_clients.mjs http://127.0.0.1:8080 [MODEL]
//
// Every line is a check; the exit code is 1 when one failed.

import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import { Ollama } from "ollama";
import OpenAI from "openai";

const [base = "http://127.0.0.1:8080", model = "builtin"] = process.argv.slice(2);
const QUESTION = "What is the capital of France?";
const messages = [{ role: "user", content: QUESTION }];
const PERSON = {
  type: "object",
  properties: { name: { type: "string", maxLength: 12 }, age: { type: "integer", maximum: 99 } },
  required: ["name", "age"],
  additionalProperties: false,
};
const openai = new OpenAI({ baseURL: `${base}/v1`, apiKey: "none", maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: base, apiKey: "none", maxRetries: 0 });
const ollama = new Ollama({ host: base });

const checks = {
  "openai: chat, whole and as a stream": async () => {
    const whole = await openai.chat.completions.create({ model, messages, temperature: 0 });
    assert.match(whole.choices[0].message.content, /Paris/);
    let said = "";
    for await (const chunk of await openai.chat.completions.create({ model, messages, temperature: 0, stream: true })) {
      said += chunk.choices[0]?.delta?.content ?? "";
    }
    assert.equal(said, whole.choices[0].message.content);
  },
  "openai: a response, and its stream": async () => {
    const response = await openai.responses.create({ model, input: QUESTION, temperature: 0, store: true });
    assert.match(response.output_text, /Paris/);
    assert.equal((await openai.responses.retrieve(response.id)).output_text, response.output_text);
    const stream = openai.responses.stream({ model, input: QUESTION, temperature: 0 });
    assert.equal((await stream.finalResponse()).output_text, response.output_text);
    await openai.responses.delete(response.id);
    await assert.rejects(openai.responses.retrieve(response.id), OpenAI.NotFoundError);
  },
  "openai: a response of the background, taken up again": async () => {
    const asked = { model, input: QUESTION, temperature: 0, background: true, stream: true };
    const events = [];
    for await (const event of await openai.responses.create(asked)) events.push(event);
    const { id } = events[0].response;
    const rest = [];
    for await (const event of await openai.responses.retrieve(id, { stream: true, starting_after: 3 })) rest.push(event);
    assert.deepEqual(rest, events.slice(4));
    assert.equal((await openai.responses.retrieve(id)).status, "completed");
  },
  "openai: a conversation": async () => {
    const { id } = await openai.conversations.create({ items: [{ role: "user", content: "My name is Ada." }] });
    const answer = await openai.responses.create({ model, conversation: id, input: QUESTION, temperature: 0 });
    const kinds = [];
    for await (const item of openai.conversations.items.list(id, { order: "asc" })) kinds.push(item.role);
    assert.deepEqual(kinds, ["user", "user", "assistant"]);
    assert.equal((await openai.conversations.update(id, { metadata: { topic: "France" } })).metadata.topic, "France");
    assert.match(answer.output_text, /\w/);
    await openai.conversations.delete(id);
    await assert.rejects(openai.conversations.retrieve(id), OpenAI.NotFoundError);
  },
  "openai: models": async () => {
    const names = [];
    for await (const each of openai.models.list()) names.push(each.id);
    assert.ok(names.includes(model));
  },
  "anthropic: a message, whole and as a stream, and its tokens": async () => {
    const whole = await anthropic.messages.create({ model, messages, max_tokens: 50, temperature: 0 });
    assert.match(whole.content[0].text, /Paris/);
    const stream = anthropic.messages.stream({ model, messages, max_tokens: 50, temperature: 0 });
    assert.equal(await stream.finalText(), whole.content[0].text);
    assert.ok((await anthropic.messages.countTokens({ model, messages })).input_tokens > 5);
    await assert.rejects(anthropic.messages.create({ model: "nobody", messages, max_tokens: 5 }), Anthropic.NotFoundError);
  },
  "anthropic: a batch of messages": async () => {
    const params = { model, messages, max_tokens: 20, temperature: 0 };
    const requests = [{ custom_id: "a", params }, { custom_id: "b", params: { ...params, model: "nobody" } }];
    let batch = await anthropic.messages.batches.create({ requests });
    for (let n = 0; batch.processing_status !== "ended" && n < 600; n++) {
      await new Promise((resolve) => setTimeout(resolve, 100));
      batch = await anthropic.messages.batches.retrieve(batch.id);
    }
    const results = {};
    for await (const each of await anthropic.messages.batches.results(batch.id)) results[each.custom_id] = each.result;
    assert.match(results.a.message.content[0].text, /Paris/);
    assert.equal(results.b.type, "errored");
    assert.equal((await anthropic.messages.batches.delete(batch.id)).type, "message_batch_deleted");
  },
  "ollama: chat, whole and as a stream": async () => {
    const options = { temperature: 0 };
    const whole = await ollama.chat({ model, messages, options });
    assert.match(whole.message.content, /Paris/);
    let said = "";
    for await (const part of await ollama.chat({ model, messages, options, stream: true })) said += part.message.content;
    assert.equal(said, whole.message.content);
  },
  "ollama: a shape, a prompt, vectors": async () => {
    const shaped = await ollama.chat({ model, messages: [{ role: "user", content: "Ada is 36." }], format: PERSON });
    assert.deepEqual(Object.keys(JSON.parse(shaped.message.content)).sort(), ["age", "name"]);
    assert.ok((await ollama.generate({ model, prompt: QUESTION, keep_alive: "5m" })).response);
    const { embeddings } = await ollama.embed({ model: "builtin-embed", input: ["one", "two"] });
    assert.equal(embeddings.length, 2);
  },
  "ollama: list, ps, show, version, an error": async () => {
    assert.ok((await ollama.list()).models.some((each) => each.model === model));
    assert.ok((await ollama.ps()).models.some((each) => each.model === model));
    assert.ok((await ollama.show({ model })).capabilities.includes("completion"));
    assert.ok((await ollama.version()).version);
    await assert.rejects(ollama.chat({ model: "nobody", messages }), /nobody/);
  },
};

let failed = 0;
for (const [name, check] of Object.entries(checks)) {
  try {
    await check();
    console.log(`ok      ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`failed  ${name}: ${error.message}`);
  }
}
process.exit(failed ? 1 : 0);
