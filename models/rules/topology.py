"""Where the pods of a gang are next to each other: required levels, slices, and one GPU model for a role."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from models.instance.gang import Gang, Role
from models.instance.instance import Instance
from models.rules.declaration import Asked, Declaration, Requirement, asked_level, dropping
from models.rules.demands import RoleDemand

REQUIRED = Requirement(
    "required",
    "all its pods must be in one {}",
    of_gang=asked_level("required"),
    of_role=asked_level("required"),
    code="RequiredTopology",
    word="required",
    relaxes="every level that is required",
)


def _slices(instance: Instance, role: Role) -> Iterator[Asked[Role]]:
    level_name = instance.cluster.level_name
    layers = [f"{pods} pods in one {level_name(level)}" for pods, level in role.slice_layers]
    if layers:
        without = dropping(slice_size=None, slice_level=None, outer_slices=())
        yield Asked(", ".join(layers), without)


SLICE = Requirement(
    "slice",
    "each slice must be together: {}",
    of_role=_slices,
    code="RequiredTopology",
    word="slice",
    relaxes="the slices of its roles",
)


def _one_model_of_role(_instance: Instance, role: Role) -> Iterator[Asked[Role]]:
    if role.gpus and not role.mix_models and role.max > 1:
        yield Asked("mixModels", dropping(mix_models=True))


MODELS = Requirement(
    "oneModel",
    "all its pods must be on one GPU model",
    of_role=_one_model_of_role,
    code="NoRoom",
    word="one-model",
    relaxes="that the pods of a role run on one GPU model",
    relax_role=lambda role: dropping(mix_models=True)(role) if role.gpus else role,
)


def _domains_key(_instance: Instance, gang: Gang) -> Hashable:
    roles = tuple((role.required, role.preferred) for role in gang.roles)
    return gang.required, gang.preferred, roles, tuple((t.roles, t.level) for t in gang.together)


def _slices_key(_instance: Instance, gang: Gang) -> Hashable:
    return tuple(
        (
            role.slice_layers,
            role.first_index % max((size for size, _ in role.slice_layers), default=1),
        )
        for role in gang.roles
    )


def _slices_poolable(instance: Instance, gang: Gang, role: RoleDemand) -> bool:
    """Whether the slices, if any, are alike: then their numbers in each domain are all that matters."""
    if gang.roles[role.role].slice_size is None:
        return True
    return _held_by_level(gang, role) or pooled_slices(instance, gang, role) is not None


def _held_by_level(gang: Gang, role: RoleDemand) -> bool:
    """Whether the gang is whole in a domain at which no slice is cut."""
    levels = [level for _, level in gang.roles[role.role].slice_layers]
    return gang.required is not None and not role.layers and gang.required >= max(levels)


def pooled_slices(instance: Instance, gang: Gang, role: RoleDemand) -> tuple[int, int] | None:
    """(size, level) of the slices of a role of which only the numbers in each domain matter."""
    layers = gang.roles[role.role].slice_layers
    if len(layers) != 1 or role.layers or _held_by_level(gang, role):
        return None
    ((size, level),) = layers
    several = sum(1 for one in gang.roles if one.gpus) > 1
    if several or level == instance.cluster.node_level or role.cut(size).shorts:
        return None
    return size, level


def _one_model(instance: Instance, gang: Gang, role: RoleDemand) -> bool:
    if gang.roles[role.role].mix_models or role.count == 1:
        return True
    # the pods of a single role are counted by GPU model
    single = sum(1 for one in gang.roles if one.gpus) == 1
    return single or len(instance.gpu_names(role.nodes)) <= 1


DECLARED = (
    Declaration(
        "topology",
        (REQUIRED,),
        gang_key=_domains_key,
        poolable=lambda _instance, gang, role: gang.roles[role.role].required is None,
    ),
    Declaration("slices", (SLICE,), gang_key=_slices_key, poolable=_slices_poolable),
)

ONE_MODEL = Declaration(
    "models",
    (MODELS,),
    gang_key=lambda _instance, gang: tuple(role.mix_models for role in gang.roles),
    poolable=_one_model,
)
