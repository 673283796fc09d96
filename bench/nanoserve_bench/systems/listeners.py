"""The processes of a server on this machine, found by the port on which it listens."""

from __future__ import annotations

import ipaddress
import socket

import psutil

from nanoserve_bench.errors import PlanError


def addresses_of(host: str) -> frozenset[str]:
    """The addresses of a host that are this machine's own.

    Raises:
        PlanError: It is another machine, or nobody knows it.
    """
    try:
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(host, None)}
    except OSError as error:
        raise PlanError(f"the host {host!r} is not known: {error}") from error
    own = {entry.address for entries in psutil.net_if_addrs().values() for entry in entries}
    here = {a for a in found if ipaddress.ip_address(a).is_loopback or a in own}
    if not here:
        raise PlanError(
            f"{host!r} is another machine, and a ratio would be one of machines: run the sweep on "
            "the machine of the server"
        )
    return frozenset(here)


def listening(host: str, port: int) -> tuple[int, ...]:
    """Ids of the processes that listen on a port of this machine; none where that is not told."""
    wanted = addresses_of(host)
    try:
        connections = psutil.net_connections(kind="tcp")
    except psutil.AccessDenied:
        return ()
    return tuple(
        sorted(
            {
                entry.pid
                for entry in connections
                if entry.status == psutil.CONN_LISTEN
                and entry.pid is not None
                and entry.laddr  # an empty tuple where there is none
                and entry.laddr.port == port
                and _covers(entry.laddr.ip, wanted)
            }
        )
    )


def _covers(bound: str, wanted: frozenset[str]) -> bool:
    return bound in wanted or ipaddress.ip_address(bound).is_unspecified
