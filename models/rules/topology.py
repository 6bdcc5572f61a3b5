"""Where the pods of a gang are next to each other: required levels, slices, and one GPU model for a role."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from models.instance.gang import Gang, Role
from models.instance.instance import Instance
from models.rules.declaration import Asked, Declaration, Requirement, asked_level, dropping

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


DECLARED = (
    Declaration(
        "topology",
        (REQUIRED,),
        gang_key=_domains_key,
    ),
    Declaration("slices", (SLICE,), gang_key=_slices_key),
)

ONE_MODEL = Declaration(
    "models",
    (MODELS,),
    gang_key=lambda _instance, gang: tuple(role.mix_models for role in gang.roles),
)
