"""The Policy of a plan document: tiers in order, tolerances, mix, shares, binding.

Promises: everything that decides a tier must be written out, the mix included. Called by ``documents``.
"""

from __future__ import annotations

from fractions import Fraction

from models.tiers import objective_names
from models.verify.facts import MoveLimits, Policy
from models.verify.form import Form, Object, duration_of, seconds_of, shown

KIND_FIELDS = frozenset(("apiVersion", "kind", "metadata", "spec", "status"))
METADATA_FIELDS = frozenset(("name", "namespace", "uid", "labels", "annotations"))
API_VERSION = "gangplan.dev/v1alpha1"

_FIELDS = frozenset(
    [
        "objectives",
        "mix",
        "minBandwidthShare",
        "gpuBinding",
        "nodeSelector",
        "solve",
        "kubernetes",
        "moves",
        "disruption",
        "starvation",
        "now",
    ]
)
GPU_BACKENDS = ("annotation", "none", "hami", "koordinator", "dra")
_MOVES = frozenset(["maxGangs", "maxGPUs", "minGain"])
DAY_S = 24 * 60 * 60
_SOLVE = frozenset(["budget", "timeLimit", "workers", "seed"])


def kind(form: Form, value: object, where: str, name: str) -> Object:
    """A document of one kind, its apiVersion and kind checked."""
    doc = form.mapping(value, where, KIND_FIELDS, required=("apiVersion", "kind", "spec"))
    if doc and doc.get("apiVersion") != API_VERSION:
        form.fault(f"{where}.apiVersion", f"must be {API_VERSION}")
    if doc and doc.get("kind") != name:
        form.fault(f"{where}.kind", f"must be {name}")
    metadata = form.mapping(doc.get("metadata") or {}, f"{where}.metadata", METADATA_FIELDS)
    form.optional_text(metadata.get("name"), f"{where}.metadata.name")
    form.optional_text(metadata.get("uid"), f"{where}.metadata.uid")
    return doc


def policy(form: Form, value: object, where: str) -> Policy:
    """The Policy in force."""
    doc = kind(form, value, where, "Policy")
    where = f"{where}.spec"
    spec = form.mapping(doc.get("spec", {}), where, _FIELDS, required=("objectives", "mix"))
    solve = form.mapping(spec.get("solve", {}), f"{where}.solve", _SOLVE)
    for field in ("budget", "workers"):
        form.optional_integer(solve.get(field), f"{where}.solve.{field}", 1)
    form.optional_text(solve.get("timeLimit"), f"{where}.solve.timeLimit")
    reading = form.table(spec.get("kubernetes"), f"{where}.kubernetes")
    backend = reading.get("gpuBackend", GPU_BACKENDS[0])
    form.choice(backend, f"{where}.kubernetes.gpuBackend", GPU_BACKENDS)
    seed = solve.get("seed")
    return Policy(
        objectives=_objectives(form, spec.get("objectives"), f"{where}.objectives"),
        mix=_mix(form, spec.get("mix"), f"{where}.mix"),
        min_share=form.number(spec.get("minBandwidthShare", 0), f"{where}.minBandwidthShare", 0, 1),
        binds_exactly=form.choice(
            spec.get("gpuBinding", "exact"), f"{where}.gpuBinding", ("exact", "none")
        )
        == "exact",
        selector=labels(form, spec.get("nodeSelector"), f"{where}.nodeSelector"),
        seed=0 if seed is None else form.integer(seed, f"{where}.solve.seed"),
        moves=_moves(form, spec.get("moves"), f"{where}.moves"),
        lost_cap=_lost_cap(form, spec.get("disruption"), f"{where}.disruption"),
        starvation=_starvation(form, spec.get("starvation"), f"{where}.starvation"),
        now=time(form, spec.get("now"), f"{where}.now"),
    )


def time(form: Form, value: object, where: str) -> int | None:
    """Seconds since 1970, None where nothing is said."""
    if value is None:
        return None
    seconds = seconds_of(value) if isinstance(value, str) else None
    if seconds is None:
        form.fault(where, f"must be an RFC 3339 time, not {shown(value)}")
    return seconds


def _duration(form: Form, value: object, where: str) -> int:
    seconds = duration_of(value) if isinstance(value, str) else None
    if seconds is None:
        form.fault(where, f"must be a duration such as 86400s, not {shown(value)}")
    return seconds or 0


def _moves(form: Form, value: object, where: str) -> MoveLimits:
    if value is None:
        return MoveLimits()
    doc = form.mapping(value, where, _MOVES)
    return MoveLimits(
        gangs=form.optional_integer(doc.get("maxGangs"), f"{where}.maxGangs", 0),
        gpus=form.optional_integer(doc.get("maxGPUs"), f"{where}.maxGPUs", 0),
        least_gain=Fraction(0)
        if doc.get("minGain") is None
        else form.number(doc["minGain"], f"{where}.minGain"),
    )


def _lost_cap(form: Form, value: object, where: str) -> int | None:
    """The cap where lost runtime is what counts, None where GPUs are."""
    if value is None:
        return None
    doc = form.mapping(value, where, frozenset(("weight", "cap")))
    cap = DAY_S if doc.get("cap") is None else _duration(form, doc["cap"], f"{where}.cap")
    if doc.get("weight") is None:
        return None
    weight = form.choice(doc["weight"], f"{where}.weight", ("gpus", "lostRuntime"))
    return cap if weight == "lostRuntime" else None


def _starvation(form: Form, value: object, where: str) -> int | None:
    if value is None:
        return None
    doc = form.mapping(value, where, frozenset(("after",)), required=("after",))
    return _duration(form, doc.get("after"), f"{where}.after")


def labels(form: Form, value: object, where: str) -> tuple[tuple[str, str], ...]:
    """A map of strings, sorted."""
    return tuple(
        sorted(
            (key, form.string(item, f"{where}[{key!r:.80}]"))
            for key, item in form.table(value, where).items()
        )
    )


def _objectives(form: Form, value: object, where: str) -> tuple[tuple[str, Fraction], ...]:
    found: dict[str, Fraction] = {}
    for i, item in enumerate(form.items(value, where)):
        place = f"{where}[{i}]"
        doc = form.mapping(item, place, frozenset(("name", "tolerance")), required=("name",))
        name = form.choice(doc.get("name"), f"{place}.name", objective_names())
        if name in found:
            form.fault(place, f"{name} is listed twice")
        found[name] = form.number(doc.get("tolerance", 0), f"{place}.tolerance")
    return tuple(found.items())


def _mix(form: Form, value: object, where: str) -> tuple[tuple[int, int], ...]:
    sizes: dict[int, int] = {}
    if not isinstance(value, dict):
        form.fault(where, "must be an object: permille of future requests by GPUs")
        return ()
    for key, permille in form.table(value, where).items():
        if not (
            key.isascii()
            and key.isdigit()
            and len(key) <= 9
            and str(int(key)) == key
            and key != "0"
        ):
            form.fault(where, "every name must be a number of GPUs, at least 1")
            continue
        sizes[int(key)] = form.integer(permille, f"{where}[{key}]", 0)
    return tuple(sorted(sizes.items()))
