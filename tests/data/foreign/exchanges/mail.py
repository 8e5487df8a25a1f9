"""Mail, its filters, and telephony."""

from __future__ import annotations

import struct
import subprocess

from exchanges.stage import HOST, daemon, dialogue, end, exchange, scratch, served, split, wait_for

served(
    "smtp",
    "exim4 -C {settings} -bdf -q1h",
    [
        b"EHLO order%N\r\n",
        b"MAIL FROM:<a@shop.test>\r\n",
        b"RCPT TO:<b@shop.test>\r\n",
        b"NOOP\r\n",
        b"QUIT\r\n",
    ],
    "spool_directory = {folder}\nlog_file_path = {folder}/%slog\ndaemon_smtp_ports = {port}\n"
    "local_interfaces = {host}\nprimary_hostname = shop.test\nacl_smtp_rcpt = deny\nsmtp_accept_max = 400\n"
    "smtp_accept_max_per_host = 300\nexim_user = root\nexim_group = root\nnever_users =\n"
    "begin acl\ndeny:\n deny message = no orders here\n",
    greeted=True,
)


def dovecot(port: int, count: int, protocol: str, words: list[bytes]) -> None:
    """Say `words` to a Dovecot that speaks one protocol and lets everybody in."""
    with scratch() as folder:
        settings = folder / "dovecot.conf"
        settings.write_text(
            f"protocols = {protocol}\nlisten = {HOST}\nbase_dir = {folder}/run\nlog_path = {folder}/log\nssl = no\n"
            f"disable_plaintext_auth = no\nmail_location = maildir:{folder}/mail\nfirst_valid_uid = 0\n"
            f"state_dir = {folder}/state\nmail_max_userip_connections = 0\n"
            f"service {protocol}-login {{\n inet_listener {protocol} {{\n port = {port}\n }}\n inet_listener {protocol}s {{\n port = 0\n }}\n}}\n"
            f"passdb {{\n driver = static\n args = nopassword=y\n}}\nuserdb {{\n driver = static\n args = uid=1000 gid=1000 home={folder}/home\n}}\n"
        )
        (folder / "home").mkdir(mode=0o777)
        (folder / "mail").mkdir(mode=0o777)
        (folder / "mail").chmod(0o777)
        with daemon(["dovecot", "-F", "-c", settings], port):
            dialogue(port, count, words, greeted=True)


@exchange("imap")
def imap(port: int, count: int) -> None:
    words = [
        b"a LOGIN alice x\r\n",
        b"b SELECT INBOX\r\n",
        b'c LIST "" "*"\r\n',
        b"d CAPABILITY\r\n",
        b"e LOGOUT\r\n",
    ]
    dovecot(port, count, "imap", words)


@exchange("pop3")
def pop3(port: int, count: int) -> None:
    dovecot(port, count, "pop3", [b"CAPA\r\n", b"USER alice\r\n", b"PASS x\r\n", b"STAT\r\n", b"QUIT\r\n"])


@exchange("milter")
def milter(port: int, count: int) -> None:
    """What a mail server asks its filter: a length of four bytes, a letter, and texts."""

    def ask(letter: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body) + 1) + letter + body

    with scratch() as folder:
        key = folder / "key"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        key.chmod(0o600)
        settings = folder / "opendkim.conf"
        settings.write_text("RequireSafeKeys no\n")
        opening = ask(b"O", struct.pack(">III", 6, 0x1FF, 0x1FFFFF))
        asks = (
            *(
                (b"C", b"shop.test\x004\x00\x19127.0.0.1\0"),
                (b"H", b"shop.test\0"),
                (b"M", b"<a@shop.test>\0"),
            ),
            *((b"R", b"<b@shop.test>\0"), (b"L", b"From\0a@shop.test\0"), (b"L", b"Subject\0order %N\0")),
            *((b"N", b""), (b"B", b"book\r\n"), (b"E", b"")),
        )
        with daemon(
            f"opendkim -f -x {settings} -d shop.test -s s -k {key} -p inet:{port}@{HOST} -b sv", port
        ):
            dialogue(port, count, [opening, *(ask(*each) for each in asks)], patience=0.3)


@exchange("sip")
def sip(port: int, count: int) -> None:
    """SIPp on both ends, each call on a connection of its own."""
    null, sipp = subprocess.DEVNULL, f"sipp -t tn -max_socket 1000 -i {HOST} -nostdin -sn"
    server = subprocess.Popen(split(f"{sipp} uas -p {port}"), stdout=null, stderr=null, stdin=null)
    wait_for(port)
    try:
        client = split(f"{sipp} uac -m {count} -r 40 -d 20 {HOST}:{port}")
        subprocess.run(client, stdin=null, capture_output=True, timeout=120, check=False)
    finally:
        end(server)
