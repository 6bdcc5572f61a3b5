"""Rules of gangs about other pods: which pods each is about, as named sets, and over which level.

A set holds whole roles, and on every node a number of bound pods of no gang. What a document cannot say as
kube-scheduler means it is said more strictly, or holds the gang; nothing is said more loosely.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from models.documents.cluster import HOSTNAME_LABEL, NODE_LEVEL
from models.documents.gang import MAX_NEAR, NodeExpression
from models.units import shortened
from planner.read.findings import Remarks
from planner.read.kube.gang_documents import model_pod
from planner.read.kube.levels.levels import Levels
from planner.read.kube.lookup import bits, distinct, mapping, mask_key, objects
from planner.read.kube.node_documents import Json
from planner.read.kube.pods.anti_affinity import REPELS_OTHERS
from planner.read.kube.pods.constraints import IMPOSSIBLE
from planner.read.kube.pods.pod_kinds import NodeMasks, PodKinds, Population
from planner.read.kube.pods.pod_rules import PodRule, PodTerm, RuleKind
from planner.read.kube.pods.wishes import Wish
from planner.read.kube.records import KubeGang, KubeNode, KubePod, LevelAsk, Objects
from planner.read.kube.ruled_roles import RoleRule, RuledRole, SpreadNodes
from planner.read.kube.shares import beyond_share, by_age
from planner.read.sources import printable

MAX_MEMBERS = 1_000_000
"""Rules about pods, and kinds of pods and nodes in their sets, that a plan may state."""
MAX_CLOSED = 100_000
"""Domains that pods of no gang close to roles with a spread, for those of one namespace."""
LONGEST_NAME = 120
"""Most characters of the name of a set."""

BEYOND_SHARE = (
    "the rules of its namespace about other pods select more than its share of the"
    f" {MAX_MEMBERS:,} that a plan may state"
)
UNEQUAL = "pods of role {role} have different rules about other pods"
NO_LABEL = "over {key}, a label that no node has"
NO_LEVEL = "over {key}, {why}"
OTHER_DOMAINS = "over {key}, whose values are not the domains of level {level}"
UNKNOWN_SPACES = (
    "to pods of namespaces whose labels are not in the input: record them, which takes the right to "
    "list namespaces"
)
SOME_PODS = "to some pods of a role only"


class PodSets:
    """Reads the rules of all gangs of an input. ``nodes``: pods of no gang in sets, by node and set."""

    def __init__(
        self,
        gangs: Sequence[KubeGang],
        pods: Sequence[KubePod],
        nodes: Sequence[KubeNode],
        levels: Levels,
        found: Objects,
        remarks: Remarks,
    ) -> None:
        self._levels = levels
        self._remarks = remarks
        self._kube_nodes = nodes
        self.nodes: dict[str, dict[str, int]] = {}
        self._spreading: dict[tuple[str, str], RuledRole] = {}
        self._closed: dict[str, dict[NodeExpression, int]] = {}
        self._left: dict[tuple[int, int], tuple[object, list[NodeExpression]]] = {}
        self._roles = [
            RuledRole(gang, role, model)
            for gang in sorted(gangs, key=by_age)
            for role in gang.roles
            if (model := model_pod(role)) is not None
        ]
        self._with_rules = [
            one
            for one in self._roles
            if one.model.rules or any(pod.rules for pod in one.pods if pod.to_place)
        ]
        if self._with_rules:
            self._there = Population(
                [one.pods for one in self._roles], pods, found, _keys(self._with_rules)
            )
            self._masks = NodeMasks(nodes)
            self._selected: dict[tuple[tuple[PodTerm, ...], bool], int] = {}
            self._level_of: dict[str, tuple[str | None, str]] = {}
            for one in self._with_rules:
                self._read(one)
            self._hold_beyond_share(lambda mask: mask.bit_count())
            self._hold_beyond_share(self._there.weight)
            for one in self._with_rules:
                self._refuse_vague(one)
            self._hold()

    def _read(self, one: RuledRole) -> None:
        """Read the rules of a role, or say why they cannot be planned with."""
        stated = {id(pod.rules): pod.rules for pod in one.pods if pod.to_place}
        meant = {tuple(self._meaning(rule) for rule in rules) for rules in stated.values()}
        if len(meant) > 1:
            one.problems[UNEQUAL.format(role=one.role.name)] = None
        for rule in one.model.rules:
            level, why = self._level(rule.key)
            kinds = self._select(rule)
            if level is None:
                # Without the label no two nodes share a domain; but a pod that must be in one has none.
                if why or rule.kind is not RuleKind.ANTI_AFFINITY:
                    no = NO_LEVEL if why else NO_LABEL
                    one.problems[rule.kind.problem(no.format(key=rule.key, why=why))] = None
                continue
            if why:
                problem = OTHER_DOMAINS.format(key=rule.key, level=level)
                one.problems[rule.kind.problem(problem)] = None
            if rule.kind is not RuleKind.ANTI_AFFINITY:
                one.keys[rule.key] = None
            elif self._repels_others(one, kinds):
                self._remarks.add(one.gang.subject, REPELS_OTHERS.format(key=rule.key))
            # Without pods there is nothing to keep away from, or to spread, but something to wait for.
            if kinds or rule.kind is RuleKind.AFFINITY:
                one.rules.append(RoleRule(rule, level, kinds, rule.min_domains))

    def _repels_others(self, one: RuledRole, kinds: int) -> bool:
        """Whether a role that runs keeps pods of other namespaces away from it."""
        there = any(pod.holds_room for pod in one.pods)
        return there and bool(kinds & ~self._there.inside.get(one.gang.namespace, 0))

    def _meaning(self, rule: PodRule) -> tuple[object, ...]:
        """What two rules have in common that mean the same."""
        bare = (rule.kind, rule.key, rule.max_skew, rule.min_domains)
        return (*bare, rule.honors_affinity, rule.honors_taints, self._select(rule))

    def _select(self, rule: PodRule, *, unknown: bool = True) -> int:
        """The kinds of the pods that all terms of a rule select."""
        stated = (rule.terms, unknown)
        if stated not in self._selected:
            found = self._there.labels.all
            for term in rule.terms:
                found &= self._select_term(term, unknown=unknown)
            self._selected[stated] = found
        return self._selected[stated]

    def _select_term(self, term: PodTerm, *, unknown: bool) -> int:
        if term.selector is None:
            return 0
        spaces = None if term.of_namespaces is None else term.of_namespaces.tree
        return self._there.selected(term.selector.tree, term.namespaces, spaces, unknown=unknown)

    def _level(self, key: str) -> tuple[str | None, str]:
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

    def _are_domains(self, key: str, level: str) -> bool:
        """Whether nodes share a value of a label exactly if they share a domain of the level."""
        depth = self._levels.depth(level)
        of_value: dict[str, object] = {}
        of_domain: dict[object, str] = {}
        for node in self._kube_nodes:
            value = node.labels.get(key, node.name if key == HOSTNAME_LABEL else None)
            path = self._levels.domain(node.name)[: depth + 1]
            named = level == NODE_LEVEL or None not in path
            domain = node.name if level == NODE_LEVEL else path
            if value is None:
                if named and level != NODE_LEVEL:
                    return False
            elif not (
                named
                and of_value.setdefault(value, domain) == domain
                and of_domain.setdefault(domain, value) == value
            ):
                return False
        return True

    def _refuse_vague(self, one: RuledRole) -> None:
        """Hold who joins pods that a set cannot say: a larger set is stricter for other rules only."""
        for rule in one.rules if not one.problems else ():
            if rule.kind is not RuleKind.AFFINITY:
                continue
            if rule.kinds != self._select(rule.stated, unknown=False):
                one.problems[rule.kind.problem(UNKNOWN_SPACES)] = None
            if self._there.is_torn(rule.kinds):
                one.problems[rule.kind.problem(SOME_PODS)] = None

    def _hold_beyond_share(self, cost: Callable[[int], int]) -> None:
        """Hold the youngest gangs whose rules select more than the share of their namespace."""
        known: dict[bytes, int] = {}
        charged: dict[str, set[bytes]] = {}
        own: dict[str, list[tuple[RuledRole, int]]] = {}
        for one in self._with_rules:
            space = one.gang.namespace
            needed, paid = len(one.rules), charged.setdefault(space, set())
            for rule in one.rules if not one.problems else ():
                key = mask_key(rule.kinds)
                if key not in known:
                    known[key] = cost(rule.kinds)
                if key not in paid:
                    paid.add(key)
                    needed += known[key]
            own.setdefault(space, []).append((one, needed))
        for one in beyond_share(own, MAX_MEMBERS):
            one.problems[BEYOND_SHARE] = None

    def _hold(self) -> None:
        """Let what has problems start nothing and go nowhere."""
        for one in self._with_rules:
            if one.problems:
                one.rules.clear()
                for pod in one.pods:
                    pod.affinity = (IMPOSSIBLE,)
                    if pod.to_place:
                        pod.unsupported += tuple(one.problems)
            elif any(rule.kind is RuleKind.SPREAD for rule in one.rules):
                self._spreading |= {pod.key: one for pod in one.pods}

    def repelling(self) -> set[tuple[str, str]]:
        """Keys of the pods whose anti-affinity is stated by rules of their roles."""
        return {
            pod.key
            for one in self._with_rules
            if not one.problems
            for pod in one.pods
            if pod.rules is one.model.rules
        }

    def keep_off(self, pod: KubePod, closed: Sequence[NodeExpression]) -> Sequence[NodeExpression]:
        """What of these expressions (``NotIn``) is no rule of its role: its node affinity must state that.

        A spread counts the nodes that the node affinity of its role matches, whoever keeps the role off
        some of them. So these pods are a set, from which the role keeps apart.
        """
        one = self._spreading.get(pod.key)
        if one is None:
            return closed
        same = (id(one), id(closed))
        if same not in self._left:
            self._left[same] = (closed, self._keep_off(one, closed))  # the first keeps its id
        return self._left[same][1]

    def _keep_off(self, one: RuledRole, closed: Sequence[NodeExpression]) -> list[NodeExpression]:
        left = []
        for expression in closed:
            level, why = self._level(expression.key)
            if level is None or why or not self._may_close(one.gang.namespace, expression):
                left.append(expression)
            else:
                one.closed.setdefault(expression.key, set()).update(expression.values)
        return left

    def _may_close(self, namespace: str, closed: NodeExpression) -> bool:
        """Whether no more domains than are counted are closed to a namespace; equal expressions are one."""
        known = self._closed.setdefault(namespace, {})
        if closed not in known:
            before = next(reversed(known.values()), 0)
            known[closed] = before + len(closed.values)
        return known[closed] <= MAX_CLOSED

    def write(self, partial: Collection[str]) -> None:
        """Set ``pod_sets`` and ``rules`` of the roles, and what pods of no gang are in sets.

        ``partial``: names of GPUs that not every node offers. Call it when the affinities of all pods are
        as they stay.
        """
        if not self._with_rules:
            return
        nodes = SpreadNodes(self._roles, self._there, self._kube_nodes, self._masks, partial)
        for one in self._with_rules:
            if not one.problems:
                nodes.fit(one)
        names: dict[bytes, tuple[str, int]] = {}
        taken: set[str] = set()
        for n, one in enumerate(self._roles):
            one.role.rules = self._documents(n, one, names, taken)
        self._fill(names.values())
        self._write_closed(taken)

    def _documents(
        self, role: int, one: RuledRole, names: dict[bytes, tuple[str, int]], taken: set[str]
    ) -> dict[str, list[Json]]:
        """The fields of a role that state its rules. ``names``: of sets, with their kinds; gets more."""
        found: dict[str, list[Json]] = {}
        for rule in one.rules:
            tree: Json = {"level": rule.level}
            if not self._there.is_own(role, rule.kinds):
                key = mask_key(rule.kinds)
                if key not in names:
                    names[key] = distinct(_name(rule.stated.terms), taken), rule.kinds
                tree["podSet"] = names[key][0]
            if rule.kind is RuleKind.SPREAD:
                tree |= {"maxSkew": rule.stated.max_skew, "minDomains": rule.least}
            listed = found.setdefault(rule.kind.document, [])
            if tree not in listed:
                listed.append(tree)
        return found

    def _fill(self, sets: Iterable[tuple[str, int]]) -> None:
        """Tell roles and nodes the sets that they are in."""
        joined: dict[int, list[str]] = {}
        for name, kinds in sorted(sets):
            for n in self._there.roles_in(kinds):
                joined.setdefault(n, []).append(name)
            for node, count in self._there.loose_in(kinds).items():
                self.nodes.setdefault(node, {})[name] = count
        for n, own in joined.items():
            self._roles[n].role.pod_sets = tuple(own)

    def _write_closed(self, taken: set[str]) -> None:
        """Let roles keep apart from the pods of no gang that close domains to them, a set for each key."""
        names: dict[tuple[str, ...], str] = {}
        for one in self._roles:
            for key, values in sorted(one.closed.items()):
                same = (key, *sorted(values))
                if same not in names:
                    name = names[same] = distinct(_short(f"kept off {key}"), taken)
                    for value in same[1:]:
                        masks = self._masks.by_value(key)[value]
                        node = self._kube_nodes[bits(masks & self._masks.installed or masks)[0]]
                        self.nodes.setdefault(node.name, {})[name] = 1
                level, _ = self._level(key)
                apart = one.role.rules.setdefault(RuleKind.ANTI_AFFINITY.document, [])
                apart.append({"level": level, "podSet": names[same]})


def _keys(roles: Sequence[RuledRole]) -> set[str]:
    """Labels of pods that some selector names."""
    found: set[str] = set()
    for stated in {id(pod.rules): pod.rules for one in roles for pod in one.pods}.values():
        for term in (term for rule in stated for term in rule.terms):
            tree = {} if term.selector is None else term.selector.tree
            found.update(mapping(tree, "matchLabels"))
            found.update(one["key"] for one in objects(tree, "matchExpressions"))
    return found


def _name(terms: Sequence[PodTerm]) -> str:
    """A name for people, such as ``research/app=trainer``."""
    return _short(" and ".join(map(str, terms)))


def _short(name: str) -> str:
    """Fit to stand in a document."""
    return shortened(printable(name), LONGEST_NAME)


TOO_MANY = f"prefers to be near more than {MAX_NEAR} gangs; the preference is ignored"


def set_near(gangs: Sequence[KubeGang], levels: Levels, found: Objects, remarks: Remarks) -> None:
    """Set ``near`` of the gangs whose pods wish so."""
    wishes = {n: own for n, gang in enumerate(gangs) if (own := list(_wishes(gang)))}
    if not wishes:
        return
    members = {pod.key: n for n, gang in enumerate(gangs) for pod in gang.pods()}
    pods = (pod for gang in gangs for pod in gang.pods() if pod.finished is None)
    kinds = PodKinds(pods, found, _near_keys(wish for own in wishes.values() for wish in own))
    gangs_of: dict[int, dict[int, None]] = {}
    for pod, kind in kinds.of:
        gangs_of.setdefault(kind, {})[members[pod.key]] = None
    selected: dict[tuple[str, Wish], list[int]] = {}
    for n, own in wishes.items():
        gang = gangs[n]
        for wish in own:
            level = levels.resolve(LevelAsk(label=wish.key))
            if level is None:
                continue
            same = (gang.namespace, wish)
            if same not in selected:
                mask = _selected(kinds, wish) & kinds.inside.get(gang.namespace, 0)
                selected[same] = sorted({g for kind in bits(mask) for g in gangs_of[kind]})
            others = [g for g in selected[same] if g != n]
            if len(others) > MAX_NEAR:
                remarks.add(gang.subject, TOO_MANY)
            elif others:
                gang.near = (level, tuple(gangs[g] for g in others))
                break


def _wishes(gang: KubeGang) -> Iterator[Wish]:
    """The wishes of its pods with GPUs, each once, those of most weight first."""
    models = (model_pod(role) for role in gang.roles)
    found = dict.fromkeys(w for pod in models if pod is not None and pod.gpus for w in pod.wishes)
    yield from sorted(found, key=lambda wish: -wish.weight)


def _selected(kinds: PodKinds, wish: Wish) -> int:
    """The kinds that a wish selects; of namespaces that are not known, none."""
    term = wish.term
    selector = {} if term.selector is None else term.selector.tree
    spaces = None if term.of_namespaces is None else term.of_namespaces.tree
    return kinds.selected(selector, term.namespaces, spaces, unknown=False)


def _near_keys(wishes: Iterable[Wish]) -> set[str]:
    """Labels of pods that some wish names."""
    found: set[str] = set()
    for selector in (wish.term.selector for wish in wishes):
        tree = {} if selector is None else selector.tree
        found.update(mapping(tree, "matchLabels"))
        found.update(one["key"] for one in objects(tree, "matchExpressions"))
    return found
