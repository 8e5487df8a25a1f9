"""The web, calls over it, and proxies."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request

from exchanges.stage import HOST, command_each, daemon, dialogue, each, exchange, scratch, served


@exchange("http")
def http1(port: int, count: int) -> None:
    with scratch() as folder:
        settings = folder / "nginx.conf"
        (folder / "page").write_bytes(bytes(range(256)) * 200)
        settings.write_text(
            f"daemon off; pid {folder}/pid; error_log stderr; user root; events {{}}\nhttp {{ access_log off; server {{\n"
            f"listen {HOST}:{port}; root {folder}; location /api {{ return 200 '{{}}'; }} }} }}"
        )
        with daemon(["nginx", "-c", settings, "-p", folder], port):
            urls = [f"http://{HOST}:{port}/{path}" for path in ("page", "missing", "api?order=%N")]
            command_each(count, ["curl", "-s", "-d", "order=book", *urls])


@exchange("http2")
def http2(port: int, count: int) -> None:
    with scratch() as folder:
        (folder / "page").write_bytes(bytes(range(256)) * 30)
        with daemon(["nghttpd", "--no-tls", "-a", HOST, "-d", folder, port], port):
            command_each(
                count, ["nghttp", "-n", f"http://{HOST}:{port}/page", f"http://{HOST}:{port}/missing"]
            )


@exchange("websocket")
def websocket(port: int, count: int) -> None:
    import websockets

    async def echo(stream: websockets.ServerConnection) -> None:
        async for message in stream:
            await stream.send(message)

    async def client(number: int) -> None:
        async with websockets.connect(f"ws://{HOST}:{port}/orders") as stream:
            for message in ("order", bytes([number % 256]) * 300, "book" * 40):
                await stream.send(message)
                await stream.recv()

    async def talk() -> None:
        async with websockets.serve(echo, HOST, port):
            for number in range(count):
                await client(number)

    asyncio.run(talk())


@exchange("tls")
def tls(port: int, count: int) -> None:
    with scratch() as folder:
        key, cert = f"{folder}/key.pem", f"{folder}/cert.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert,
             "-subj", "/CN=localhost", "-days", "1"], check=True, capture_output=True,
        )  # fmt: skip
        server = http.server.ThreadingHTTPServer((HOST, port), http.server.SimpleHTTPRequestHandler)
        inside = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        inside.load_cert_chain(cert, key)
        server.socket = inside.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        outside = ssl._create_unverified_context()

        def client(_: int) -> None:
            with contextlib.suppress(urllib.error.HTTPError):
                urllib.request.urlopen(f"https://{HOST}:{port}/missing", context=outside)

        each(count, client)
        server.shutdown()


@exchange("thrift")
def thrift(port: int, count: int) -> None:
    """Thrift in frames with a length of four bytes."""
    import thriftpy2
    from thriftpy2.rpc import make_client, make_server
    from thriftpy2.transport import TFramedTransportFactory

    with scratch() as folder:
        path = folder / "ping.thrift"
        path.write_text("service Ping { string ping(1: string text), i32 add(1: i32 a, 2: i32 b) }")
        ping = thriftpy2.load(str(path), module_name="ping_thrift")

    class Handler:
        def ping(self, text: str) -> str:
            return text

        def add(self, a: int, b: int) -> int:
            return a + b

    def client(number: int) -> None:
        stream = make_client(ping.Ping, HOST, port, trans_factory=TFramedTransportFactory())
        for step in range(5):
            stream.ping("hello" * step)
            stream.add(step, number)
        stream.close()

    server = make_server(ping.Ping, Handler(), HOST, port, trans_factory=TFramedTransportFactory())
    threading.Thread(target=server.serve, daemon=True).start()
    time.sleep(0.5)
    each(count, client)


@exchange("grpc")
def grpc_calls(port: int, count: int) -> None:
    from concurrent.futures import ThreadPoolExecutor

    import grpc

    def answer(call: object) -> object:
        return grpc.unary_unary_rpc_method_handler(lambda asked, _: asked * 3)

    class Any(grpc.GenericRpcHandler):
        def service(self, call: object) -> object:
            return answer(call)

    server = grpc.server(ThreadPoolExecutor(4), handlers=(Any(),))
    server.add_insecure_port(f"{HOST}:{port}")
    server.start()
    for number in range(count):
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
        with grpc.insecure_channel(f"{HOST}:{port}", options) as channel:
            for step in range(3):
                channel.unary_unary("/shop.Orders/Get")(
                    b"\x0a\x05order" + bytes([number % 100, step]), timeout=5
                )
    server.stop(0)


served(
    "proxy",
    "squid -N -f {settings}",
    [b"GET http://127.0.0.1:9/order%N HTTP/1.1\r\nHost: x\r\n\r\n", b"CONNECT 127.0.0.1:9 HTTP/1.1\r\n\r\n"],
    "http_port {host}:{port}\nhttp_access allow all\ncache deny all\naccess_log none\ncache_log /dev/null\n"
    "pid_filename {folder}/pid\ncoredump_dir {folder}\nvisible_hostname shop.test\nshutdown_lifetime 1 second\n"
    "max_filedescriptors 1024\npinger_enable off\n",
)


@exchange("socks")
def socks(port: int, count: int) -> None:
    with scratch() as folder:
        settings = folder / "danted.conf"
        rule = "{ from: 0.0.0.0/0 to: 0.0.0.0/0 }"
        settings.write_text(
            f"internal: {HOST} port = {port}\nexternal: lo\nsocksmethod: none\nclientmethod: none\n"
            f"user.privileged: root\nuser.unprivileged: nobody\nclient pass {rule}\nsocks pass {rule}\n"
        )
        asked = b"\x05\x01\0\x01\x7f\0\0\x01" + port.to_bytes(2)
        with daemon(["danted", "-f", settings, "-p", folder / "pid"], port):
            dialogue(port, count, [b"\x05\x01\0", asked])
