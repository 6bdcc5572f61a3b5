"""What ``topo`` says of a server model."""

from __future__ import annotations

from dataclasses import replace

from models.hardware import ServerModel
from models.rates.catalogue import find, server_models
from planner.show.server_model import bandwidth_table, topology_tables
from planner.show.table import Table, draw


def text_of(known: ServerModel) -> str:
    """Everything ``gangplan topo`` shows of a model."""
    return "\n".join(draw(table) for table in topology_tables(known, None))


def model(name: str) -> ServerModel:
    found = find(name)
    assert found is not None
    return found


def column(table: Table, title: str) -> list[str]:
    titles = [column.title for column in table.columns]
    return [row[titles.index(title)].text for row in table.rows]


def test_the_bandwidth_table_of_a_mesh_has_a_row_for_sets_that_reach_the_same() -> None:
    table = bandwidth_table(model("DGX-1 V100"))
    # One row of single GPUs, 20 of the published table.
    assert len(table.rows) == 21
    eight = [cell.text for cell in table.rows[-1]]
    assert eight == ["8", "120,000", "6", "3", "1", "0-7", "50,000", "50,000"]
    pair = [cell.text for cell in table.rows[1]]
    # Of the doubly linked pairs 0,3 are near two NICs of 12,500, while 2,3 share one; the links,
    # 40,000, hold back neither.
    assert pair == ["2", "40,000", "2", "2", "8", "0,3", "12,500-25,000", "12,500-25,000"]


def test_sizes_with_thousands_of_sets_are_left_out_and_that_is_said() -> None:
    chassis = ServerModel(
        "chassis", "G", 16, "pcie",
        matrix=tuple(tuple("X" if a == b else "PHB" for b in range(16)) for a in range(16)),
    )  # fmt: skip
    table = bandwidth_table(chassis)
    assert column(table, "GPUs") == ["1", "2", "16"]
    assert any("3 to 15 GPUs" in note for note in table.notes)


def test_what_is_not_known_is_said() -> None:
    assert "link rate" not in draw(bandwidth_table(model("DGX H100")))
    assert "link matrix of server model Azure NDv2" in text_of(
        model("Azure NDv2 (Standard_ND40rs_v2)")
    )
    assert "rate of one link of server model AMD MI100" in text_of(
        model("AMD MI100 8-GPU, two XGMI islands of 4")
    )
    a800 = bandwidth_table(model("HGX A800 8-GPU"))
    assert "NICs" not in [column.title for column in a800.columns]
    assert any("their speeds are not known" in note for note in a800.notes)


def test_every_model_of_the_catalogue_can_be_shown_harmlessly() -> None:
    for known in server_models():
        text = text_of(replace(known, name=known.name + "\x1b[31m"))
        assert "\x1b" not in text
        assert all(line == line.rstrip() for line in text.splitlines())
