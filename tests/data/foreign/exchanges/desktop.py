"""Screens, sound, debuggers and small devices."""

from __future__ import annotations

import os
import socket
import struct

from exchanges.stage import HOST, command_each, daemon, dialogue, each, exchange, hear, scratch, served

X_PORT = 6000


@exchange("x11")
def x11(port: int, count: int) -> None:
    """An X server listens on 6000 and its display, so the display makes the port."""
    display = port - X_PORT
    server = f"Xvfb :{display} -listen tcp -nolisten unix -nolisten local -ac -noreset -maxclients 512"
    with daemon(server, port):
        command_each(count - count // 2, f"xdpyinfo -display {HOST}:{display}")
        command_each(count // 2, f"xwininfo -root -tree -display {HOST}:{display}")


@exchange("vnc")
def vnc(port: int, count: int) -> None:
    def client(_: int) -> None:
        with socket.create_connection((HOST, port), timeout=5) as stream:
            for words in (b"", b"RFB 003.008\n", b"\x01", b"\x01"):
                stream.sendall(words)
                hear(stream)
            stream.sendall(struct.pack(">BxHi", 2, 1, 0))
            for incremental in (0, 1):
                stream.sendall(struct.pack(">BBHHHH", 3, incremental, 0, 0, 64, 48))
                stream.sendall(struct.pack(">BBHHBBHI", 5, 0, 9, 9, 4, 1, 0, 0x61))
                hear(stream)

    with scratch() as folder:
        options = f"-SecurityTypes None -localhost -rfbport {port} -geometry 320x200 -AlwaysShared"
        with daemon(f"Xtigervnc :77 {options}", port, env={**os.environ, "HOME": str(folder)}):
            each(count, client)


@exchange("pulseaudio")
def pulseaudio(port: int, count: int) -> None:
    """Five words of four bytes, the first a length."""
    with scratch() as folder:
        env = {**os.environ, "HOME": str(folder), "XDG_RUNTIME_DIR": str(folder), "PULSE_SERVER": ""}
        os.environ["PULSE_COOKIE"] = str(folder / "cookie")
        tcp = f"--load='module-native-protocol-tcp port={port} listen={HOST} auth-anonymous=1'"
        options = "-n --daemonize=no --exit-idle-time=-1 --use-pid-file=no --disable-shm=yes"
        with daemon(f"pulseaudio {options} {tcp} --load=module-null-sink", port, env):
            command_each(count, f"pactl -s tcp:{HOST}:{port} list sinks")


served(
    "mpd",
    "mpd --no-daemon {settings}",
    [b"status\n", b"stats\n", b"commands\n", b"close\n"],
    'bind_to_address "{host}"\nport "{port}"\nlog_file "{folder}/log"\nmax_connections "300"\n'
    'audio_output {{\n type "null"\n name "none"\n}}\n',
    greeted=True,
)


@exchange("gdb")
def gdb(port: int, count: int) -> None:
    """A debugger's packets between `$` and `#`; the server takes one at a time."""

    def packet(words: bytes) -> bytes:
        return b"$%s#%02x" % (words, sum(words) % 256)

    words = [b"+" + packet(b"qSupported:multiprocess+"), b"+" + packet(b"?"), b"+" + packet(b"g")]
    for _ in range(count):
        with daemon(["gdbserver", "--multi", "--once", f"{HOST}:{port}"], port):
            dialogue(port, 1, words)
