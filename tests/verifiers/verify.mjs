// Verifies what receivers got with the JavaScript implementation of Standard Webhooks, and with ed25519 as Node.js has it. See
// verify.py for the files; the same must hold here.

import { createPublicKey, verify } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { Webhook, WebhookVerificationError } from "standardwebhooks";

// What stands before the 32 bytes of an ed25519 key in DER (RFC 8410).
const DER = Buffer.from("302a300506032b6570032100", "hex");

const folder = process.argv[2];
const requests = readdirSync(folder)
  .filter((name) => name.endsWith(".json"))
  .sort()
  .flatMap((name) =>
    JSON.parse(readFileSync(join(folder, name), "utf8")).map((request, place) => ({
      name: `${name}[${place}]`,
      ...request,
    })),
  );
const secrets = [...new Set(requests.flatMap((request) => request.secrets))].sort();
const faults = [];
let byKeyPair = 0;

function verifies(secret, request, body) {
  // The library's clock, set to when the request came.
  Date.now = () => request.arrived_at * 1000;
  try {
    new Webhook(secret).verify(body, request.headers, { jsonParse: false });
    return true;
  } catch (error) {
    if (error instanceof WebhookVerificationError) return false;
    throw error;
  }
}

function isSigned(publicKey, request, body) {
  const der = Buffer.concat([DER, Buffer.from(publicKey.slice("whpk_".length), "base64")]);
  const key = createPublicKey({ key: der, format: "der", type: "spki" });
  const { "webhook-id": id, "webhook-timestamp": time, "webhook-signature": signatures } = request.headers;
  const signed = Buffer.concat([Buffer.from(`${id}.${time}.`), body]);
  return signatures
    .split(" ")
    .filter((one) => one.startsWith("v1a,"))
    .some((one) => verify(null, signed, key, Buffer.from(one.slice("v1a,".length), "base64")));
}

requests.forEach((request, place) => {
  const body = Buffer.from(request.body_base64, "base64");
  const changed = Buffer.concat([body, Buffer.from(" ")]);
  for (const secret of request.secrets) {
    if (!verifies(secret, request, body)) faults.push(`${request.name}: does not verify`);
    if (verifies(secret, request, changed)) faults.push(`${request.name}: verifies with a changed body`);
  }
  for (const key of request.public_keys) {
    byKeyPair += 1;
    if (!isSigned(key, request, body)) faults.push(`${request.name}: is not signed by its key pair`);
    if (isSigned(key, request, changed)) faults.push(`${request.name}: is signed with a changed body`);
  }
  // Each has its turn.
  const other = secrets[place % secrets.length];
  if (!request.secrets.includes(other) && verifies(other, request, body)) {
    faults.push(`${request.name}: verifies with another's secret`);
  }
});

if (faults.length > 0 || requests.length === 0 || byKeyPair === 0) {
  console.error(faults.slice(0, 20).join("\n") || "no request was captured");
  process.exit(1);
}
console.log(`JavaScript: ${requests.length} requests verify, ${byKeyPair} of them by ed25519, too`);
