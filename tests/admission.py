"""The shipped admission policies, evaluated as the API server would: requests in, refusals out.

Match constraints, match conditions, variables in order and validations, each compiled and run
by Google's CEL; objects are plain trees, as a ValidatingAdmissionPolicy sees them; an expression that
fails to evaluate refuses, as ``failurePolicy: Fail`` does, and says so.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from cel_expr_python import cel
from cel_expr_python.ext import ext_optional, ext_strings

Tree = dict[str, Any]

FOLDER = Path(__file__).parents[1] / "deploy" / "admission"
ACCOUNT = "system:serviceaccount:gangplan-system:gangplan"


@dataclass(frozen=True)
class Asked:
    """One request as admission sees it. ``object`` None: a deletion."""

    resource: str
    operation: str
    object: Tree | None = None
    old: Tree | None = None
    sub: str = ""
    group: str = ""
    user: str = ACCOUNT
    version: str = "v1"
    groups: tuple[str, ...] = ("system:authenticated",)

    def request(self) -> Tree:
        """The variable ``request``: as in the API, what is empty is left out."""
        found = {
            "operation": self.operation,
            "resource": {"group": self.group, "version": self.version, "resource": self.resource},
            "userInfo": {"username": self.user, "groups": list(self.groups)},
        }
        return found | ({"subResource": self.sub} if self.sub else {})


@dataclass
class Policy:
    """One ValidatingAdmissionPolicy, compiled."""

    name: str
    rules: list[Tree]
    conditions: list[cel.Expression]
    variables: list[tuple[str, cel.Expression]]
    validations: list[tuple[str, cel.Expression]]

    def refusals(self, asked: Asked) -> list[str]:
        """Messages of the validations that say no."""
        if not any(_matches(rule, asked) for rule in self.rules):
            return []
        data = {"object": asked.object, "oldObject": asked.old, "request": asked.request()}
        data = {**copy.deepcopy(data), "variables": {}}
        if not all(_value(one, data) is True for one in self.conditions):
            return []
        for name, expression in self.variables:
            data["variables"] = {**data["variables"], name: _value(expression, data)}
        return [text for text, one in self.validations if _value(one, data) is not True]


def refused(asked: Asked) -> list[str]:
    """Every message by which the shipped policies refuse a request; [] if it passes."""
    return [said for policy in policies() for said in policy.refusals(asked)]


@cache
def policies() -> tuple[Policy, ...]:
    """The policies that are shipped, each enforced by a binding that is shipped."""
    paths = sorted(FOLDER.glob("*.yaml"))
    return enforced(
        [one for path in paths for one in yaml.load_all(path.read_text(), Loader=yaml.CSafeLoader)]
    )


def enforced(documents: Iterable[Tree]) -> tuple[Policy, ...]:
    """Those of the policies among the documents that a binding among them enforces."""
    trees = list(documents)
    bound = {
        one["spec"]["policyName"]
        for one in trees
        if one.get("kind") == "ValidatingAdmissionPolicyBinding"
        and one["spec"]["validationActions"] == ["Deny"]
    }
    return tuple(
        _compiled(one)
        for one in trees
        if one.get("kind") == "ValidatingAdmissionPolicy" and one["metadata"]["name"] in bound
    )


def _compiled(tree: Tree) -> Policy:
    spec = tree["spec"]
    assert spec["failurePolicy"] == "Fail"
    names = ("object", "oldObject", "request", "variables")
    env = cel.NewEnv(variables=dict.fromkeys(names, cel.Type.DYN))

    return Policy(
        tree["metadata"]["name"],
        spec["matchConstraints"]["resourceRules"],
        [env.compile(one["expression"]) for one in spec["matchConditions"]],
        [(one["name"], env.compile(one["expression"])) for one in spec.get("variables", ())],
        [(one["message"], env.compile(one["expression"])) for one in spec["validations"]],
    )


def _value(expression: cel.Expression, data: Tree) -> cel.PlainValue:
    found = expression.eval(data=data)
    assert found.type() != cel.Type.ERROR, found.value()
    return found.plain_value()


def _matches(rule: Tree, asked: Asked) -> bool:
    what = f"{asked.resource}/{asked.sub}" if asked.sub else asked.resource
    resources = {what, f"{asked.resource}/*"} if asked.sub else {what}
    return (
        asked.group in rule["apiGroups"]
        and bool({asked.version, "*"} & set(rule["apiVersions"]))
        and bool({asked.operation, "*"} & set(rule["operations"]))
        and bool(resources & set(rule["resources"]))
    )


@cache
def _gate() -> tuple[list[cel.Expression], list[tuple[str, cel.Expression]]]:
    """Conditions and variables of the policy of ``deploy/gate``, compiled."""
    path = FOLDER.parent / "gate" / "policy.yaml"
    policy, binding = yaml.safe_load_all(path.read_text())
    assert binding["spec"]["policyName"] == policy["metadata"]["name"]
    names = dict.fromkeys(("object", "namespaceObject", "request", "variables"), cel.Type.DYN)
    extensions = [ext_optional.ExtOptional(), ext_strings.ExtStrings()]
    env = cel.NewEnv(variables=names, extensions=extensions)
    spec = policy["spec"]
    conditions = [env.compile(one["expression"]) for one in spec["matchConditions"]]
    return conditions, [(one["name"], env.compile(one["expression"])) for one in spec["variables"]]


def gates(pod: Tree, annotations: Tree, user: str) -> bool:
    """Whether a pod that a user creates gets the gate. ``annotations``: of its namespace, which opted in."""
    conditions, variables = _gate()
    space = {"metadata": {"annotations": annotations} if annotations else {}}
    request = Asked("pods", "CREATE", user=user).request()
    data = {"object": pod, "namespaceObject": space, "request": request, "variables": {}}
    if not all(_value(one, data) is True for one in conditions):
        return False
    for name, expression in variables:
        data["variables"] = {**data["variables"], name: _value(expression, data)}
    return bool(data["variables"]["waits"])
