"""GPUs by the names that Kubernetes gives them: resources, DRA device classes, ResourceSlices.

Promises: knows devices, neither nodes nor pods. Called by ``nodes`` and ``pods``.
"""
