"""Whatever a what-if changes, the judge finds it so; tests/cli/sessions has its options one by one."""

from __future__ import annotations

import json
from typing import Any

from bundles import read_all
from effort import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import inputs

from models.documents.canonical import canonical_instance
from models.documents.plan import PlanInstance
from models.rules.registry import relaxable
from models.verify import what_if
from planner.errors import UsageError
from planner.pipelines.what_if import Changes, with_changes
from planner.read.inputs import instance_from_document

Doc = dict[str, Any]


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(inputs(), st.data())
def test_whatever_is_changed_the_judge_finds_it_so(
    documents: list[Doc], data: st.DataObject
) -> None:
    instance = read_all(documents)
    names = ["/".join(gang.key) for gang in instance.gangs]
    words = [*(level.name for level in instance.cluster.levels), "node", *relaxable()]
    draw = data.draw
    nodes = draw(st.sets(st.sampled_from([n.name for n in instance.cluster.nodes] or ["none"])))
    without = draw(st.sets(st.sampled_from(names or ["none"]), max_size=1))
    pairs = st.tuples(st.sampled_from(names or ["none"]), st.sampled_from(words))
    relaxed = []
    for name, word in draw(st.sets(pairs, max_size=4)):
        try:  # what a gang does not ask for cannot be relaxed
            with_changes(instance, Changes(relax=(f"{name}:{word}",)))
        except UsageError:
            continue
        relaxed.append((name, word))
    relax = tuple(f"{name}:{word}" for name, word in relaxed if name not in without)
    drain = tuple(nodes - {"none"})
    changes = Changes(drain=drain, without=tuple(without - {"none"}), relax=relax)
    changed, _ = with_changes(instance, changes)
    document = json.loads(json.dumps(canonical_instance(changed)))
    assert instance_from_document(document) == changed
    stated = PlanInstance.model_validate(document)
    assert (stated.changes is None) == (changed == instance)
    if stated.changes is not None:
        assert list(what_if.wrong(stated, stated.changes)) == []
    # and of the input as it was it is not true, but for nodes that took nobody anyway
    plain = PlanInstance.model_validate(json.loads(json.dumps(canonical_instance(instance))))
    if stated.changes is not None and (changes.without or changes.relax):
        assert list(what_if.wrong(plain, stated.changes))
