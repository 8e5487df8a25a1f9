"""Message brokers and chat."""

from __future__ import annotations

import contextlib
import os
import struct
import subprocess
from collections.abc import Iterator

from exchanges.stage import HOST, command_each, daemon, dialogue, each, exchange, scratch, served


@exchange("mqtt")
def mqtt(port: int, count: int) -> None:
    with scratch() as folder:
        settings = folder / "mosquitto.conf"
        settings.write_text(f"listener {port} {HOST}\nallow_anonymous true\n")
        with daemon(["mosquitto", "-c", settings], port):
            publish = ["mosquitto_pub", "-h", HOST, "-p", port, "-t", "orders/%N", "-m", "book", "-q", 2]
            command_each(count - count // 2, [*publish, "--repeat", "4"])
            command_each(count // 2, [*publish, "-V", "5", "-r"])


@contextlib.contextmanager
def rabbitmq(port: int, plugins: str = "") -> Iterator[None]:
    """Run RabbitMQ with its own node name and folders, and these plugins."""
    with scratch() as folder:
        (folder / "plugins").write_text(f"[{plugins}].\n")
        own = {
            "RABBITMQ_NODENAME": f"kw{port}@localhost", "RABBITMQ_MNESIA_BASE": str(folder), "HOME": str(folder),
            "RABBITMQ_LOG_BASE": str(folder), "RABBITMQ_NODE_PORT": str(port), "ERL_EPMD_PORT": str(port + 6000),
            "RABBITMQ_DIST_PORT": str(port + 5000), "RABBITMQ_NODE_IP_ADDRESS": HOST,
            "RABBITMQ_CONFIG_FILE": str(folder / "none"), "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
        }  # fmt: skip
        with daemon(["/usr/lib/rabbitmq/bin/rabbitmq-server"], port, env={**os.environ, **own}):
            yield
            subprocess.run(["epmd", "-port", str(port + 6000), "-kill"], check=False, capture_output=True)


@exchange("amqp")
def amqp(port: int, count: int) -> None:
    import pika

    def client(number: int) -> None:
        connection = pika.BlockingConnection(pika.ConnectionParameters(HOST, port))
        channel = connection.channel()
        channel.queue_declare(f"orders{number % 9}", auto_delete=True)
        for _ in range(3):
            channel.basic_publish("", f"orders{number % 9}", b"book")
        channel.basic_get(f"orders{number % 9}", auto_ack=True)
        connection.close()

    with rabbitmq(port):
        each(count, client)


@exchange("amqp-1.0")
def amqp_1(port: int, count: int) -> None:
    """Frames with a length of four bytes: SASL, then open, begin and end."""

    def frame(kind: int, performative: int, fields: bytes) -> bytes:
        body = b"\0\x53" + bytes([performative, 0xC0, len(fields)]) + fields
        return struct.pack(">IBBH", len(body) + 8, 2, kind, 0) + body

    def text(code: int, words: bytes) -> bytes:
        return bytes([code, len(words)]) + words

    words = [
        b"AMQP\3\1\0\0",
        frame(1, 0x41, b"\x02" + text(0xA3, b"PLAIN") + text(0xA0, b"\0guest\0guest")),
        b"AMQP\0\1\0\0",
        frame(0, 0x10, b"\x02" + text(0xA1, b"order-%N") + text(0xA1, b"shop")),
        frame(0, 0x11, b"\x04\x40\x43\x52\x7f\x52\x7f"),
        frame(0, 0x17, b"\0"),
        frame(0, 0x18, b"\0"),
    ]
    with rabbitmq(port, "rabbitmq_amqp1_0"):
        dialogue(port, count, words)


ACTIVEMQ = """<beans xmlns="http://www.springframework.org/schema/beans"
 xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:schemaLocation="http://www.springframework.org/schema/beans
 http://www.springframework.org/schema/beans/spring-beans.xsd http://activemq.apache.org/schema/core
 http://activemq.apache.org/schema/core/activemq-core.xsd">
<broker xmlns="http://activemq.apache.org/schema/core" persistent="false" useJmx="false" brokerName="shop"
 dataDirectory="{folder}"><transportConnectors><transportConnector uri="{scheme}://127.0.0.1:{port}"/>
</transportConnectors></broker></beans>"""


def activemq(scheme: str, port: int, count: int, words: list[bytes], greeted: bool) -> None:
    """Say `words` to an ActiveMQ of Debian's package that speaks one protocol."""
    jars = "/usr/share/activemq/lib/*:/usr/share/java/*"
    with scratch() as folder:
        settings = folder / "activemq.xml"
        settings.write_text(ACTIVEMQ.format(folder=folder, scheme=scheme, port=port))
        console = ["org.apache.activemq.console.Main", "start", f"xbean:file:{settings}"]
        with daemon(["java", "-Xmx200m", f"-Dactivemq.data={folder}", "-cp", jars, *console], port):
            dialogue(port, count, words, greeted)


@exchange("stomp")
def stomp(port: int, count: int) -> None:
    words = [
        b"CONNECT\naccept-version:1.2\nhost:shop\n\n\0",
        b"SUBSCRIBE\nid:0\ndestination:/queue/orders%N\n\n\0",
    ]
    words += [b"SEND\ndestination:/queue/orders%N\nreceipt:7\n\nbook\0", b"DISCONNECT\nreceipt:8\n\n\0"]
    activemq("stomp", port, count, words, False)


@exchange("openwire")
def openwire(port: int, count: int) -> None:
    """Each side opens with its wire format in a frame with a length of four bytes."""

    def command(kind: int, id_: int, body: bytes) -> bytes:
        inner = struct.pack(">Bi?", kind, id_, True) + body
        return struct.pack(">i", len(inner)) + inner

    wire = b"ActiveMQ" + struct.pack(">i?ii", 12, True, 4, 0)
    info = struct.pack(">i", len(wire) + 1) + b"\x01" + wire
    alive = [command(10, id_, b"") for id_ in range(1, 5)]
    activemq("tcp", port, count, [info, *alive], True)


served(
    "nats",
    "nats-server -a {host} -p {port}",
    [
        b'CONNECT {"verbose":true,"name":"order%N"}\r\n', b"SUB orders.> 1\r\n", b"PUB orders.new 4\r\nbook\r\n",
        b"PING\r\n",
    ],
    greeted=True,
)  # fmt: skip
served(
    "beanstalk",
    "beanstalkd -l {host} -p {port}",
    [b"use orders\r\n", b"put 0 0 60 4\r\nbook\r\n", b"watch orders\r\n", b"reserve\r\n", b"stats\r\n"],
)

GEARMAN = ((16, b"hello"), (1, b"print"), (9, b""), (18, b"print\0%N\0book"), (30, b""))
served(
    "gearman",
    "gearmand -L {host} -p {port} -l {folder}/log -u root -P {folder}/pid",
    [b"\0REQ" + struct.pack(">II", kind, len(body)) + body for kind, body in GEARMAN],
)


@exchange("zeromq")
def zeromq(port: int, count: int) -> None:
    import zmq

    context = zmq.Context()
    server = context.socket(zmq.ROUTER)
    server.bind(f"tcp://{HOST}:{port}")
    for number in range(count):
        client = context.socket(zmq.REQ)
        client.connect(f"tcp://{HOST}:{port}")
        for _ in range(3):
            client.send(b"order %d" % number)
            server.send_multipart(server.recv_multipart())
            client.recv()
        client.close()
    server.close()
    context.term()


served(
    "xmpp",
    "prosody --config {settings} -F",
    [
        b"<?xml version='1.0'?><stream:stream to='shop.test' xmlns='jabber:client' "
        b"xmlns:stream='http://etherx.jabber.org/streams' version='1.0'>",
        b"<iq type='get' id='%N'><query xmlns='jabber:iq:register'/></iq>",
        b"</stream:stream>",
    ],
    "daemonize=false\npidfile='{folder}/pid'\ndata_path='{folder}'\ninterfaces={{'{host}'}}\n"
    "c2s_ports={{{port}}}\nc2s_require_encryption=false\nallow_unencrypted_plain_auth=true\ns2s_ports={{}}\nmodules_disabled={{'s2s'}}\n"
    "prosody_user='root'\nrun_as_root=true\nVirtualHost 'shop.test'\n",
)
served(
    "irc",
    "ngircd -n -f {settings}",
    [
        b"NICK order%N\r\nUSER order 0 * :orders\r\n",
        b"JOIN #shop\r\n",
        b"PRIVMSG #shop :a book\r\n",
        b"QUIT\r\n",
    ],
    "[Global]\nName = irc.shop.test\nInfo = shop\nListen = {host}\nPorts = {port}\n"
    "PidFile = {folder}/pid\n[Limits]\nMaxConnectionsIP = 0\n[Options]\nIdent = no\nPAM = no\nDNS = no\n",
)
