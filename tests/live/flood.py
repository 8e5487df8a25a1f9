"""A stopped `kwsniff live` and more packets than the kernel keeps for it, in a network of their own.

    python flood.py FOLDER PACKETS [ARGUMENT of kwsniff live ...]

Needs root. Sends PACKETS datagrams over loopback while the session is stopped (SIGSTOP), half of them again
once it goes on. Prints as JSON how many were sent; FOLDER/live.err holds what the session said.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from tests.bench import namespace
from tests.live.scenario import _listening

PORT = 27877


def main() -> None:
    folder, count, arguments = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    namespace.enter()
    with (folder / "live.err").open("wb") as err:
        live = subprocess.Popen(
            [sys.executable, "-m", "kwsniff", "live", "--filter", f"udp dst port {PORT}", *arguments],
            stdout=subprocess.DEVNULL, stderr=err,
        )  # fmt: skip
        try:
            _listening(folder / "live.err")
            live.send_signal(signal.SIGSTOP)
            _send(count)
            live.send_signal(signal.SIGCONT)
            time.sleep(2.0)
            _send(count // 2)
            time.sleep(2.0)
            live.send_signal(signal.SIGINT)
            live.wait(20)
        finally:
            live.kill()
    print(json.dumps({"sent": count + count // 2, "exit": live.returncode}))


def _send(count: int) -> None:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        receiver.bind(("127.0.0.1", PORT))
        for number in range(count):
            sender.sendto(bytes(200), ("127.0.0.1", PORT))
            if not number % 200:
                time.sleep(0.01)


if __name__ == "__main__":
    main()
