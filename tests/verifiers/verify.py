"""Verifies what receivers got with the Python implementation of Standard Webhooks.

Each file of the folder that is given holds a list of requests:
{"secrets": ["whsec_..."], "public_keys": ["whpk_..."],
 "headers": {"webhook-id", "webhook-timestamp", "webhook-signature"}, "body_base64": "...", "arrived_at": 1700000000}

Every request must verify with each of its secrets at the time when it arrived, and must not verify with its body
changed by a byte, nor with the secret of another request. Public keys are for the verifier in JavaScript, whose runtime
has ed25519.
"""

import base64
import datetime
import json
import pathlib
import sys

import standardwebhooks.webhooks as library


class Arrival(datetime.datetime):
    """The library's clock, set to when the request came; its tolerance is then checked as a receiver would."""

    moment = 0

    @classmethod
    def now(cls, tz=None):
        return datetime.datetime.fromtimestamp(cls.moment, tz=tz)


library.datetime = Arrival


def verifies(secret, request, body):
    Arrival.moment = request["arrived_at"]
    try:
        library.Webhook(secret).verify(body, request["headers"], json_parse=False)
    except library.WebhookVerificationError:
        return False
    return True


def main(folder):
    files = sorted(pathlib.Path(folder).glob("*.json"))
    requests = [(f"{file.name}[{place}]", request)
                for file in files
                for place, request in enumerate(json.loads(file.read_text()))]
    secrets = sorted({secret for _, request in requests for secret in request["secrets"]})
    faults = []
    for place, (name, request) in enumerate(requests):
        body = base64.b64decode(request["body_base64"])
        for secret in request["secrets"]:
            if not verifies(secret, request, body):
                faults.append(f"{name}: does not verify")
            if verifies(secret, request, body + b" "):
                faults.append(f"{name}: verifies with a changed body")
        # Each has its turn.
        other = secrets[place % len(secrets)]
        if other not in request["secrets"] and verifies(other, request, body):
            faults.append(f"{name}: verifies with another's secret")
    if faults or not requests:
        sys.exit("\n".join(faults) or "no request was captured")
    print(f"Python: {len(requests)} requests verify")


main(sys.argv[1])
