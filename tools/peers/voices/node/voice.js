// A client of grpc-js for the table of decisions: commands and replies are lines of JSON; see
// tools/peers/decisions/voice.py for their fields.
'use strict';

const readline = require('node:readline');
const grpc = require('@grpc/grpc-js');
require('@grpc/grpc-js-xds').register();

const clients = new Map();
const names = Object.fromEntries(
  Object.entries(grpc.status).filter(([, code]) => typeof code === 'number').map(([name, code]) => [code, name]),
);

function findClient(target) {
  if (!clients.has(target)) {
    clients.set(target, new grpc.Client(target, grpc.credentials.createInsecure()));
  }
  return clients.get(target);
}

function makeMetadata(command) {
  const metadata = new grpc.Metadata({ waitForReady: command.wait_for_ready });
  for (const [key, value] of command.metadata) {
    metadata.add(key, key.endsWith('-bin') ? Buffer.from(value, 'base64') : value);
  }
  return metadata;
}

function call(client, command) {
  const start = process.hrtime.bigint();
  const options = { deadline: Date.now() + command.timeout_s * 1000 };
  const cookies = [];
  const addCookies = (metadata) => cookies.push(...metadata.get('set-cookie').map(String));
  return new Promise((resolve) => {
    let reply = '';
    const rpc = client.makeUnaryRequest(
      command.method,
      (value) => value,
      (value) => value,
      Buffer.from(command.body),
      makeMetadata(command),
      options,
      (error, message) => {
        reply = error ? '' : message.toString();
      },
    );
    rpc.on('metadata', addCookies);
    rpc.on('status', (status) => {
      addCookies(status.metadata);
      // The callback may run after this event.
      setImmediate(() => resolve({
        code: names[status.code],
        details: status.details,
        reply,
        seconds: Number(process.hrtime.bigint() - start) / 1e9,
        cookies,
      }));
    });
  });
}

async function run(command) {
  const client = findClient(command.target);
  const rpcs = [];
  for (let each = 0; each < command.count; each += 1) {
    const rpc = call(client, command);
    rpcs.push(command.concurrent ? rpc : await rpc);
  }
  process.stdout.write(`${JSON.stringify({ id: command.id, rpcs: await Promise.all(rpcs) })}\n`);
}

const lines = readline.createInterface({ input: process.stdin });
lines.on('line', (line) => run(JSON.parse(line)));
lines.on('close', () => process.exit(0));
