"""Where the metrics are to be had: an HTTP server that answers scrapes and nothing else.

It stands beside a capture on a host that has other work to do, so it takes few connections at a time and
lets none of them stay: a scraper asks a few times a minute.
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from kwsniff.live.sink import LiveError

LOOPBACK = "127.0.0.1"
MAX_REQUESTS = 4
"""Connections served at a time; further ones are closed at once."""
TIMEOUT_S = 5.0
"""How long a client may take to send its request, or to take a piece of the answer."""

_ADDRESS = re.compile(
    r"(?:\[(?P<bracketed>[^\]]*)\]|(?P<host>[^:\[\]]*)):(?P<port>\d{1,5})|(?P<only>\d{1,5})"
)


class MetricsError(LiveError):
    """The metrics cannot be served there: one line that says why."""


def parsed(address: str) -> tuple[str, int]:
    """Host and port of `host:port`, `[IPv6]:port`, or `:port` or `port`, which mean the loopback address.

    Raises:
        MetricsError: it is none of these.
    """
    found = _ADDRESS.fullmatch(address.strip())
    port = int(found["port"] or found["only"]) if found else -1
    if found is None or not 0 <= port <= 65535:
        raise MetricsError(f"{address!r} is no ADDR:PORT such as :9308 or 0.0.0.0:9308")
    return found["bracketed"] or found["host"] or LOOPBACK, port


class _Handler(WSGIRequestHandler):
    timeout = TIMEOUT_S

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the base names it so
        """Say nothing: standard error belongs to the session."""


class _Server(WSGIServer):
    """A thread for each request, up to `MAX_REQUESTS`."""

    def __init__(self, *arguments: Any) -> None:
        self._places = threading.Semaphore(MAX_REQUESTS)
        super().__init__(*arguments)

    def server_bind(self) -> None:
        # The base asks DNS for the name of this host, which may take long and serves nothing here.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        worker = threading.Thread(
            target=self._serve, args=(request, client_address), name="metrics-request", daemon=True
        )
        worker.start()

    def _serve(self, request: Any, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except OSError:
            pass  # the client went away, or was too slow
        finally:
            self.shutdown_request(request)
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A scrape that fails is the scraper's to report."""


class _Server6(_Server):
    address_family = socket.AF_INET6


class Endpoint:
    """Serves a WSGI application until `close`."""

    def __init__(self, address: str, application: Callable[..., Any]) -> None:
        """Listen on `address`.

        Raises:
            MetricsError: the address is none, cannot be had, or is taken.
        """
        host, port = parsed(address)
        try:
            family, *_, found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            server = _Server6 if family == socket.AF_INET6 else _Server
            self._server = make_server(str(found[0]), port, application, server, _Handler)
        except OSError as error:
            raise MetricsError(f"cannot serve metrics on {address}: {error.strerror or error}") from None
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.2}, name="metrics", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """Where to scrape; with the port that the system chose if port 0 was asked for."""
        host, port = self._server.server_address[:2]
        return f"http://[{host!s}]:{port}/metrics" if ":" in str(host) else f"http://{host!s}:{port}/metrics"

    def close(self) -> None:
        """Stop listening. May be called again."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()
