"""Ports of nodes that pods take, as resources of the nodes: as many pods fit as kube-scheduler lets in.

Two pods conflict over a port of one protocol if one of them takes it on every address, or both on the same.
So a node offers as many pieces of it as there are addresses; who takes every address takes all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import sha256

from planner.read.kube.pods.constraints import HOST_PORT
from planner.read.kube.pods.pod_rules import Ignorable
from planner.read.kube.records import HostPort, KubeGang, KubeNode, KubePod
from planner.read.kube.shares import by_age, even_share, hold

DOMAIN = "hostport.gangplan.dev/"
"""Of the names of these resources, which exist in plans alone: ``hostport.gangplan.dev/tcp-8080``."""

MAX_NAMES = 200
"""Most different ports, with their addresses, that gangs of a plan ask for."""
BEYOND_SHARE = Ignorable(
    f"{HOST_PORT}s beyond the share of its namespace of the {MAX_NAMES} that a plan counts",
    HOST_PORT,
)

_IPV4 = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}")

Port = tuple[str, int]
"""(protocol, number)."""


def count_host_ports(
    gangs: Sequence[KubeGang], pods: Iterable[KubePod], nodes: Iterable[KubeNode]
) -> None:
    """Let pods request, and nodes offer, the ports that gangs ask for."""
    wanted = _hold_beyond_share(gangs)
    if not wanted:
        return
    users = [pod for pod in pods if pod.host_ports and pod.finished is None]
    addresses: dict[Port, set[str]] = {port: set() for port in wanted}
    for pod in users:
        for one in pod.host_ports:
            if one.address and one.key in addresses:
                addresses[one.key].add(one.address)
    for pod in users:
        asked: dict[str, int] = {}
        for one in pod.host_ports:
            if one.key in addresses:
                of_all = len(addresses[one.key]) or 1
                name = _name(one.key)
                asked[name] = min(of_all, asked.get(name, 0) + (1 if one.address else of_all))
                if one.address:
                    asked[_name(one.key, one.address)] = 1
        pod.requests = dict(sorted((pod.requests | asked).items()))
    offered = {_name(port): len(own) or 1 for port, own in addresses.items()}
    offered |= {_name(port, one): 1 for port, own in addresses.items() for one in own}
    for node in nodes:
        others = {k: v for k, v in node.allocatable.items() if not k.startswith(DOMAIN)}
        node.allocatable = others | offered


def _hold_beyond_share(gangs: Sequence[KubeGang]) -> set[Port]:
    """The ports that gangs may ask for. The youngest gangs beyond the share of a namespace are held."""
    own: dict[str, list[tuple[KubeGang, set[HostPort]]]] = {}
    for gang in sorted(gangs, key=by_age):
        if ports := {one for pod in gang.pods() for one in pod.host_ports}:
            own.setdefault(gang.namespace, []).append((gang, ports))
    needs = [len(set[HostPort]().union(*(ports for _, ports in found))) for found in own.values()]
    share = even_share(needs, MAX_NAMES)
    wanted: set[Port] = set()
    for found in own.values():
        taken: set[HostPort] = set()
        for gang, ports in found:
            if len(taken | ports) <= share:
                taken |= ports
                continue
            hold(gang, BEYOND_SHARE)
        wanted |= {one.key for one in taken}
    return wanted


def _name(port: Port, address: str = "") -> str:
    """The resource of a port, or of a port on one address."""
    name = f"{DOMAIN}{port[0].lower()}-{port[1]}"
    if not address:
        return name
    plain = _IPV4.fullmatch(address) is not None
    return f"{name}-{address if plain else sha256(address.encode()).hexdigest()[:8]}"
