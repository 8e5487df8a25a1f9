"""The language of `--where` in words, for `kwsniff schema` and the documentation."""

from __future__ import annotations

from kwsniff.where.name import SHORT

INTRODUCTION = """An expression over the columns. Rows for which it is true are taken. Words of the language
(and, or, not, in, is, like, between, true, none) may be written in any case. A mistake is named with its
position before any input is read: a column that there is not, a number compared with text, an API, error or
status that no call can have."""

RULES = (
    ("== != < <= > >=", "compare; also chained: 1ms < latency < 2ms"),
    ("and or not ( )", "join tests"),
    ("+ - * /", "with numbers; a quotient is a fraction"),
    ("x between a and b", "a <= x and x <= b"),
    ('x in ("a", "b")', "one of several; [ ] may be written for ( )"),
    ('"a" in topics', "a list column holds it"),
    ('"a" in client_id', "a text holds it"),
    ('x ~ "regular expression"', "RE2, anywhere in the text; !~ is its opposite"),
    ('x like "pattern"', "% stands for any characters, _ for one"),
    ("x == None", "there is no value; also x is none, x is null, x is not null"),
    ("100us 5ms 2s 10min 1h", "times, for columns of µs or ms; a bare number is in the column's unit"),
    ("10B 10kB 5MB 1GB 64KiB", "sizes, for columns of bytes; kB is 1,000 bytes, KiB 1,024"),
    ("time > 12:03:05", "time of day, in the zone of --tz (UTC)"),
    (
        "time >= 2026-01-31T12:00:00Z",
        "moment in ISO 8601, with or without quotes; without a zone it is that of --tz",
    ),
    (
        "client_ip in 10.0.0.0/8",
        "an address or range of client_ip, broker_ip, client or broker; IPv6 as well",
    ),
    ("partitions.error_code", "that field of each partition: 6 in partitions.error_code"),
    (
        "request.topics.name",
        "field of a decoded body, named as kwsniff protocol does; decode needs --full",
    ),
    ('contains(x, "t")', 'also x.contains("t"); and so startswith, endswith, matches (RE2)'),
    ("lower(x) upper(x) len(x) abs(x)", "len is of a text or a list"),
)
"""What can be written, and what it means."""

NAMES = (
    *SHORT.items(),
    (
        "latency duration throttle waited rtt ...",
        "latency_us and so on: columns without the unit in their name",
    ),
    ("error == None", "error has no value where the code is 0, so error != None are the failures"),
)
"""Names that are no columns, and what they stand for."""

LOGIC = """A column without a value equals nothing but None: comparing it is false, != and not in are true; a
missing list holds nothing, and a flag such as syn without a value counts as false."""

EXAMPLES = (
    'api == "Fetch" and latency > 100ms',
    'error != None and topic == "orders"',
    'status in ("error", "unanswered") and client_ip in 10.20.0.0/16',
    'client like "billing-%" and broker == "10.0.0.9:9092"',
    "request_bytes > 1MB or record_count > 10000",
    'event == "connection" and (rst or handshake > 50ms)',
    'api ~ "^(Join|Sync|Leave)Group$" AND group == "payments"',
    "time between 12:03:05 and 12:04",
    "6 in partitions.error_code",
    "len(topics) > 1",
    "request.acks == 0",
)
