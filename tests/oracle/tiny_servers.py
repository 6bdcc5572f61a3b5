"""Random tiny clusters: server models of every fabric, NICs, levels, labels, taints, sick GPUs.

Promises: deterministic by the draws; at most 4 servers and 20 GPUs; names are those the readers accept.
Called by the generator of tiny instances.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from random import Random

from building import mask
from building_servers import links, nvl, pairs4, pcie, ring4, switched, v100
from tiny_draws import Draws

from models.documents.cluster import Level
from models.hardware import Nic, ServerModel
from models.instance.cluster import Cluster, Node, Taint

SPEEDS = (10_000, 25_000, 100_000, 200_000, 400_000)
"""Line rates in Mbit/s."""


def draw_cluster(draws: Draws) -> Cluster:
    """Servers of one family (or two), under no to two levels."""
    r = draws.random("servers")
    models = _servers(draws, r)
    levels = _levels(draws, models)
    nodes = tuple(_node(draws, i, model, levels) for i, model in enumerate(models))
    return Cluster("tiny", levels, nodes)


def draw_small_cluster(draws: Draws) -> Cluster:
    """2 to 4 servers with at most 12 GPUs in all, under no to two levels; wide: 4 with at most 16."""
    r = draws.random("servers")
    first, count = r.choice(
        (
            (switched(2), r.randint(3, 4)),
            (switched(2), r.randint(3, 4)),
            (switched(4), r.randint(2, 3)),
            (switched(4), r.randint(2, 3)),
            (nvl(2, r.randint(2, 3)), r.randint(3, 4)),
            (pcie(r.choice((2, 3))), r.randint(2, 4)),
            (ring4(), r.randint(2, 3)),
            (pairs4(), r.randint(2, 3)),
        )
    )
    models = [_named(draws, first, "a")] * (4 if draws.asked("wide") else count)
    other = _named(draws, r.choice((switched(2), pcie(3), ring4(), pairs4())), "b")
    same_gpu = r.random() < 0.5
    if draws.on("mixed", r, 0.15):
        models[-1] = replace(other, gpu=first.gpu) if same_gpu else other
    r.shuffle(models)
    servers: list[ServerModel | None] = list(models)
    if draws.on("cpu_nodes", r, 0.06):
        servers.append(None)
    levels = _levels(draws, servers)
    nodes = tuple(_node(draws, i, model, levels) for i, model in enumerate(servers))
    return Cluster("busy", levels, nodes)


def _servers(draws: Draws, r: Random) -> list[ServerModel | None]:
    family = r.choice(
        ("v100", "v100", "ring", "pairs", "quad", "switched", "switched", "pcie", "nvl")
    )
    first = _model(draws, family, "a")
    count = r.randint(1, 2) if first.gpus == 8 and not first.switched else r.randint(2, 4)
    if first.gpus == 8 and first.switched:
        count = min(count, 3)
    wide = r.randint(5, 8)
    if draws.asked("wide") and first.switched:  # meshes would take minutes to try in full
        count = wide
    models: list[ServerModel | None] = [first] * count
    other = r.choice(("ring", "pairs", "switched", "pcie"))
    if draws.on("mixed", r, 0.25):
        # The same GPU model in another server, or another one: both are of interest to rule 5.
        second = _model(draws, other, "b")
        second = replace(second, gpu=first.gpu) if r.random() < 0.4 else second
        models[-1] = second
        models.insert(0, first)
        models = models[-4:]
    if draws.on("cpu_nodes", r, 0.12):
        models.append(None)
    r.shuffle(models)
    return models


def _model(draws: Draws, family: str, suffix: str) -> ServerModel:
    r = draws.random(f"model/{suffix}")
    size = r.choice((2, 4, 4, 8))
    small = r.choice((2, 4))
    trays = r.randint(2, 3)
    if family == "v100":
        model = v100()
    elif family == "ring":
        model = ring4()
    elif family == "pairs":
        model = pairs4()
    elif family == "quad":
        quad = {(a, b): "NV4" for a in range(4) for b in range(a + 1, 4)}
        model = replace(
            pairs4(), name="quad", fabric="direct", matrix=links(4, quad, "SYS"), links_per_gpu=12
        )
    elif family == "switched":
        model = switched(size)
    elif family == "pcie":
        model = pcie(r.randint(2, 4))
    else:
        model = nvl(small, trays)
    nics = _nics(r, model.gpus)
    if draws.on("nics", r, 0.75):
        model = replace(model, nics=nics)
    return replace(model, name=f"{model.name} {suffix}")


def _named(draws: Draws, model: ServerModel, suffix: str) -> ServerModel:
    """The model with NICs of its own and a name of its own."""
    r = draws.random(f"named/{suffix}")
    nics = _nics(r, model.gpus)
    changed = replace(model, nics=nics) if draws.on("nics", r, 0.75) else model
    return replace(changed, name=f"{model.name} {suffix}")


def _nics(r: Random, gpus: int) -> tuple[Nic, ...]:
    """None, one near all, one a GPU, one a pair, one near a half, two of unlike speed, one near one."""
    half, speed = gpus // 2, r.choice(SPEEDS)
    lower, upper = tuple(range(half)), tuple(range(half, gpus))
    choices: tuple[tuple[Nic, ...], ...] = (
        (),
        (Nic("eth0", speed),),
        tuple(Nic(f"ib{i}", speed, (i,)) for i in range(gpus)),
        tuple(Nic(f"ib{i}", speed, (i, i + 1)) for i in range(0, gpus - 1, 2)),
        (Nic("ib0", speed, lower),),
        (Nic("ib0", speed, lower), Nic("ib1", r.choice(SPEEDS), upper)),
        (Nic("ib0", speed, (gpus - 1,)), Nic("eth0", 25_000)),
    )
    return r.choice(choices)


def _levels(draws: Draws, models: list[ServerModel | None]) -> tuple[Level, ...]:
    r = draws.random("levels")
    count = r.choice((0, 1, 1, 2, 2))
    over = [Fraction(r.choice(("1", "1", "1.5", "2", "3", "4"))) for _ in range(2)]
    fabric = r.choice(("block", "rack", "rack", "both", "neither"))
    if "levels" in draws.without:
        return ()
    shared = any(model is not None and model.nvlink_domain_nodes > 1 for model in models)
    levels = [
        Level(
            name,
            f"example.com/{name}",
            over[i] if draws.on("oversubscription", r, 0.8) else Fraction(1),
            nvlink=shared and fabric in (name, "both"),
        )
        for i, name in enumerate(("block", "rack")[2 - count :])
    ]
    r = draws.random("uncounted")
    return tuple(
        replace(level, oversubscription=Fraction(1), nvlink=False, counted=False)
        if draws.on("uncounted", r, 0.12)
        else level
        for level in levels
    )


def _node(draws: Draws, i: int, model: ServerModel | None, levels: tuple[Level, ...]) -> Node:
    r = draws.random(f"node/{i}")
    gpus = model.gpus if model else 0
    domains: list[str | None] = []
    for level in levels:
        domains.append(f"{level.name[0]}{r.randint(1, 2)}")
        if draws.on("gaps", r, 0.08):
            domains[-1] = None
    own = _nics(r, gpus) if gpus else ()
    effect = r.choice(("NoSchedule", "NoExecute", "PreferNoSchedule"))
    sick = r.sample(range(gpus), r.choice((1, 1, 2))) if gpus >= 2 else []
    return Node(
        name=f"n{i + 1}",
        model=model,
        domains=tuple(domains),
        allocatable=_allocatable(draws, r, gpus),
        labels=(("pool", r.choice("aab")), *_size(draws, i)),
        taints=(Taint("dedicated", "infra", effect),) if draws.on("taints", r, 0.12) else (),
        nics=own if draws.on("own_nics", r, 0.12) and gpus else None,
        unschedulable=draws.on("cordons", r, 0.06),
        ready=not draws.on("not_ready", r, 0.04),
        unhealthy=mask(*sick) if draws.on("unhealthy", r, 0.15) else 0,
    )


def _size(draws: Draws, i: int) -> tuple[tuple[str, str], ...]:
    """A label to compare numbers with, on some nodes, and on some no number."""
    r = draws.random(f"size/{i}")
    value = r.choice((None, "1", "2", "3", "large"))
    return (("size", value),) if value is not None and "affinity" not in draws.without else ()


def _allocatable(draws: Draws, r: Random, gpus: int) -> tuple[tuple[str, int], ...]:
    """cpu 8 a GPU, memory 64 GiB a GPU, a few pods: more or less than the gangs ask for."""
    scale = max(gpus, 2)
    amounts = {
        "cpu": r.randint(6, 14) * 1000 * scale,
        "memory": r.randint(48, 112) * 2**30 * scale,
        "pods": r.randint(2, 6),
    }
    return tuple((name, amounts[name]) for name in sorted(amounts) if draws.on("resources", r, 0.3))
