"""Role-based access control and SelfSubjectAccessReviews."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from apiserver_errors import denied
from apiserver_kinds import ACCESS, Json, Place, Tree
from apiserver_store import Store


@dataclass(frozen=True, slots=True)
class User:
    """Who a bearer token stands for."""

    name: str
    groups: tuple[str, ...] = ("system:authenticated",)


def user_named(name: str) -> User:
    """The user of that name with the groups that follow from it."""
    parts = name.split(":")
    if parts[:2] == ["system", "serviceaccount"] and len(parts) == 4:
        accounts = "system:serviceaccounts"
        return User(name, (accounts, f"{accounts}:{parts[2]}", "system:authenticated"))
    return User(name)


class Rights:
    """The authorizer. ``off``: everybody may do everything.

    ``unread``: so many questions are still denied, as just after a start, before roles have been read.
    """

    def __init__(self, store: Store) -> None:
        self.off = False
        self.unread = 0
        self._store = store

    def check(self, user: User, verb: str, place: Place) -> None:
        """Raises ApiError 403 in the server's words."""
        kind, sub = place.kind, place.sub
        if kind != ACCESS and not self.may(user, verb, place):
            raise denied(user.name, verb, kind, place.namespace, place.name, sub)

    def may(self, user: User, verb: str, place: Place) -> bool:
        kind, sub = place.kind, place.sub
        return self._may(user, verb, kind.group, kind.plural, place.namespace, place.name, sub)

    def reviewed(self, user: User | None, body: Json) -> Tree:
        """A SelfSubjectAccessReview, answered."""
        asked = body["spec"]["resourceAttributes"]
        keys = ("verb", "group", "resource", "namespace", "name", "subresource")
        allowed = user is None or self._may(user, *(asked.get(key, "") for key in keys))
        return {**body, "status": {"allowed": allowed}}

    def _rules(self, user: User, namespace: str) -> Iterator[Tree]:
        """Rules in a namespace, cluster-wide ones included."""
        named = self._store.kinds.named
        for kind in ("ClusterRoleBinding", "RoleBinding")[: 2 if namespace else 1]:
            inside = namespace if kind == "RoleBinding" else ""
            for binding in self._store.all(named(kind), inside):
                if any(_is(subject, user, inside) for subject in binding.get("subjects") or []):
                    ref = binding["roleRef"]
                    where = inside if ref["kind"] == "Role" else ""
                    yield from (self._store.get(named(ref["kind"]), where, ref["name"]) or {}).get(
                        "rules", ()
                    )

    def _may(
        self, user: User, verb: str, group: str, plural: str, namespace: str, name: str, sub: str
    ) -> bool:
        if self.off or "system:masters" in user.groups:
            return True
        if self.unread:
            self.unread -= 1
            return False
        asked = {"verbs": verb, "apiGroups": group}
        asked["resources"] = f"{plural}/{sub}" if sub else plural
        return any(
            all({"*", wanted} & set(rule.get(key, ())) for key, wanted in asked.items())
            and (not rule.get("resourceNames") or name in rule["resourceNames"])
            for rule in self._rules(user, namespace)
        )


def _is(subject: Tree, user: User, namespace: str) -> bool:
    match subject["kind"]:
        case "User":
            return bool(subject["name"] == user.name)
        case "Group":
            return subject["name"] in user.groups
    inside = subject.get("namespace") or namespace
    return user.name == f"system:serviceaccount:{inside}:{subject['name']}"
