"""Processes of this user that have files of a folder open, and where processes listen; read from /proc (Linux)."""

import contextlib
import ipaddress
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

_PROC = Path("/proc")
_LISTEN = "0A"  # a socket's state in /proc/net/tcp


def processes_using(folder: Path) -> list[int]:
    """Return this user's processes, this one left out, that have a file below a folder open."""
    inside = f"{folder}{os.sep}"
    return [
        pid
        for pid in _processes()
        if pid != os.getpid() and any(target.startswith(inside) for target in _open_files(pid))
    ]


def end_processes(folder: Path) -> None:
    """Kill the processes that have a file below a folder open, this one left out."""
    for pid in processes_using(folder):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def listening_beyond_loopback(pids: Sequence[int]) -> list[str]:
    """Return where processes listen for TCP connections beyond loopback, "0.0.0.0:6379 (raylet)"."""
    sockets = dict(_listening())
    found = []
    for pid in pids:
        for target in _open_files(pid):
            inode = target.removeprefix("socket:[").removesuffix("]")
            if inode in sockets and not _is_loopback(sockets[inode][0]):
                address, port = sockets[inode]
                found.append(f"{address}:{port} ({_name(pid)})")
    return found


def _processes() -> Iterator[int]:
    for entry in os.scandir(_PROC):
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and entry.stat().st_uid == os.getuid():
                yield int(entry.name)


def _open_files(pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError):  # it has ended
        for entry in os.scandir(_PROC / str(pid) / "fd"):
            with contextlib.suppress(OSError):
                yield os.readlink(entry.path)


def _name(pid: int) -> str:
    try:
        return (_PROC / str(pid) / "comm").read_text(encoding="utf-8").strip()
    except OSError:
        return "ended"


def _listening() -> Iterator[tuple[str, tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]]]:
    """Yield the inode of every listening TCP socket with its address and port."""
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):  # no IPv6 here
            for line in (_PROC / "net" / table).read_text(encoding="ascii").splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTEN:
                    address, _, port = fields[1].partition(":")
                    yield fields[9], (_address(address), int(port, 16))


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Read an address of /proc/net: words of four bytes, each in the machine's order."""
    words = [int(text[place : place + 8], 16).to_bytes(4, "little") for place in range(0, len(text), 8)]
    return ipaddress.ip_address(b"".join(words))


def _is_loopback(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
