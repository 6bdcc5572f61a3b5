"""What Hypothesis draws for several tests: good documents, odd values, NICs and links of a server.

Documents have every field of every kind and are consistent by construction.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from models.hardware import Nic

API = "gangplan.dev/v1alpha1"
Json = dict[str, Any]

LEVELS = ("block", "rack")
SETS = ("web", "cache of images")
NAME = r"[a-z0-9]([a-zA-Z0-9._-]{0,8}[a-z0-9])?"
NAMES = st.from_regex(NAME, fullmatch=True, alphabet=st.characters(max_codepoint=127))
LABELS = st.dictionaries(st.sampled_from(["zone", "example.com/pool", "a.b/c"]), NAMES, max_size=2)
TIMES = st.sampled_from(["2026-11-20T08:00:00Z", "2026-11-21T10:00:00+02:00"])
DECIMALS = st.decimals(0, 1, places=4, allow_nan=False).map(float)
INLINE = {
    "name": "Pair of (2)",
    "gpu": "X1",
    "gpus": 2,
    "fabric": "direct",
    "matrix": [["X", "NV1"], ["NV1", "X"]],
    "linkMBps": 20000,
    "linksPerGpu": 2,
    "numa": [0, None],
    "nics": [{"name": "e", "gbps": 12.5, "gpus": [0]}],
}
GPUS = {"DGX H100": 8, "dgx-1 v100": 8, "Pair of (2)": 2}


LEVEL = st.sampled_from([*LEVELS, "node"])


def some(draw: st.DrawFn, /, **optional: Any) -> Json:  # noqa: ANN401  # strategies and values
    """Some of the fields."""
    return {
        key: draw(optional[key]) if isinstance(optional[key], st.SearchStrategy) else optional[key]
        for key in sorted(draw(st.sets(st.sampled_from(sorted(optional)))))
    }


def quantities(*resources: str) -> st.SearchStrategy[Json]:
    amounts = st.one_of(
        st.integers(0, 10**6),
        st.sampled_from(["1500m", "2Ki", "1.5Gi", "0", "12e3", "7k"]),
        st.decimals(0, 1000, places=3, allow_nan=False).map(float),
    )
    return st.dictionaries(st.sampled_from(resources), amounts, max_size=3)


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Json:
    model = draw(st.sampled_from([None, *GPUS]))
    optional: Json = {
        "domains": st.dictionaries(st.sampled_from(LEVELS), st.sampled_from("abc")),
        "allocatable": quantities("cpu", "memory", "pods", "example.com/x"),
        "unschedulable": st.booleans(),
        "ready": st.booleans(),
        "labels": LABELS,
        "taints": [{"key": "k", "value": draw(NAMES), "effect": "NoExecute"}],
    }
    if model:
        sick = draw(st.sets(st.integers(0, GPUS[model] - 1), max_size=2))
        optional["unhealthyGpus"] = sorted(sick, reverse=True)
        optional["unknownUnhealthy"] = st.integers(0, GPUS[model] - len(sick))
        speed = st.sampled_from([25, 2.5, 0.001, 400])
        optional["nics"] = [{"name": f"e{i}", "gbps": draw(speed)} for i in range(2)]
    return {"name": name, **({"model": model} if model else {}), **some(draw, **optional)}


EXPRESSIONS = st.one_of(
    st.builds(
        lambda operator: {"key": "a.b/c", "operator": operator},
        st.sampled_from(["Exists", "DoesNotExist"]),
    ),
    st.builds(
        lambda operator, values: {"key": "zone", "operator": operator, "values": values},
        st.sampled_from(["In", "NotIn"]),
        st.lists(NAMES, min_size=1, max_size=2),
    ),
    st.just({"key": "zone", "operator": "Gt", "values": ["-3"]}),
    st.just({"key": "metadata.name", "operator": "In", "values": ["n0"], "field": True}),
)
TALK = st.fixed_dictionaries(
    {"pattern": st.sampled_from(["none", "all-to-all"]), "weight": st.just(2)},
    optional={"nvlinkAcrossNodes": st.booleans()},
)


@st.composite
def pod_rules(draw: st.DrawFn) -> Json:
    """Sets of a role, and rules about these sets or its own pods."""
    sets = draw(st.lists(st.sampled_from(SETS), unique=True))
    next_to: Json = {"level": LEVEL, "podSet": st.sampled_from([None, *sets])}
    numbers = {"maxSkew": st.integers(1, 3), "minDomains": st.integers(1, 3)}
    others = st.lists(st.fixed_dictionaries(next_to), max_size=2)
    spreads = st.lists(st.fixed_dictionaries(next_to, optional=numbers), max_size=2)
    return {"podSets": sets, **some(draw, antiAffinity=others, affinity=others, spread=spreads)}


@st.composite
def roles(draw: st.DrawFn, name: str) -> Json:
    least = draw(st.integers(1, 3))
    most, step = least + draw(st.integers(0, 4)), draw(st.integers(1, 3))
    elastic = {"min": least, "max": most, "step": step}
    found = {
        "name": name,
        "replicas": draw(st.sampled_from([least, elastic])),
        "gpus": draw(st.integers(0, 4)),
    }
    found |= some(
        draw,
        requests=quantities("cpu", "memory"),
        topology=st.dictionaries(st.sampled_from(["required", "preferred"]), LEVEL),
        slice=st.fixed_dictionaries({"size": st.integers(1, 4), "required": LEVEL}),
        nodeSelector=LABELS,
        tolerations=[{"key": "k", "operator": "Exists"}, {"key": "k", "value": draw(NAMES)}],
        model=st.sampled_from(["H100", "X1", "none such"]),
        mixModels=st.booleans(),
        nodeAffinity=st.lists(st.lists(EXPRESSIONS, max_size=2), max_size=2),
        firstIndex=st.integers(0, 3),
    )
    if draw(st.booleans()):
        found |= draw(pod_rules())
    piece = found.get("slice")
    if piece and piece["required"] == "node" and draw(st.booleans()):
        widths = [("rack", 2), ("block", 6)][draw(st.integers(0, 1)) :]
        layers = [{"size": piece["size"] * by, "required": level} for level, by in widths]
        found["outerSlices"] = layers
    return found


@st.composite
def gangs(draw: st.DrawFn, name: str) -> Json:
    spec = some(
        draw,
        queue=NAMES,
        priority=st.integers(-5, 5),
        submittedAt=TIMES,
        resizeAfter=TIMES,
        expectedDuration=st.sampled_from(["6h", "1.5h", "90m30.7s", "0s"]),
        preemptible=st.booleans(),
        movable=st.booleans(),
        topology=st.fixed_dictionaries({"required": LEVEL, "minBandwidthShare": DECIMALS}),
        communication=TALK,
    )
    spec["roles"] = [draw(roles(f"r{i}")) for i in range(draw(st.integers(1, 2)))]
    about = {"name": name, "namespace": draw(st.sampled_from(["a", "b"]))}
    return {"apiVersion": API, "kind": "Gang", "metadata": about, "spec": spec}


HOLDS = {"code": st.sampled_from(["Unsupported", "Incomplete"]), "message": NAMES}
STATUSES = st.fixed_dictionaries(
    {},
    optional={
        "hold": st.fixed_dictionaries(HOLDS),
        "startedAt": TIMES,
        "lastCheckpoint": TIMES,
    },
)


def indices(role: Json) -> tuple[int, int]:
    """The first and the last index of its pods."""
    replicas, first = role["replicas"], role.get("firstIndex", 0)
    return first, first + (replicas if isinstance(replicas, int) else replicas["max"]) - 1


@st.composite
def planned(draw: st.DrawFn, gang: Json, cluster: Json) -> Json:
    """Where an earlier plan wanted some of the gang's pods, in any order; no field for nowhere."""
    names = [node["name"] for node in cluster["spec"]["nodes"]]
    if not names:
        return {}
    places = [
        {"role": role["name"], "index": index, "node": draw(st.sampled_from(names))}
        for role in gang["spec"]["roles"]
        for index in draw(st.sets(st.integers(*indices(role)), max_size=2))
    ]
    return {"planned": draw(st.permutations(places))} if places or draw(st.booleans()) else {}


@st.composite
def standing(draw: st.DrawFn, gang: Json, cluster: Json, free: dict[str, list[int]]) -> list[Json]:
    """Pods that exist, on GPUs that are still free; a node is used with or without indices."""
    pods: list[Json] = []
    budgets = cluster["spec"].get("disruptionBudgets", ())
    own = [b["name"] for b in budgets if b["namespace"] == gang["metadata"]["namespace"]]
    for role in gang["spec"]["roles"]:
        for index in sorted(draw(st.sets(st.integers(*indices(role)), max_size=3))):
            pod: Json = {"role": role["name"], "index": index}
            fits = [name for name, gpus in free.items() if len(gpus) >= role["gpus"]]
            if fits and draw(st.booleans()):
                pod["node"] = draw(st.sampled_from(fits))
                held = [free[pod["node"]].pop() for _ in range(role["gpus"])]
                if draw(st.booleans()):
                    pod["gpus"] = held
            else:
                pod["mode"] = "gate"
            if own and draw(st.booleans()):
                pod["budgets"] = draw(st.lists(st.sampled_from(own), unique=True))
            if draw(st.booleans()):
                pod["uid"] = f"u-{gang['metadata']['name']}-{role['name']}-{index}"
            pods.append(pod)
    return pods


@st.composite
def policies(draw: st.DrawFn) -> Json:
    names = ["admission", "waiting", "bandwidth", "span", "defragment", "stability"]
    listed = [
        [{"name": "rack", "label": "r", "oversubscription": 1.5}],
        [{"name": "rack", "domains": {"b": ["n[1-2]x", "n7"], "a": []}}, {"name": "x"}],
    ]
    return some(
        draw,
        objectives=st.lists(st.sampled_from(names), unique=True).map(
            lambda chosen: [{"name": name, "tolerance": 0.25} for name in chosen]
        ),
        mix=st.dictionaries(st.sampled_from(["1", "8", "64"]), st.integers(0, 300)),
        minBandwidthShare=DECIMALS,
        gpuBinding=st.sampled_from(["exact", "none"]),
        nodeSelector=LABELS,
        kubernetes=some(
            draw,
            schedulingGate="example.com/gate",
            gpuResources=["example.com/gpu"],
            levels=st.sampled_from([[], *listed]),
            serverModels=[{"nodeSelector": {"b": "1", "a": ""}, "model": "DGX H100"}],
            ignore=st.sampled_from([[], ["volumeZone", "podAffinity"]]),
            trustSubmittedAt=st.booleans(),
            trustCommunication=st.booleans(),
            nvlinkAcrossNodes=st.sampled_from(["assumed", "claimed"]),
        ),
        moves=some(draw, maxGangs=st.integers(0, 5), maxGPUs=st.integers(0, 64), minGain=DECIMALS),
        disruption=some(
            draw,
            weight=st.sampled_from(["gpus", "lostRuntime"]),
            cap=st.sampled_from(["24h", "90m"]),
        ),
        starvation=st.sampled_from([{"after": "24h"}, {"after": "1h30m"}]),
        now=TIMES,
        solve=some(draw, seed=st.integers(0, 9), budget=3),
    )


@st.composite
def inputs(draw: st.DrawFn) -> list[Json]:
    """One Cluster, a few Gangs, perhaps a Policy."""
    levels: list[Json] = [
        {"name": "block", "oversubscription": draw(st.sampled_from([1, 2.5, 1.25]))},
        {"name": "rack", "label": "example.com/rack", "nvlink": draw(st.booleans())},
    ]
    cluster: Json = {
        "apiVersion": API,
        "kind": "Cluster",
        "metadata": {"name": draw(NAMES), **draw(st.sampled_from([{}, {"uid": "c-1"}]))},
        "spec": {
            "levels": levels,
            "serverModels": [INLINE],
            "nodes": [draw(nodes(f"n{i}")) for i in range(draw(st.integers(0, 4)))],
        },
    }
    budgets = [(namespace, name) for namespace in ("b", "a") for name in ("some", "most")]
    if chosen := draw(st.lists(st.sampled_from(budgets), unique=True)):
        cluster["spec"]["disruptionBudgets"] = [
            {"namespace": namespace, "name": name, "allowed": draw(st.integers(0, 3))}
            for namespace, name in chosen
        ]
    free = {n["name"]: list(range(GPUS.get(n.get("model"), 0))) for n in cluster["spec"]["nodes"]}
    documents = [cluster]
    for i in range(draw(st.integers(0, 3))):
        gang = draw(gangs(f"g{i}"))
        gang["status"] = {
            "pods": draw(standing(gang, cluster, free)),
            **draw(STATUSES),
            **draw(planned(gang, cluster)),
        }
        documents.append(gang)
    if draw(st.booleans()):
        documents.append({"apiVersion": API, "kind": "Policy", "spec": draw(policies())})
    return documents


# Odd values


def texts(most: int | None = None) -> st.SearchStrategy[str]:
    """Any text of so many characters; without surrogates, as in UTF-8."""
    # said so, for Hypothesis tries each character of a codec: two seconds in every fresh checkout
    return st.text(st.characters(exclude_categories=("Cs",)), max_size=most)


def trees(
    more: st.SearchStrategy[Any], keys: st.SearchStrategy[str], leaves: int
) -> st.SearchStrategy[Any]:
    """JSON of any shape; of these values beside numbers, booleans and null."""
    return st.recursive(
        st.none() | st.booleans() | st.integers() | more,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=leaves,
    )


# Servers


@st.composite
def nics(draw: st.DrawFn, gpus: int) -> tuple[Nic, ...]:
    """Up to five, each near some of the GPUs or none known."""
    near = st.none() | st.sets(st.integers(0, gpus - 1), max_size=3).map(lambda s: tuple(sorted(s)))
    speeds = st.sampled_from([25_000, 100_000, 200_000, 400_000])
    drawn = draw(st.lists(st.tuples(speeds, near), max_size=5))
    return tuple(Nic(f"n{i}", speed, own) for i, (speed, own) in enumerate(drawn))


@st.composite
def links(draw: st.DrawFn, sizes: st.SearchStrategy[int], most: int) -> list[list[int]]:
    """How many links each GPU has to each other one, symmetric."""
    size = draw(sizes)
    counts = [[0] * size for _ in range(size)]
    for a in range(size):
        for b in range(a):
            counts[a][b] = counts[b][a] = draw(st.integers(0, most))
    return counts
