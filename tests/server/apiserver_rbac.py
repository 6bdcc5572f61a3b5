"""Role-based access control and SelfSubject reviews."""

from __future__ import annotations

from dataclasses import dataclass

from apiserver_errors import ApiError, details
from apiserver_kinds import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    ROLE,
    ROLE_BINDING,
    Json,
    Kind,
    Place,
    RequestInfo,
    Tree,
)
from apiserver_store import Store

_EVERYONE: list[Tree] = [
    {
        "apiGroups": ["authorization.k8s.io"],
        "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
        "verbs": ["create"],
    },
    {
        "apiGroups": ["authentication.k8s.io"],
        "resources": ["selfsubjectreviews"],
        "verbs": ["create"],
    },
    {
        "nonResourceURLs": [
            *("/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*"),
            *("/readyz", "/version", "/version/"),
        ],
        "verbs": ["get"],
    },
    {
        "nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version", "/version/"],
        "verbs": ["get"],
    },
    {
        "nonResourceURLs": [
            *("/.well-known", "/.well-known/*", "/.well-known/openid-configuration"),
            *("/.well-known/openid-configuration/", "/openid/v1/jwks", "/openid/v1/jwks/"),
        ],
        "verbs": ["get"],
    },
]
_KINDS = (ROLE, ROLE_BINDING, CLUSTER_ROLE, CLUSTER_ROLE_BINDING)


@dataclass(frozen=True, slots=True)
class User:
    """Who a bearer token stands for."""

    name: str
    groups: tuple[str, ...] = ("system:authenticated",)


def service_account(namespace: str, name: str) -> User:
    groups = (
        "system:serviceaccounts",
        f"system:serviceaccounts:{namespace}",
        "system:authenticated",
    )
    return User(f"system:serviceaccount:{namespace}:{name}", groups)


def user_named(name: str) -> User:
    """The user of that name with the groups that follow from it."""
    parts = name.split(":")
    if parts[:2] == ["system", "serviceaccount"] and len(parts) == 4:
        return service_account(parts[2], parts[3])
    return User(name)


class Rights:
    """The authorizer. ``off``: everybody may do everything.

    ``unread``: so many questions are still denied, as just after a start, before roles have been read.
    """

    def __init__(self, store: Store) -> None:
        self.off = False
        self.unread = 0
        self._store = store
        self._known: dict[tuple[User, str], list[tuple[Tree, str]]] = {}
        store.listeners.append(self._changed)

    def check(self, user: User, verb: str, place: Place) -> None:
        """Raises ApiError 403 in the server's words."""
        kind = place.kind
        if self.may(user, verb, kind, place.namespace, place.name, place.sub):
            return
        raise denied(user.name, verb, kind, place.namespace, place.name, place.sub)

    def may(
        self, user: User, verb: str, kind: Kind, namespace: str, name: str = "", sub: str = ""
    ) -> bool:
        return self._why(user, verb, kind.group, kind.plural, namespace, name, sub) is not None

    def may_asking(
        self,
        info: RequestInfo,
        verb: str,
        kind: Kind,
        namespace: str,
        name: str = "",
        sub: str = "",
    ) -> bool:
        """The same for the user of a request; an administrator may do everything."""
        if info.user is None:
            return True
        return self.may(User(info.user, info.groups), verb, kind, namespace, name, sub)

    def may_get(self, user: User, path: str) -> bool:
        """Of a path that is no resource, such as /version."""
        return self.off or any(
            "nonResourceURLs" in rule
            and _one(rule["verbs"], "get")
            and any(
                url in ("*", path) or (url.endswith("*") and path.startswith(url[:-1]))
                for url in rule["nonResourceURLs"]
            )
            for rule, _ in self.rules(user, "")
        )

    def reviewed(self, user: User | None, body: Json) -> Tree:
        """A SelfSubjectAccessReview, answered."""
        asked = ((body or {}).get("spec") or {}).get("resourceAttributes")
        if asked is None:
            path = (((body or {}).get("spec") or {}).get("nonResourceAttributes") or {}).get(
                "path", ""
            )
            allowed = user is None or self.may_get(user, path)
            return (body or {}) | {"status": {"allowed": allowed}}
        why: str | None = ""
        if user is not None:
            namespace = asked.get("namespace", "")
            why = self._why(
                user,
                asked.get("verb", ""),
                asked.get("group", ""),
                asked.get("resource", ""),
                namespace,
                asked.get("name", ""),
                asked.get("subresource", ""),
            )
        status: Tree = {"allowed": why is not None}
        if why:
            status["reason"] = why
        return {**body, "status": status}

    def listed(self, user: User | None, body: Json) -> Tree:
        """A SelfSubjectRulesReview, answered."""
        namespace = ((body or {}).get("spec") or {}).get("namespace", "")
        everything: Tree = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
        rules = [everything] if user is None else [rule for rule, _ in self.rules(user, namespace)]
        status = {
            "resourceRules": [
                {key: value for key, value in rule.items() if key != "nonResourceURLs"}
                for rule in rules
                if "resources" in rule
            ],
            "nonResourceRules": [rule for rule in rules if "nonResourceURLs" in rule],
            "incomplete": False,
        }
        return (body or {}) | {"status": status}

    def rules(self, user: User, namespace: str) -> list[tuple[Tree, str]]:
        """(rule, who granted it) in a namespace, cluster-wide ones included."""
        key = (user, namespace)
        if key not in self._known:
            self._known[key] = list(self._gathered(user, namespace))
        return self._known[key]

    def _gathered(self, user: User, namespace: str) -> list[tuple[Tree, str]]:
        found = [(rule, "") for rule in _EVERYONE]
        for kind, inside in ((CLUSTER_ROLE_BINDING, ""), (ROLE_BINDING, namespace)):
            if kind == ROLE_BINDING and not namespace:
                continue
            for binding in self._store.all(kind, inside):
                if not any(_is(subject, user, inside) for subject in binding.get("subjects") or []):
                    continue
                ref = binding["roleRef"]
                role_kind = ROLE if ref["kind"] == "Role" else CLUSTER_ROLE
                role = self._store.get(role_kind, inside if role_kind == ROLE else "", ref["name"])
                title = binding["metadata"]["name"]
                said = f'RBAC: allowed by {kind.name} "{title}" of {ref["kind"]} "{ref["name"]}"'
                found += [(rule, said) for rule in (role or {}).get("rules") or []]
        return found

    def _why(
        self, user: User, verb: str, group: str, plural: str, namespace: str, name: str, sub: str
    ) -> str | None:
        """The binding that grants it; None: none does."""
        if self.off or "system:masters" in user.groups:
            return ""
        if self.unread:
            self.unread -= 1
            return None
        wanted = f"{plural}/{sub}" if sub else plural
        for rule, said in self.rules(user, namespace):
            if (
                _one(rule["verbs"], verb)
                and _one(rule.get("apiGroups") or [], group)
                and (
                    _one(rule.get("resources") or [], wanted)
                    or bool(sub and f"*/{sub}" in (rule.get("resources") or []))
                )
                and (not rule.get("resourceNames") or name in rule["resourceNames"])
            ):
                return said
        return None

    def _changed(self, kind: Kind, old: Tree | None, new: Tree | None) -> None:
        if kind in _KINDS:
            self._known.clear()


def denied(user: str, verb: str, kind: Kind, namespace: str, name: str, sub: str) -> ApiError:
    what = kind.resource + (f' "{name}"' if name else "")
    where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    said = (
        f'{what} is forbidden: User "{user}" cannot {verb} resource '
        f'"{kind.plural}{f"/{sub}" if sub else ""}" in API group "{kind.group}" {where}'
    )
    about = details(kind, name)
    if not name:
        del about["name"]
    return ApiError(403, said, details=about)


def _one(granted: list[str], wanted: str) -> bool:
    return "*" in granted or wanted in granted


def _is(subject: Tree, user: User, namespace: str) -> bool:
    match subject["kind"]:
        case "User":
            return bool(subject["name"] == user.name)
        case "Group":
            return subject["name"] in user.groups
        case _:
            inside = subject.get("namespace") or namespace
            return user.name == f"system:serviceaccount:{inside}:{subject['name']}"
