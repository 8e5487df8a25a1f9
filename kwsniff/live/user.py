"""Giving up root's rights once the sockets are open."""

from __future__ import annotations

import os
import pwd

from kwsniff.live.errors import LiveError
from kwsniff.native.code import functions


def become(name: str) -> None:
    """Go on as this user for good (setgroups(2), setgid(2), setuid(2)).

    Raises:
        LiveError: there is no such user, or no right to become it.
    """
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise LiveError(f"--user: there is no user {name!r}") from None
    if functions() is None:  # now: the new user may not be able to read what is installed
        import crc32c  # noqa: F401  what interpreted kernels ask for with the first record batch
    try:
        os.initgroups(entry.pw_name, entry.pw_gid)
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)
    except PermissionError:
        raise LiveError(f"--user: only root can go on as {name}") from None
    os.environ["HOME"] = entry.pw_dir
