"""The documents people and machines write, as strict frozen types.

Promises: what is accepted here is well typed and bounded; contradictions come from ``complaints``;
nothing is silently converted. Called by ``planner.reading``, the catalogue and the checker.
"""

from models.documents.base import API_VERSION, Complaint
from models.documents.server import NicDocument, ServerModelDocument

__all__ = ["API_VERSION", "Complaint", "NicDocument", "ServerModelDocument"]
