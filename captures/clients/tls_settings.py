"""What Python clients of the TLS samples are told, and their SSL context."""

import os
import ssl

PLAINTEXT = os.environ["PLAINTEXT"]
ENCRYPTED = os.environ["BOOTSTRAP"]
SASL_SSL = os.environ["SASL_SSL"]
AUTHORITY = os.environ["AUTHORITY"]
CERTIFICATE = os.environ["CERTIFICATE"]
USER = os.environ["SASL_USER"]
PASSWORD = os.environ["SASL_PASSWORD"]
TOPIC = "orders"


def context(version=None, ciphers=None, mutual=False):
    """It writes its secrets to the file that SSLKEYLOGFILE names, as Python does for contexts made this way."""
    made = ssl.create_default_context(cafile=AUTHORITY)
    if version:
        made.minimum_version = made.maximum_version = version
    if ciphers:
        made.set_ciphers(ciphers)
    if mutual:
        made.load_cert_chain(CERTIFICATE)
    return made
