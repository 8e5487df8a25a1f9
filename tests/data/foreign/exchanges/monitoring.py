"""Monitoring, measuring, routing, logs and industry."""

from __future__ import annotations

import struct
import subprocess
import threading
import time
import zlib

from exchanges.stage import HOST, command_each, daemon, each, exchange, scratch, served, split


@exchange("snmp")
def snmp(port: int, count: int) -> None:
    with scratch() as folder:
        settings = folder / "snmpd.conf"
        settings.write_text(f"agentaddress tcp:{HOST}:{port}\nrocommunity public\n")
        with daemon(["snmpd", "-f", "-Lo", "-C", "-c", settings, "-p", folder / "pid"], port):
            command_each(count, ["snmpwalk", "-v2c", "-c", "public", f"tcp:{HOST}:{port}", "1.3.6.1.2.1.1"])


served(
    "zabbix",
    "zabbix_agentd -f -c {settings}",
    [b"ZBXD\x01" + struct.pack("<Q", 13) + b"agent.version"],
    "ListenPort={port}\nListenIP={host}\nServer={host}\nLogType=file\nLogFile={folder}/log\nPidFile={folder}/pid\n"
    "AllowRoot=1\nStartAgents=3\n",
)

NRPE = struct.pack(">hhIh", 2, 1, 0, 0) + b"_NRPE_CHECK".ljust(1024, b"\0") + bytes(2)
served(
    "nrpe",
    "nrpe -n -f -c {settings}",
    [NRPE[:4] + struct.pack(">I", zlib.crc32(NRPE)) + NRPE[8:]],
    "server_port={port}\nserver_address={host}\nallowed_hosts={host}\nnrpe_user=nobody\nnrpe_group=nogroup\n"
    "pid_file={folder}/pid\ncommand[x]=/bin/true\n",
)
served(
    "munin",
    "munin-node --config {settings}",
    [b"version\n", b"nodes\n", b"cap multigraph\n", b"quit\n"],
    "host_name shop.test\nhost {host}\nport {port}\nallow ^127\\..*$\nbackground 0\nsetsid 0\nuser root\ngroup root\nlog_file {folder}/log\npid_file {folder}/pid\n",
    greeted=True,
    patience=2,
)

SYSLOG = [
    b"<34>1 2024-01-01T00:00:00Z shop app - ID%N - order\n",
    b"49 <34>1 2024-01-01T00:00:00Z shop app - - - a book\n",
]
served(
    "syslog",
    "rsyslogd -n -f {settings} -i {folder}/pid",
    SYSLOG * 3,
    'module(load="imtcp" MaxSessions="500")\ninput(type="imtcp" port="{port}" address="{host}")\n*.* {folder}/log\n',
    patience=0.02,
)
served(
    "gps",
    "gpsd -N -n -F {folder}/control -S {port}",
    [b"?VERSION;\r\n", b'?WATCH={"enable":true,"json":true};\r\n', b"?DEVICES;\r\n", b"?POLL;\r\n"],
    greeted=True,
)


@exchange("iperf")
def iperf(port: int, count: int) -> None:
    with daemon(["iperf3", "-s", "-B", HOST, "-p", port], port):
        for _ in range(count):
            words = ["iperf3", "-c", HOST, "-p", str(port), "-n", "20K", "-l", "4K"]
            subprocess.run(words, capture_output=True, timeout=20, check=False)


@exchange("bgp")
def bgp(port: int, count: int) -> None:
    """Two daemons of BIRD; each connection is a start of the second one."""
    with scratch() as folder:
        for name, own, peer, passive in (("one", HOST, "127.0.0.2", "on"), ("two", "127.0.0.2", HOST, "off")):
            routes = "".join(
                f" route 10.{net}.0.0/16 blackhole;\n" for net in range(20 if name == "one" else 9)
            )
            (folder / f"{name}.conf").write_text(
                f"router id {own};\nprotocol device {{}}\nprotocol static {{ ipv4; \n{routes}}}\n"
                f"protocol bgp shop {{ local {own} port {port} as {64500 + (name == 'two')};\n"
                f" neighbor {peer} port {port} as {64500 + (name == 'one')}; multihop; strict bind on; passive {passive};\n"
                f" connect delay time 1; connect retry time 1; error wait time 1,2;\n"
                f" ipv4 {{ import all; export all; }}; }}\n"
            )

        def bird(name: str) -> list[str]:
            return split(f"bird -f -c {folder}/{name}.conf -s {folder}/{name}.ctl -P {folder}/{name}.pid")

        with daemon(bird("one"), port):
            for _ in range(min(count, 40)):
                with subprocess.Popen(bird("two"), stderr=subprocess.DEVNULL) as second:
                    time.sleep(2.2)
                    second.terminate()


@exchange("modbus")
def modbus(port: int, count: int) -> None:
    """Pymodbus on both ends: an id, a protocol of zero, a length of two bytes."""
    from pymodbus.client import ModbusTcpClient
    from pymodbus.datastore import ModbusDeviceContext, ModbusSequentialDataBlock, ModbusServerContext
    from pymodbus.server import ServerStop, StartTcpServer

    def client(number: int) -> None:
        stream = ModbusTcpClient(HOST, port=port)
        stream.connect()
        stream.read_holding_registers(1, count=number % 40 + 1)
        stream.write_register(1, number)
        stream.read_coils(1, count=8)
        stream.close()

    block = ModbusSequentialDataBlock(1, [17] * 100)
    context = ModbusServerContext(ModbusDeviceContext(hr=block, co=block), single=True)
    threading.Thread(
        target=StartTcpServer, args=(context,), kwargs={"address": (HOST, port)}, daemon=True
    ).start()
    time.sleep(1)
    each(count, client)
    ServerStop()


@exchange("opc-ua")
def opc_ua(port: int, count: int) -> None:
    """Asyncua on both ends: three letters, a flag, a length of four bytes, little-endian."""
    import asyncio

    from asyncua import Client, Server

    async def talk() -> None:
        server = Server()
        await server.init()
        server.set_endpoint(f"opc.tcp://{HOST}:{port}/shop")
        async with server:
            for _ in range(count):
                async with Client(f"opc.tcp://{HOST}:{port}/shop") as client:
                    await client.nodes.root.get_children()

    asyncio.run(talk())
