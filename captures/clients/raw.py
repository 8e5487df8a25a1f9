"""Kafka requests as bytes, for clients that do what libraries don't."""

import contextlib
import socket
import struct


def _request(key, version, correlation_id, client_id, body):
    header = struct.pack(">hhih", key, version, correlation_id, len(client_id)) + client_id
    return struct.pack(">i", len(header + body)) + header + body


def fetch(correlation_id, client_id, topic, max_wait_ms=100, offset=0, size=65536, least=0):
    """Fetch v4 of partition 0 from an offset."""
    body = struct.pack(">iiiibi", -1, max_wait_ms, least, size, 0, 1) + struct.pack(">h", len(topic)) + topic.encode()
    return _request(1, 4, correlation_id, client_id, body + struct.pack(">iiqi", 1, 0, offset, size))


def metadata(correlation_id, client_id, topic):
    """Metadata v1 of one topic."""
    body = struct.pack(">ih", 1, len(topic)) + topic.encode()
    return _request(3, 1, correlation_id, client_id, body)


@contextlib.contextmanager
def connected(address, receive_buffer=None):
    """A connection to `host:port`, with a small receive buffer if that is asked for."""
    host, port = address.rsplit(":", 1)
    with socket.socket() as connection:
        if receive_buffer:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.settimeout(20)
        connection.connect((host, int(port)))
        yield connection


def response(connection):
    """The next response without its length."""
    return _exact(connection, struct.unpack(">i", _exact(connection, 4))[0])


def _exact(connection, size):
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("closed")
        data += more
    return data
