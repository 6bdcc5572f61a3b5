"""Recorded scenes: lists, selectors and their refusals."""

from __future__ import annotations

from apiserver_transcripts import Scene, cluster_of, names, pod

SCENES = (
    Scene((370,), cluster_of(names("p", 0))),
    Scene((433,), cluster_of(names("p", 0)), before={433: lambda cluster: pod(cluster, "q")}),
)
