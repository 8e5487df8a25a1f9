"""What a client says it did, written as JSON: the independent half of a sample's expected values."""

import json
import os

BOOTSTRAP = os.environ.get("BOOTSTRAP", "127.0.0.1:9092")


class Facts:
    """Collects the client's own view; `save` writes it to the file named by the FACTS variable."""

    def __init__(self, client, version):
        self.body = {"client": client, "version": version, "produced": [], "consumed": {}, "errors": [], "notes": []}

    def produced(self, client_id, topic, partition, offset, acks, codec, **more):
        row = {"client_id": client_id, "topic": topic, "partition": partition, "offset": offset}
        self.body["produced"].append({**row, "acks": acks, "codec": codec, **more})

    def consumed(self, topic, count=1):
        self.body["consumed"][topic] = self.body["consumed"].get(topic, 0) + count

    def error(self, client_id, what, code, name):
        self.body["errors"].append({"client_id": client_id, "what": what, "code": code, "name": name})

    def note(self, **what):
        self.body["notes"].append(what)

    def save(self):
        path = os.environ.get("FACTS")
        text = json.dumps(self.body, indent=1)
        if path:
            with open(path, "w") as out:
                out.write(text)
        else:
            print(text)
