"""Databases and caches."""

from __future__ import annotations

import os
import shutil
import socket
import socketserver
import struct
import subprocess
import threading

from exchanges.stage import HOST, command_each, daemon, dialogue, each, exchange, scratch, served

served(
    "redis",
    "redis-server --port {port} --save '' --dir {folder}",
    [
        b"SET orders:%N 1\r\n",
        b"*2\r\n$3\r\nGET\r\n$8\r\norders:1\r\n",
        b"INCR orders\r\n",
        b"HELLO 3\r\n",
        b"INFO\r\n",
    ],
)
served(
    "memcached",
    "memcached -u nobody -l {host} -p {port} -U 0",
    [b"set order%N 0 60 4\r\nbook\r\n", b"get order%N\r\n", b"incr order%N 1\r\n", b"mn\r\n", b"stats\r\n"],
)


@exchange("postgres")
def postgres(port: int, count: int) -> None:
    import pg8000.native

    def client(number: int) -> None:
        connection = pg8000.native.Connection("postgres", host=HOST, port=port)
        connection.run("select :n as n, 'kafka' as text", n=number)
        connection.run("select * from pg_tables limit 5")
        connection.close()

    tools = next(
        path for path in ("/usr/lib/postgresql/15/bin", "/usr/lib/postgresql/17/bin") if os.path.isdir(path)
    )
    as_user = ["setpriv", "--reuid", "postgres", "--clear-groups"]
    with scratch() as folder:
        data = folder / "db"
        subprocess.run(
            [*as_user, f"{tools}/initdb", "-A", "trust", "-D", data], check=True, capture_output=True
        )
        options = ["-D", data, "-p", port, "-k", folder, "-h", HOST]
        with daemon([*as_user, f"{tools}/postgres", *options], port):
            each(count, client)


@exchange("mysql")
def mysql(port: int, count: int) -> None:
    with scratch() as folder:
        subprocess.run(
            ["mariadb-install-db", "--no-defaults", f"--datadir={folder}/data", "--user=root", "--skip-test-db",
             "--auth-root-authentication-method=normal"], check=True, capture_output=True,
        )  # fmt: skip
        server = ["mariadbd", "--no-defaults", "--user=root", f"--datadir={folder}/data", f"--port={port}",
                  f"--bind-address={HOST}", f"--socket={folder}/socket"]  # fmt: skip
        client = ["mariadb", "--no-defaults", f"-h{HOST}", f"-P{port}", "-uroot", "--protocol=tcp", "-e"]
        asked = (
            "create database if not exists shop; use shop; create table if not exists orders (id int, name varchar(20));"
            "insert into orders values (%N, 'kafka'), (2, 'rdkafka'); select * from orders limit 9; show tables"
        )
        with daemon(server, port):
            command_each(count, [*client, asked])


@exchange("firebird")
def firebird(port: int, count: int) -> None:
    with scratch() as folder:
        (folder / "firebird.conf").write_text(f"RemoteServicePort = {port}\nRemoteBindAddress = {HOST}\n")
        words = ["firebird", "-p", port]
        with daemon(words, port, env={**os.environ, "FIREBIRD_TMP": str(folder)}):
            command_each(
                count, ["isql-fb", "-u", "SYSDBA", "-p", "masterkey", f"{HOST}/{port}:security3.fdb"], "quit;"
            )


@exchange("tarantool")
def tarantool(port: int, count: int) -> None:
    """Requests in msgpack behind a length in msgpack."""

    def request(kind: int, body: bytes) -> bytes:
        inner = bytes([0x82, 0, kind, 1, 7]) + body
        return b"\xce" + struct.pack(">I", len(inner)) + inner

    evaluate = b"\x82\x27\xa8return 1\x21\x90"
    with scratch() as folder:
        script = folder / "server.lua"
        script.write_text(
            f"box.cfg{{listen='{HOST}:{port}', work_dir='{folder}'}}\nbox.schema.user.grant('guest','super')"
        )
        with daemon(["tarantool", script], port):
            dialogue(
                port, count, [request(64, b"\x80"), request(8, evaluate), request(64, b"\x80")], greeted=True
            )


@exchange("mongodb")
def mongodb(port: int, count: int) -> None:
    """PyMongo, and a server that knows no more than `hello`, `ping` and how to answer the rest with ok."""
    import bson
    import pymongo

    hello = {
        "ismaster": True, "isWritablePrimary": True, "helloOk": True, "maxBsonObjectSize": 16_777_216,
        "maxMessageSizeBytes": 48_000_000, "maxWriteBatchSize": 100_000, "minWireVersion": 0,
        "maxWireVersion": 21, "ok": 1.0,
    }  # fmt: skip

    class Server(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            while len(head := self.request.recv(16, socket.MSG_WAITALL)) == 16:
                size, id_, _, code = struct.unpack("<iiii", head)
                self.request.recv(size - 16, socket.MSG_WAITALL)
                body = bson.encode(
                    {**hello, "n": 1, "cursor": {"id": 0, "ns": "shop.orders", "firstBatch": []}}
                )
                if code == 2004:
                    answer = struct.pack("<iqii", 8, 0, 0, 1) + body
                else:
                    answer = struct.pack("<iB", 0, 0) + body
                self.request.sendall(
                    struct.pack("<iiii", len(answer) + 16, id_, id_, 1 if code == 2004 else 2013) + answer
                )

    def client(number: int) -> None:
        with pymongo.MongoClient(
            HOST, port, directConnection=True, serverSelectionTimeoutMS=3000
        ) as connection:
            connection.shop.orders.insert_one({"_id": number, "name": "book"})
            list(connection.shop.orders.find({"name": "book"}))

    server = socketserver.ThreadingTCPServer((HOST, port), Server)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    each(count, client)
    server.shutdown()
    server.server_close()


@exchange("etcd")
def etcd(port: int, count: int) -> None:
    """gRPC: protocol buffers in HTTP/2."""
    with scratch() as folder:
        where = f"http://{HOST}:{port}"
        server = ["etcd", "--data-dir", folder / "data", "--listen-client-urls", where, "--advertise-client-urls", where,
                  "--listen-peer-urls", f"http://{HOST}:{port + 5000}"]  # fmt: skip
        with daemon(server, port):
            command_each(count, ["etcdctl", f"--endpoints={where}", "put", "order%N", "book"])
        shutil.rmtree(folder / "data", ignore_errors=True)
