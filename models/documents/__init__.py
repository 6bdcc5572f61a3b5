"""The documents people and machines write, as strict frozen types.

Promises: what is accepted here is well typed and bounded; contradictions come from ``complaints``;
nothing is silently converted. Called by ``planner.reading``, the catalogue and the checker.
"""

from models.documents.base import API_VERSION, Complaint
from models.documents.cluster import ClusterDocument, LevelDocument, NodeDocument, TaintDocument
from models.documents.gang import GangDocument, RoleDocument
from models.documents.policy import PolicyDocument
from models.documents.server import NicDocument, ServerModelDocument
from models.documents.standing import PodDocument
from models.documents.suggesting import similar, suggestion

__all__ = [
    "API_VERSION",
    "ClusterDocument",
    "Complaint",
    "GangDocument",
    "LevelDocument",
    "NicDocument",
    "NodeDocument",
    "PodDocument",
    "PolicyDocument",
    "RoleDocument",
    "ServerModelDocument",
    "TaintDocument",
    "similar",
    "suggestion",
]
