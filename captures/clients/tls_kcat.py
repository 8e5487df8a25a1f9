"""kcat over plaintext and then over TLS 1.3 and 1.2, as the distribution has it, with a preloaded library that logs
the secrets of its connections."""

import json
import os
import re
import subprocess
from pathlib import Path

from facts import Facts
from tls_settings import AUTHORITY, ENCRYPTED, PLAINTEXT, TOPIC

VERSION = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=True).stdout
facts = Facts("kcat (librdkafka)", "{} ({})".format(*re.search(r"Version ([\d.]+).*librdkafka ([\d.]+)", VERSION).groups()))
TLS = ["-b", ENCRYPTED, "-X", "security.protocol=ssl", "-X", f"ssl.ca.location={AUTHORITY}"]
# librdkafka has no setting for the newest version, OpenSSL's configuration has.
OLDER = """openssl_conf = settings
[settings]
ssl_conf = modules
[modules]
system_default = versions
[versions]
MaxProtocol = TLSv1.2
"""


def kcat(*arguments, environment, given=""):
    done = subprocess.run(["kcat", *arguments], input=given, env=environment, capture_output=True, text=True, timeout=30)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout


def everything(name, broker, environment):
    client = [*broker, "-X", f"client.id=kcat-{name}", "-X", "fetch.wait.max.ms=300", "-t", TOPIC]
    kcat(*client, "-P", "-p", "0", "-X", "acks=all", environment=environment, given="first\nsecond\nthird\n")
    read = kcat(*client, "-C", "-o", "beginning", "-e", "-J", environment=environment)
    offsets = [json.loads(line)["offset"] for line in read.splitlines()]
    facts.consumed(TOPIC, len(offsets))
    for offset in offsets[-3:]:
        facts.produced(f"kcat-{name}", TOPIC, 0, offset, "all", "none")
    kcat(*client, "-L", environment=environment)


older = Path(os.environ["RUN"]) / "openssl.cnf"
older.write_text(OLDER)
preloaded = {**os.environ, "LD_PRELOAD": os.environ["KEYLOG_LIBRARY"]}
everything("plaintext", ["-b", PLAINTEXT], dict(os.environ))
everything("tls1.3", TLS, preloaded)
everything("tls1.2", TLS, {**preloaded, "OPENSSL_CONF": str(older)})
facts.save()
