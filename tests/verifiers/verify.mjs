// Verifies what receivers got with the JavaScript implementation of Standard Webhooks. See verify.py for the files;
// the same must hold here.

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { Webhook, WebhookVerificationError } from "standardwebhooks";

const folder = process.argv[2];
const requests = readdirSync(folder)
  .filter((name) => name.endsWith(".json"))
  .sort()
  .map((name) => ({ name, ...JSON.parse(readFileSync(join(folder, name), "utf8")) }));
const secrets = new Set(requests.flatMap((request) => request.secrets));
const faults = [];

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

for (const request of requests) {
  const body = Buffer.from(request.body_base64, "base64");
  for (const secret of request.secrets) {
    if (!verifies(secret, request, body)) faults.push(`${request.name}: does not verify`);
    if (verifies(secret, request, Buffer.concat([body, Buffer.from(" ")]))) {
      faults.push(`${request.name}: verifies with a changed body`);
    }
  }
  for (const other of secrets) {
    if (!request.secrets.includes(other) && verifies(other, request, body)) {
      faults.push(`${request.name}: verifies with another's secret`);
    }
  }
}

if (faults.length > 0 || requests.length === 0) {
  console.error(faults.join("\n") || "no request was captured");
  process.exit(1);
}
console.log(`JavaScript: ${requests.length} requests verify`);
