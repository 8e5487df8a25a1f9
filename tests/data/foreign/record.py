"""Records what is not Kafka, of real clients and servers: HTTP, TLS, Redis, Thrift, PostgreSQL, LDAP, MySQL.

`unshare -n python tests/data/foreign/record.py [NAME...]` (root), with tcpdump; thriftpy2, fakeredis and
pg8000 from PyPI, PostgreSQL's `initdb` and `postgres`, OpenLDAP (Debian: slapd, ldap-utils) and MariaDB
(Debian: mariadb-server, mariadb-client). What is missing is left out. Each file holds one short exchange.
"""

from __future__ import annotations

import contextlib
import http.server
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent


def http_exchange(port: int) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), http.server.SimpleHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for path in ("/", "/missing"):
        with contextlib.suppress(Exception):
            urllib.request.urlopen(f"http://127.0.0.1:{port}{path}").read()
    server.shutdown()


def tls_exchange(port: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        key, cert = f"{folder}/key.pem", f"{folder}/cert.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert,
             "-subj", "/CN=localhost", "-days", "1"], check=True, capture_output=True,
        )  # fmt: skip
        server = http.server.HTTPServer(("127.0.0.1", port), http.server.SimpleHTTPRequestHandler)
        inside = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        inside.load_cert_chain(cert, key)
        server.socket = inside.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        outside = ssl._create_unverified_context()
        urllib.request.urlopen(f"https://127.0.0.1:{port}/", context=outside).read()
        server.shutdown()


def redis_exchange(port: int) -> None:
    import redis
    from fakeredis import TcpFakeServer

    server = TcpFakeServer(("127.0.0.1", port), server_type="redis")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    client = redis.Redis(host="127.0.0.1", port=port)
    client.set("orders", "1")
    client.get("orders")
    client.incr("orders")
    client.close()


def thrift_exchange(port: int) -> None:
    import thriftpy2
    from thriftpy2.rpc import make_client, make_server
    from thriftpy2.transport import TFramedTransportFactory

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ping.thrift"
        path.write_text("service Ping { string ping(1: string text), i32 add(1: i32 a, 2: i32 b) }")
        ping = thriftpy2.load(str(path), module_name="ping_thrift")

    class Handler:
        def ping(self, text: str) -> str:
            return text

        def add(self, a: int, b: int) -> int:
            return a + b

    framed = TFramedTransportFactory()
    server = make_server(ping.Ping, Handler(), "127.0.0.1", port, trans_factory=framed)
    threading.Thread(target=server.serve, daemon=True).start()
    time.sleep(0.5)
    client = make_client(ping.Ping, "127.0.0.1", port, trans_factory=TFramedTransportFactory())
    for number in range(5):
        client.ping("hello" * number)
        client.add(number, 1)
    client.close()


def postgres_exchange(port: int) -> None:
    import pg8000.native

    folder = tempfile.mkdtemp()
    subprocess.run(["chown", "postgres", folder], check=True)
    as_user = ["setpriv", "--reuid", "postgres", "--clear-groups"]
    subprocess.run([*as_user, "initdb", "-A", "trust", "-D", f"{folder}/db"], check=True, capture_output=True)
    options = ["-D", f"{folder}/db", "-p", str(port), "-k", folder, "-h", "127.0.0.1"]
    server = subprocess.Popen([*as_user, "postgres", *options], stderr=subprocess.DEVNULL)
    try:
        for _ in range(50):
            time.sleep(0.2)
            with contextlib.suppress(Exception):
                client = pg8000.native.Connection("postgres", host="127.0.0.1", port=port)
                break
        client.run("select 1 as one, 'kafka' as text")
        client.run("select * from pg_tables limit 5")
        client.close()
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(folder)


def ldap_exchange(port: int) -> None:
    root, secret = "cn=admin,dc=example,dc=org", "secret"
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder) / "slapd.conf"
        schemas = "".join(f"include /etc/ldap/schema/{name}.schema\n" for name in ("core", "cosine"))
        settings.write_text(
            f"{schemas}modulepath /usr/lib/ldap\nmoduleload back_mdb\npidfile {folder}/pid\ndatabase mdb\n"
            f"suffix dc=example,dc=org\nrootdn {root}\nrootpw {secret}\ndirectory {folder}\n"
        )
        url = f"ldap://127.0.0.1:{port}"
        server = subprocess.Popen(["slapd", "-d", "0", "-f", str(settings), "-h", url])
        try:
            _wait_for(port)
            bind = ["-x", "-H", url, "-D", root, "-w", secret]
            entry = (
                "dn: dc=example,dc=org\nobjectClass: domain\ndc: example\n\n"
                "dn: ou=kafka,dc=example,dc=org\nobjectClass: organizationalUnit\nou: kafka\n"
            )
            subprocess.run(["ldapadd", *bind], input=entry, text=True, check=True, capture_output=True)
            search = ["ldapsearch", *bind, "-b", "dc=example,dc=org", "(objectClass=*)"]
            subprocess.run(search, check=True, capture_output=True)
        finally:
            server.terminate()
            server.wait()


def mysql_exchange(port: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        data = f"{folder}/data"
        subprocess.run(
            ["mariadb-install-db", "--no-defaults", f"--datadir={data}", "--user=root", "--skip-test-db",
             "--auth-root-authentication-method=normal"], check=True, capture_output=True,
        )  # fmt: skip
        server = subprocess.Popen(
            ["mariadbd", "--no-defaults", "--user=root", f"--datadir={data}", f"--port={port}",
             "--bind-address=127.0.0.1", f"--socket={folder}/socket"], stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            _wait_for(port)
            client = ["mariadb", "--no-defaults", "-h127.0.0.1", f"-P{port}", "-uroot", "--protocol=tcp"]
            asked = (
                "create database shop; use shop; create table orders (id int, name varchar(20));"
                "insert into orders values (1, 'kafka'), (2, 'rdkafka'); select * from orders; show tables"
            )
            subprocess.run([*client, "-e", asked], check=True, capture_output=True)
        finally:
            server.terminate()
            server.wait()


def _wait_for(port: int) -> None:
    """Until somebody listens; asks without a connection, which would be recorded too."""
    for _ in range(300):
        if f":{port:04X} " in Path("/proc/net/tcp").read_text():
            return
        time.sleep(0.1)
    raise TimeoutError(f"nobody listens on port {port}")


EXCHANGES: dict[str, Callable[[int], None]] = {
    "http": http_exchange, "tls": tls_exchange, "redis": redis_exchange, "thrift": thrift_exchange,
    "postgres": postgres_exchange, "ldap": ldap_exchange, "mysql": mysql_exchange,
}  # fmt: skip


def main() -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for number, (name, exchange) in enumerate(EXCHANGES.items()):
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        port = 18_000 + number
        path = HERE / f"{name}.pcap"
        sniffer = subprocess.Popen(
            ["tcpdump", "-i", "lo", "-U", "-w", path, "-s", "0", "tcp", "port", str(port)],
            stderr=subprocess.PIPE,
        )
        assert sniffer.stderr is not None
        sniffer.stderr.readline()
        time.sleep(0.3)
        try:
            exchange(port)
            print(name, "recorded")
        except Exception as error:
            print(name, "left out:", repr(error))
        time.sleep(0.5)
        sniffer.terminate()
        sniffer.wait()
        if path.stat().st_size < 200:
            path.unlink()
    _ = socket


if __name__ == "__main__":
    main()
