"""Directories and names: LDAP, DNS, Kerberos, ZooKeeper, and the small old ones."""

from __future__ import annotations

import os
import struct
import subprocess

from exchanges.stage import HOST, command_each, daemon, dialogue, each, exchange, scratch, served


@exchange("ldap")
def ldap(port: int, count: int) -> None:
    root, secret = "cn=admin,dc=example,dc=org", "throw-away"
    with scratch() as folder:
        settings = folder / "slapd.conf"
        schemas = "".join(f"include /etc/ldap/schema/{name}.schema\n" for name in ("core", "cosine"))
        settings.write_text(
            f"{schemas}modulepath /usr/lib/ldap\nmoduleload back_mdb\npidfile {folder}/pid\ndatabase mdb\n"
            f"suffix dc=example,dc=org\nrootdn {root}\nrootpw {secret}\ndirectory {folder}\n"
        )
        url = f"ldap://{HOST}:{port}"
        bind = ["-x", "-H", url, "-D", root, "-w", secret]
        entry = "dn: dc=example,dc=org\nobjectClass: domain\ndc: example\n"
        with daemon(["slapd", "-d", "0", "-f", settings, "-h", url], port):
            command_each(1, ["ldapadd", *bind], entry)
            command_each(
                count - 1, ["ldapsearch", *bind, "-b", "dc=example,dc=org", "(|(objectClass=*)(dc=%N))"]
            )


def question(id_: int, kind: int) -> bytes:
    names = b"\x06orders\x04shop\x04test\0"
    body = struct.pack(">HHHHHH", id_, 0x100, 1, 0, 0, 0) + names + struct.pack(">HH", kind, 1)
    return struct.pack(">H", len(body)) + body


# Over TCP, with lengths of two bytes; several questions on one connection.
served(
    "dns",
    "unbound -d -c {settings}",
    [question(1, 1), question(2, 16), question(3, 28), question(0, 255)],
    'server:\n port: {port}\n interface: {host}\n directory: "{folder}"\n username: ""\n chroot: ""\n'
    ' pidfile: ""\n use-syslog: no\n do-daemonize: no\n incoming-num-tcp: 300\n local-zone: "test." static\n'
    ' local-data: "orders.shop.test. A 10.0.0.1"\n local-data: "orders.shop.test. TXT kafka"\n'
    "remote-control:\n control-enable: no\n",
)


@exchange("kerberos")
def kerberos(port: int, count: int) -> None:
    """Kerberos over TCP: messages with a length of four bytes in front."""
    with scratch() as folder:
        (folder / "krb5.conf").write_text(
            f"[libdefaults]\n default_realm = SHOP.TEST\n udp_preference_limit = 1\n dns_lookup_kdc = false\n"
            f"[realms]\n SHOP.TEST = {{\n  kdc = {HOST}:{port}\n }}\n"
        )
        (folder / "kdc.conf").write_text(
            f"[kdcdefaults]\n kdc_tcp_listen = {HOST}:{port}\n kdc_listen = {HOST}:{port}\n[realms]\n SHOP.TEST = {{\n"
            f"  database_name = {folder}/principal\n  key_stash_file = {folder}/stash\n }}\n"
        )
        env = {**os.environ, "KRB5_CONFIG": f"{folder}/krb5.conf", "KRB5_KDC_PROFILE": f"{folder}/kdc.conf"}

        def run(*words: str, said: str = "") -> None:
            subprocess.run(words, env=env, input=said.encode(), capture_output=True, timeout=20, check=False)

        run("kdb5_util", "create", "-s", "-P", "throw-away", "-W")
        run("kadmin.local", "addprinc", "-pw", "throw-away", "alice")
        with daemon(["krb5kdc", "-n"], port, env):
            each(count, lambda n: run("kinit", "-c", f"{folder}/cache{n % 4}", "alice", said="throw-away\n"))


@exchange("zookeeper")
def zookeeper(port: int, count: int) -> None:
    """Requests with a length of four bytes, an id that counts up, and a type that is a small number."""
    from kazoo.client import KazooClient

    def client(number: int) -> None:
        connection = KazooClient(f"{HOST}:{port}", timeout=10)
        connection.start(10)
        for path in ("/orders", f"/orders/{number}"):
            connection.ensure_path(path)
        connection.set(f"/orders/{number}", b"book" * number)
        connection.get(f"/orders/{number}", watch=print)
        connection.get_children("/")
        connection.exists("/missing")
        connection.transaction().commit()
        connection.stop()
        connection.close()

    with scratch() as folder:
        settings = folder / "zoo.cfg"
        settings.write_text(
            f"dataDir={folder}\nclientPort={port}\nclientPortAddress={HOST}\nadmin.enableServer=false\nmaxClientCnxns=0\n"
        )
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        with daemon(["java", "-Xmx200m", "-cp", "/usr/share/java/*", main, settings], port):
            each(count, client)


served(
    "dict",
    "dictd -d nodetach -c {settings} --pid-file {folder}/pid",
    [b"CLIENT shop%N\r\n", b"SHOW DB\r\n", b"DEFINE * kafka\r\n", b"QUIT\r\n"],
    'global {{ listen_to {host} port {port} }}\ndatabase jargon {{ data "/usr/share/dictd/jargon.dict.dz" index "/usr/share/dictd/jargon.index" }}\n',
    greeted=True,
)


def under_xinetd(
    port: int, count: int, server: str, words: list[bytes], greeted: bool = False, args: str = ""
) -> None:
    """Say `words` to a server that xinetd starts for each connection."""
    with scratch() as folder:
        settings = folder / "xinetd.conf"
        settings.write_text(
            f"defaults\n{{\n instances = 300\n cps = 1000 1\n per_source = 300\n}}\nservice old\n{{\n type = UNLISTED\n port = {port}\n"
            f" socket_type = stream\n wait = no\n user = root\n server = {server}\n server_args = {args}\n"
            f" bind = {HOST}\n protocol = tcp\n}}\n"
        )
        with daemon(["xinetd", "-dontfork", "-f", settings, "-pidfile", folder / "pid"], port):
            dialogue(port, count, words, greeted)


@exchange("finger")
def finger(port: int, count: int) -> None:
    under_xinetd(port, count, "/usr/sbin/efingerd", [b"root\r\n"], args="-n")


@exchange("telnet")
def telnet(port: int, count: int) -> None:
    options = b"\xff\xfd\x03\xff\xfb\x18\xff\xfb\x1f\xff\xfb\x20\xff\xfb\x27"
    terminal = (
        b"\xff\xfa\x18\0xterm\xff\xf0\xff\xfa\x1f\0\x50\0\x18\xff\xf0\xff\xfa\x20\x0038400,38400\xff\xf0"
    )
    under_xinetd(
        port, count, "/usr/sbin/telnetd", [options, terminal, b"order%N\r\0"], greeted=True, args="-h"
    )


served("epmd", "epmd -port {port}", [b"\0\x01n"])  # Erlang's names: lengths of two bytes
