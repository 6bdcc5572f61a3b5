"""Kueue's and KAI's annotations: the topology that roles and gangs ask for."""

from __future__ import annotations

from planner.read.kube.gang_builder import level_asks
from planner.read.kube.records import KubeGang, KubeRole, LevelAsk


def test_levels_are_asked_for_in_turn_by_namespaces_and_by_age() -> None:
    def gang(namespace: str, name: str, born: int | None, *labels: str) -> KubeGang:
        roles = [
            KubeRole(f"r{i}", 1, [], required=LevelAsk(label=one)) for i, one in enumerate(labels)
        ]
        return KubeGang(namespace, name, "Pod", roles, submitted_at=born)

    found = level_asks(
        [
            gang("greedy", "a", 50, "g/1", "g/2", "g/3"),
            gang("modest", "b", 90, "m/1", "g/3"),
            gang("modest", "c", 10, "m/0"),
            gang("greedy", "d", None, "g/0"),
        ]
    )
    # first of each: g/1 (50), m/0 (10); then g/2 (50), m/1 (90); then g/3; then g/0
    assert [ask.label for ask in found] == ["m/0", "g/1", "g/2", "m/1", "g/3", "g/0"]
