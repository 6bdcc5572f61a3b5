"""Rules of gangs about their own pods: as named sets of whole roles, and over which level.

What a plan cannot say as kube-scheduler means it is said more strictly, or holds the gang; nothing is
said more loosely. A rule about pods outside of its gang holds the gang.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import cast

from msgspec import Struct

from models.documents.cluster import HOSTNAME_LABEL
from models.documents.gang import MAX_NEAR, NodeExpression
from models.instance.cluster import Node
from models.instance.eligibility import Eligibility, tolerated
from models.instance.gang import NextTo, NodeAffinity, Spread
from models.units import shortened
from planner.read.findings import Remarks
from planner.read.kube.levels.levels import Levels
from planner.read.kube.lookup import (
    bits,
    distinct,
    items,
    mapping,
    mask_key,
    mask_of,
    objects,
    text,
    union,
    whole,
)
from planner.read.kube.pods.anti_affinity import PodKinds
from planner.read.kube.pods.constraints import IMPOSSIBLE, PREFERRED, Narrower
from planner.read.kube.pods.pod_rules import (
    AFFINITY,
    MAX_SKEW,
    PodRule,
    PodRules,
    RuleKind,
    Selector,
    is_elsewhere,
)
from planner.read.kube.records import KubeGang, KubeNode, KubePod, KubeRole, LevelAsk
from planner.read.sources import printable

MAX_MEMBERS = 1_000
"""Most roles in all sets of a gang."""
LONGEST_NAME = 120
"""Most characters of the name of a set."""

UNEQUAL = "pods of role {role} have different rules about other pods"
NO_LABEL = "over {key}, a label that no node has"
NO_LEVEL = "over {key}, {why}"
OTHER_DOMAINS = "over {key}, whose values are not the domains of level {level}"
TOO_MANY = (
    f"rules about other pods that select more than {MAX_MEMBERS:,} roles, counted for each rule"
)
OTHER_NODES = "that counts pods on nodes where its own may not be"


class RoleRule(Struct):
    """A rule of a role. ``roles``: numbers of those in its gang that it is about; ``least``: minDomains."""

    stated: PodRule
    level: int
    roles: tuple[int, ...]
    least: int


class RuledRole(Struct, eq=False):
    """A role with what is read of its rules. ``number``: in its gang. ``problems``: why its gang is held.

    ``keys``: labels that its nodes must have.
    """

    gang: KubeGang
    number: int
    model: KubePod
    rules: list[RoleRule] = []
    keys: dict[str, None] = {}
    problems: dict[str, None] = {}

    @property
    def role(self) -> KubeRole:
        return self.gang.roles[self.number]

    @property
    def pods(self) -> list[KubePod]:
        return [pod for _, pod in self.role.members]

    def hold(self) -> None:
        """Let what has problems start nothing and go nowhere."""
        self.rules.clear()
        for pod in self.pods:
            pod.affinity = (IMPOSSIBLE,)
            if pod.to_place:
                pod.unsupported += tuple(self.problems)


class PodSets:
    """Reads the rules of all gangs of an input."""

    def __init__(
        self,
        gangs: Sequence[KubeGang],
        pods: Iterable[KubePod],
        nodes: Sequence[KubeNode],
        levels: Levels,
    ) -> None:
        self._levels = levels
        self._nodes = nodes
        models = (role.model for gang in gangs for role in gang.roles)
        self._without_gpus = any(model is not None and not model.gpus for model in models)
        self._ruled = [
            RuledRole(gang, number, model)
            for gang in gangs
            for number, role in enumerate(gang.roles)
            if (model := role.model) is not None
            and (model.rules or any(pod.rules for _, pod in role.members if pod.to_place))
        ]
        if self._ruled:
            self._masks = NodeMasks(nodes)
            self._level_of: dict[str, tuple[int | None, str]] = {}
            self._count(gangs, pods)
            for one in self._ruled:
                self._read(one)

    def _count(self, gangs: Sequence[KubeGang], pods: Iterable[KubePod]) -> None:
        """Number the kinds of pods that exist, by gang and role; what is in no gang is bound."""
        members = {
            pod.key: (id(gang), number)
            for gang in gangs
            for number, role in enumerate(gang.roles)
            for _, pod in role.members
        }
        there = (pod for pod in pods if pod.key in members or (pod.bound and pod.node is not None))
        selectors = {rule.selector for one in self._ruled for pod in one.pods for rule in pod.rules}
        kinds = PodKinds((p for p in there if p.finished is None), named_keys(selectors))
        self._selected = {one: kinds.selected(one.tree, [one.namespace]) for one in selectors}
        self._roles: dict[int, set[tuple[int, int] | None]] = {}
        self._kinds: dict[tuple[int, int], set[int]] = {}
        leaving = []
        for pod, kind in kinds.of:
            role = members.get(pod.key)
            self._roles.setdefault(kind, set()).add(role)
            if role is not None:
                self._kinds.setdefault(role, set()).add(kind)
            if pod.terminating and pod.node is not None:
                leaving.append(kind)
        self._leaving = mask_of(leaving)
        self._of_gang: dict[int, int] = {}
        for gang in {id(one.gang): one.gang for one in self._ruled}.values():
            own = {
                kind for n in range(len(gang.roles)) for kind in self._kinds.get((id(gang), n), ())
            }
            alone = (k for k in own if {r and r[0] for r in self._roles[k]} == {id(gang)})
            self._of_gang[id(gang)] = mask_of(alone)

    def _read(self, one: RuledRole) -> None:
        """Read the rules of a role, or say why they cannot be planned with."""
        if len({pod.rules for pod in one.pods if pod.to_place}) > 1:
            one.problems[UNEQUAL.format(role=one.role.name)] = None
        members = 0
        for rule in one.model.rules:
            roles = self._about(one, rule)
            level = self._over(one, rule)
            members += len(roles) if roles != (one.number,) else 0
            if rule.kind is RuleKind.SPREAD:
                one.keys[rule.key] = None
            if roles and level is not None:  # else there is nothing to keep away from, or to spread
                one.rules.append(RoleRule(rule, level, roles, rule.min_domains))
        if members > MAX_MEMBERS:
            one.problems[TOO_MANY] = None
        if one.problems:
            one.hold()

    def _about(self, one: RuledRole, rule: PodRule) -> tuple[int, ...]:
        """The roles of its gang that a rule is about; none if it is not just about these."""
        selected, gang = self._selected[rule.selector], id(one.gang)
        if selected & ~self._of_gang[gang]:
            one.problems[rule.kind.problem("that selects pods outside of its gang")] = None
            return ()
        kinds = set(bits(selected))
        roles = {role[1] for kind in kinds for role in self._roles[kind] if role}
        if any(not self._kinds[gang, number] <= kinds for number in roles):
            one.problems[rule.kind.problem("that selects some pods of a role only")] = None
        return tuple(sorted(roles))

    def _over(self, one: RuledRole, rule: PodRule) -> int | None:
        level, why = self._level(rule.key)
        if level is None:
            # Without the label no two nodes share a domain; but a pod that must be in one has none.
            if why or rule.kind is RuleKind.SPREAD:
                no = NO_LEVEL if why else NO_LABEL
                one.problems[rule.kind.problem(no.format(key=rule.key, why=why))] = None
        elif why:
            problem = OTHER_DOMAINS.format(key=rule.key, level=self._levels.name(level))
            one.problems[rule.kind.problem(problem)] = None
        return level

    def _level(self, key: str) -> tuple[int | None, str]:
        """The level whose domains are the values of a label; why there is none that is, in words.

        (None, ""): no node has the label.
        """
        if key not in self._level_of:
            ask = LevelAsk(label=key)
            level = self._levels.resolve(ask)
            if not self._masks.having(key):
                self._level_of[key] = (None, "")
            elif level is None:
                self._level_of[key] = (None, self._levels.why_not(ask))
            else:
                why = "" if self._are_domains(key, level) else "other domains"
                self._level_of[key] = (level, why)
        return self._level_of[key]

    def _are_domains(self, key: str, level: int) -> bool:
        """Whether nodes share a value of a label exactly if they share a domain of the level."""
        of_value: dict[str, object] = {}
        of_domain: dict[object, str] = {}
        single = level == len(self._levels.levels)
        for node in self._nodes:
            value = node.labels.get(key, node.name if key == HOSTNAME_LABEL else None)
            path = self._levels.domain(node.name)[: level + 1]
            named, domain = single or None not in path, node.name if single else path
            if value is None:
                if named and not single:
                    return False
            elif not (
                named
                and of_value.setdefault(value, domain) == domain
                and of_domain.setdefault(domain, value) == value
            ):
                return False
        return True

    def stated(self) -> set[tuple[str, str]]:
        """Keys of the pods whose anti-affinity is stated by rules of their roles."""
        return {
            pod.key
            for one in self._ruled
            if not one.problems
            for pod in one.pods
            if pod.rules == one.model.rules
        }

    def write(self, partial: Collection[str]) -> None:
        """Set ``pod_sets`` and the rules of the roles.

        ``partial``: names of GPUs that not every node offers. Call it when the affinities of all pods are
        as they stay.
        """
        names: dict[tuple[int, tuple[int, ...], bytes], str] = {}
        taken: dict[int, set[str]] = {}
        for one in self._ruled:
            if not one.problems:
                self._fit(one, partial)
        for one in self._ruled:
            gang = one.gang
            for rule in one.rules:
                stated, about = rule.stated, None
                if rule.roles != (one.number,):
                    same = (id(gang), rule.roles, mask_key(self._selected[stated.selector]))
                    if same not in names:
                        name = shortened(printable(str(stated.selector)), LONGEST_NAME).strip()
                        names[same] = distinct(name, taken.setdefault(id(gang), set()))
                        for n in rule.roles:
                            own = gang.roles[n]
                            own.pod_sets = tuple(sorted((*own.pod_sets, names[same])))
                    about = names[same]
                if stated.kind is RuleKind.SPREAD:
                    spread = Spread(rule.level, stated.max_skew, about, rule.least)
                    one.role.spread[spread] = None
                else:
                    one.role.anti_affinity[NextTo(rule.level, about)] = None

    # Spreads: kube-scheduler counts nodes that the plan may not have, and the other way round

    def _fit(self, one: RuledRole, partial: Collection[str]) -> None:
        """Keep a role to nodes with the labels of its domains, and its spreads to what both know."""
        lacking = [key for key in one.keys if self._masks.all & ~self._masks.having(key)]
        narrower, more = Narrower(), tuple(NodeExpression(key, "Exists") for key in sorted(lacking))
        for pod in one.pods if more else ():
            narrower.narrow(pod, more)
        for rule in one.rules:
            if rule.stated.kind is RuleKind.SPREAD:
                meant = self._counted(one.model, rule.stated)
                planned = self._planned(one.model, partial)
                if meant & ~planned & self._reach(one.gang, rule.roles, partial):
                    one.problems[rule.stated.kind.problem(OTHER_NODES)] = None
                elif self._knows_less(one, rule, meant, planned):
                    rule.least = MAX_SKEW  # the least domain counts as empty
        if one.problems:
            one.hold()

    def _knows_less(self, one: RuledRole, rule: RoleRule, meant: int, planned: int) -> bool:
        """Whether the plan knows less of the domains than kube-scheduler."""
        waits = not one.model.gpus and any(pod.to_place for pod in one.pods)
        sure = self._masks.all if waits else self._masks.installed  # in the plan
        masks = self._masks.by_value(rule.stated.key).values()
        likely = self._masks.all if self._without_gpus else sure
        unlike = meant & ~planned or planned & ~meant & likely
        absent = any(mask & meant and not mask & planned & sure for mask in masks)
        vague = self._selected[rule.stated.selector] & self._leaving
        # A pod that is pinned to its planned node has one domain to go to, which are fewer.
        pinned = rule.least > 1 and rule.stated.honors_affinity and one.model.mode == "gate"
        return bool(unlike or absent or vague or pinned)

    def _counted(self, model: KubePod, rule: PodRule) -> int:
        """Nodes that kube-scheduler counts: those with the labels of all spreads of the pod."""
        found = self._masks.all
        for other in model.rules:
            if other.kind is RuleKind.SPREAD:
                found &= self._masks.having(other.key)
        if rule.honors_affinity:
            found &= self._masks.matching(model.selector, model.own_affinity)
        if rule.honors_taints:
            found &= union(
                1 << n
                for n, node in enumerate(self._nodes)
                if not node.unschedulable and tolerated(model.tolerations, node.taints)
            )
        return found

    def _planned(self, model: KubePod, partial: Collection[str]) -> int:
        found, name = self._masks.matching(model.selector, model.affinity), model.gpu_resource
        if name is not None and name in partial and (model.gpus or model.part):
            found &= union(1 << n for n, node in enumerate(self._nodes) if name in node.gpu_names)
        return found

    def _reach(self, gang: KubeGang, roles: Iterable[int], partial: Collection[str]) -> int:
        found = 0
        for number in roles:
            role = gang.roles[number]
            model = role.model
            found |= 0 if model is None else self._planned(model, partial)
            names = {pod.node for _, pod in role.members} - {None}
            found |= union(1 << self._masks.number[str(name)] for name in names)
        return found


class NodeMasks:
    """Nodes in order, as bits. ``installed``: those with GPUs."""

    def __init__(self, nodes: Sequence[KubeNode]) -> None:
        labels = tuple({HOSTNAME_LABEL: node.name, **node.labels} for node in nodes)
        # of which only names and labels are asked
        self._nodes = Eligibility(cast("tuple[Node, ...]", tuple(nodes)), labels, frozenset())
        self.all = (1 << len(nodes)) - 1
        self.number = {node.name: number for number, node in enumerate(nodes)}
        self.installed = union(1 << n for n, node in enumerate(nodes) if node.installed)
        self._matching: dict[tuple[object, ...], tuple[NodeAffinity, int]] = {}

    def having(self, key: str) -> int:
        return self.all & ~self._nodes.by_value(key).get(None, 0)

    def by_value(self, key: str) -> dict[str | None, int]:
        known = self._nodes.by_value(key)
        return {value: known[value] for value in known if value is not None}

    def matching(self, selector: Mapping[str, str], affinity: NodeAffinity) -> int:
        """Nodes that a node selector and any term of an affinity match."""
        same = (tuple(sorted(selector.items())), id(affinity))
        if same not in self._matching:
            found = self._nodes.affine(affinity) if affinity else self.all
            for key, value in selector.items():
                found &= self._nodes.by_value(key).get(value, 0)
            self._matching[same] = (affinity, found)  # the affinity keeps its id
        return self._matching[same][1]


def named_keys(selectors: Iterable[Selector]) -> set[str]:
    """Labels of pods that some selector names."""
    found: set[str] = set()
    for one in selectors:
        found.update(mapping(one.tree, "matchLabels"))
        found.update(entry["key"] for entry in objects(one.tree, "matchExpressions"))
    return found


# Gangs that others should be near: preferred podAffinity of pods with GPUs to gangs of their namespace. A
# wish that cannot be read, is about pods elsewhere by its form, or is one of too many, is none.

MAX_WISHES = 20
"""Most terms of a preferred podAffinity; of more none is read."""
TOO_NEAR = f"prefers to be near more than {MAX_NEAR} gangs; the preference is ignored"

Wish = tuple[str, Selector]
"""A label that names domains, and the pods beside which its gang should be in one."""


def set_near(
    gangs: Sequence[KubeGang], levels: Levels, ignore: Collection[str], remarks: Remarks
) -> None:
    """Set ``near`` of the gangs whose pods wish so."""
    if AFFINITY in ignore:
        return
    reader = PodRules(())
    wishes = {n: own for n, gang in enumerate(gangs) if (own := _wishes(gang, reader))}
    if not wishes:
        return
    members = {pod.key: n for n, gang in enumerate(gangs) for pod in gang.pods()}
    pods = (pod for gang in gangs for pod in gang.pods() if pod.finished is None)
    kinds = PodKinds(pods, named_keys(wish for own in wishes.values() for _, wish in own))
    gangs_of: dict[int, dict[int, None]] = {}
    for pod, kind in kinds.of:
        gangs_of.setdefault(kind, {})[members[pod.key]] = None
    selected: dict[Selector, list[int]] = {}
    for n, own in wishes.items():
        gang = gangs[n]
        for key, wish in own:
            level = levels.resolve(LevelAsk(label=key))
            if level is None:
                continue
            if wish not in selected:
                found = bits(kinds.selected(wish.tree, [wish.namespace]))
                selected[wish] = sorted({g for kind in found for g in gangs_of[kind]})
            others = [g for g in selected[wish] if g != n]
            if len(others) > MAX_NEAR:
                remarks.add(gang.subject, TOO_NEAR)
            elif others:
                gang.near = (level, tuple(gangs[g] for g in others))
                break


def _wishes(gang: KubeGang, reader: PodRules) -> list[Wish]:
    """The wishes of its pods with GPUs, each once, those of most weight first."""
    models = (role.model for role in gang.roles)
    found: dict[tuple[int, Wish], None] = {}
    for pod in (pod for pod in models if pod is not None and pod.gpus):
        stated = _stated(pod.object.tree, gang.namespace, reader)
        found |= dict.fromkeys(sorted(stated, key=lambda wish: -wish[0]))
    return [wish for _, wish in sorted(found, key=lambda wish: -wish[0])]


def _stated(pod: object, namespace: str, reader: PodRules) -> Iterator[tuple[int, Wish]]:
    affinity = mapping(pod, "spec", "affinity", AFFINITY)
    for tree in (
        objects(affinity, PREFERRED) if len(items(affinity, PREFERRED)) <= MAX_WISHES else ()
    ):
        term = mapping(tree, "podAffinityTerm")
        key, selector = text(term, "topologyKey"), reader.selector(term, namespace)
        if key and selector and "labelSelector" in term and not is_elsewhere(term, namespace):
            yield whole(tree, "weight") or 1, (key, selector)
