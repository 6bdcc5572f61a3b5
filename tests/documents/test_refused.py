"""Bad input is refused with exactly the text that its case in tests/refused expects.

A case is its files by name, and `expected`; without a `cluster.yaml` of its own it has that of SMALL.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from planner.errors import InputError
from planner.read.inputs import read

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


def write_case(case: str, folder: Path) -> None:
    """The files of a case."""
    for name, content in REFUSED[case].items():
        if name != "expected" and content is not None:
            raw = content if isinstance(content, bytes) else content.encode()
            (folder / name).write_bytes(raw)


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_with_its_place_and_a_hint(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_case(case, tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as caught:
        read(["."])
    lines = [line for fault in caught.value.faults for line in fault.lines()]
    assert lines == REFUSED[case]["expected"].splitlines()
    assert len(caught.value.faults) <= 20
    assert all(fault.hint for fault in caught.value.faults)
    assert caught.value.exit_code == 65
