"""The fake cluster over HTTPS: connections, users, watches, and lost answers."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from apiserver import LOST, FakeCluster
from apiserver_http import ADMIN, CERTIFICATE, Endpoint, serving
from effort import HANG_S

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def cluster() -> FakeCluster:
    found = FakeCluster()
    found.add_node("n1")
    found.add_pod("a", scheduler="gangplan")
    found.add_service_account("token-of-planner", "default", "planner")
    return found


@pytest.fixture
def endpoint(cluster: FakeCluster, tmp_path: Path) -> Iterator[Endpoint]:
    with serving(cluster, tmp_path) as found:
        yield found


@pytest.fixture
def connection(endpoint: Endpoint) -> Iterator[http.client.HTTPSConnection]:
    parts = urlsplit(endpoint.url)
    context = ssl.create_default_context(cafile=str(CERTIFICATE))
    found = http.client.HTTPSConnection("127.0.0.1", parts.port, timeout=HANG_S, context=context)
    yield found
    found.close()


def asked(
    connection: http.client.HTTPSConnection, path: str, token: str = ADMIN
) -> tuple[int, dict[str, object]]:
    connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
    answer = connection.getresponse()
    return answer.status, json.load(answer)


def test_a_connection_serves_one_request_after_another(
    connection: http.client.HTTPSConnection,
) -> None:
    assert asked(connection, f"{PODS}/a")[0] == 200
    first = connection.sock
    assert asked(connection, f"{PODS}/none")[0] == 404
    assert asked(connection, "/version")[1]["minor"] == "36"
    assert connection.sock is first


def test_a_token_says_who_asks(connection: http.client.HTTPSConnection) -> None:
    code, tree = asked(connection, f"{PODS}/a", "token-of-planner")
    assert code == 403
    assert tree["message"] == (
        'pods "a" is forbidden: User "system:serviceaccount:default:planner" cannot get resource '
        '"pods" in API group "" in the namespace "default"'
    )
    code, tree = asked(connection, f"{PODS}/a", "of-nobody")
    assert (code, tree["reason"]) == (401, "Unauthorized")


def test_a_lost_answer_ends_the_connection(
    cluster: FakeCluster, connection: http.client.HTTPSConnection
) -> None:
    cluster.after.append(lambda call: LOST)
    with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
        asked(connection, f"{PODS}/a")
    cluster.after.clear()
    connection.close()
    assert asked(connection, f"{PODS}/a")[0] == 200


def test_without_tls_everybody_is_an_administrator(cluster: FakeCluster, tmp_path: Path) -> None:
    with serving(cluster, tmp_path, tls=False) as endpoint:
        plain = http.client.HTTPConnection("127.0.0.1", urlsplit(endpoint.url).port, timeout=HANG_S)
        plain.request("GET", f"{PODS}/a")
        assert plain.getresponse().status == 200
        plain.close()


def kubectl(endpoint: Endpoint, *arguments: str) -> str:
    done = subprocess.run(
        [os.environ.get("KUBECTL", "kubectl"), *arguments],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=True,
        env=endpoint.environ(os.environ),
    )
    return done.stdout


def test_a_watch_tells_what_changed_since_a_version(
    cluster: FakeCluster, endpoint: Endpoint
) -> None:
    version = json.loads(kubectl(endpoint, "get", "--raw", PODS))["metadata"]["resourceVersion"]
    cluster.add_pod("b", scheduler="gangplan")
    cluster.touch("Pod", "a")
    cluster.remove("Pod", "a")
    path = f"{PODS}?watch=1&timeoutSeconds=1&resourceVersion={version}"
    events = [json.loads(line) for line in kubectl(endpoint, "get", "--raw", path).splitlines()]
    told = [(one["type"], one["object"]["metadata"]["name"]) for one in events]
    assert told == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "a")]


def test_kubectl_deletes_and_waits_until_it_is_gone(
    cluster: FakeCluster, endpoint: Endpoint
) -> None:
    assert kubectl(endpoint, "delete", "pod", "a").startswith('pod "a" deleted')
    assert cluster.pods() == []


def test_kubectl_asks_for_rights_as_the_user_it_is(
    cluster: FakeCluster, endpoint: Endpoint
) -> None:
    own = {**endpoint.environ(os.environ), "KUBECONFIG": str(endpoint.as_user("token-of-planner"))}
    command = [os.environ.get("KUBECTL", "kubectl"), "auth", "can-i", "list", "pods"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=HANG_S, check=False, env=own
    )
    assert (done.returncode, done.stdout.split()) == (1, ["no"])
    assert kubectl(endpoint, "auth", "can-i", "list", "pods").split() == ["yes"]
