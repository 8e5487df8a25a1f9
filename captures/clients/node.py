"""Starts a node of the cluster anew that a client ended, and ends it with the client."""

import contextlib
import os
import shlex
import socket
import subprocess
import time


@contextlib.contextmanager
def restart(number, seconds=30):
    """Run node `number` again; its command stands in NODE_COMMAND_n."""
    with open(f"{os.environ['RUN']}/node-{number}-again.log", "wb") as log:
        process = subprocess.Popen(shlex.split(os.environ[f"NODE_COMMAND_{number}"]), stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + seconds
            while not _open(f"127.0.0.{number}") and time.monotonic() < deadline:
                time.sleep(0.5)
            time.sleep(2)
            yield
        finally:
            process.terminate()
            process.wait(20)


def _open(host):
    with contextlib.suppress(OSError), socket.create_connection((host, 9092), 1):
        return True
    return False
