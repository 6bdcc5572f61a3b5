"""Bad inputs of ../refused: their files, and what is expected of each."""

from __future__ import annotations

from pathlib import Path

import yaml

SMALL = """\
apiVersion: gangplan.dev/v1alpha1
kind: Cluster
metadata: {name: small}
spec:
  levels:
  - {name: block}
  - {name: rack, label: example.com/rack}
  nodes:
  - {name: "gpu-[01-04]", model: DGX H100, domains: {block: b1, rack: r1}}
"""


REFUSED = {
    case: {"cluster.yaml": SMALL, **files}
    for path in sorted((Path(__file__).parents[1] / "refused").glob("*.yaml"))
    for case, files in yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader).items()
}
