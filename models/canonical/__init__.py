"""An Instance as canonical documents, and the digest that tells two documents apart.

Promises: everything written out, one entry a node, only the server models in use, one way to write
every quantity; reading the result gives the same Instance and digest.
Called by ``models.plan``; ``planner.reading.instance_from_document`` is its inverse.
"""

from __future__ import annotations

import hashlib
import json

from models.canonical.cluster import cluster_document, server_model_document
from models.canonical.forms import Json
from models.canonical.gangs import gang_document
from models.canonical.policy import counted_to, policy_document
from models.instance import Instance

__all__ = ["counted_to", "digest", "instance_document", "server_model_document"]


def instance_document(instance: Instance) -> Json:
    """``{"cluster": document, "gangs": [documents], "policy": document}``, canonical."""
    return {
        "cluster": cluster_document(instance.cluster),
        "gangs": [gang_document(gang, instance.cluster) for gang in instance.gangs],
        "policy": policy_document(instance.policy, now=counted_to(instance)),
    }


def digest(document: object) -> str:
    """``sha256:<hex>`` of the document as compact JSON with sorted keys, in UTF-8."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{hashlib.sha256(text.encode('utf-8')).hexdigest()}"
