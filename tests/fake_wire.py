"""A Wire that asks a fake cluster without a socket.

Promises: what it returns is the asker's own copy; faults of the cluster's hooks arrive as a server's
would. Called by tests of whatever sends requests.
"""

from __future__ import annotations

import json
from email.utils import parsedate_to_datetime
from functools import lru_cache

from fake_cluster import FakeCluster
from fake_trees import Json, Tree

from planner.cluster.transport import JSON, Reply


class FakeWire:
    """``user``: name of who asks; None for an administrator."""

    def __init__(self, cluster: FakeCluster, user: str | None = None) -> None:
        self.cluster = cluster
        self.user = user
        self.context = "test"

    def send(
        self, method: str, path: str, body: Tree | None = None, *, content_type: str = JSON
    ) -> Reply:
        sent = None if body is None else _copied(body)
        code, tree, headers = self.cluster.handle(
            method, path, sent, content_type, self.user, "gangplan-test"
        )
        if code == 0:
            return Reply(0, why="the connection broke")
        date = headers.get("Date")
        after = headers.get("Retry-After")
        return Reply(
            code,
            _copied(tree),
            date=None if date is None else _seconds(date),
            retry_after_s=None if after is None else float(after),
        )


def _copied(tree: Json) -> Json:
    """A copy of JSON, made as what it would be on the wire."""
    if isinstance(tree, dict):
        return {key: _copied(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_copied(value) for value in tree]
    if tree is None or isinstance(tree, (str, int, float)):
        return tree
    raise TypeError(f"no JSON: {json.dumps(tree, default=repr)}")


@lru_cache(maxsize=1024)
def _seconds(date: str) -> float:
    return parsedate_to_datetime(date).timestamp()
