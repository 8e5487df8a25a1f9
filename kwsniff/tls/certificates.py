"""What a certificate of a handshake says of its owner (X.509, RFC 5280)."""

from __future__ import annotations

import warnings

from kwsniff.tls.hellos import clean


def owner(der: bytes) -> tuple[str, int | None]:
    """Subject (RFC 4514) and end of validity (seconds since 1970, UTC) of a certificate in DER.

    A certificate that cannot be read has neither; its subject or its time alone may be missing, too.
    """
    try:
        from cryptography import x509
    except ImportError:
        return "", None
    subject, not_after = "", None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of oddities, which are not ours to judge
        # The parser reads parts only when they are asked for, and raises what its parts raise.
        try:
            certificate = x509.load_der_x509_certificate(der)
            not_after = int(certificate.not_valid_after_utc.timestamp())
            subject = clean(certificate.subject.rfc4514_string())
        except Exception:
            return subject, not_after
    return subject, not_after
