"""The tables of a DrainOrder document."""

from __future__ import annotations

from models.documents.drain_order import DrainOrderDocument
from models.units import plural, time_text
from planner.show.table import Cell, Table, columns_of, row_of
from planner.show.text import compress, number

RESTARTS = {"atOnce": "at once", "afterWave": "after the wave"}


def facts(found: DrainOrderDocument) -> list[str]:
    """What is drained and what it costs, in two lines."""
    status = found.status
    gangs = f"{plural(status.interrupted, 'gang')} with {plural(status.interrupted_gpus, 'GPU')}"
    verb = "restarts" if status.interrupted == 1 else "restart"
    waves_ = f"{plural(len(found.spec.nodes), 'node')} in {plural(len(status.waves), 'wave')}"
    waiting = plural(status.waiting_gpus, "GPU")
    return [
        f"{waves_}, at most {number(found.spec.at_most)} out at once",
        f"{gangs} {verb}, each once; {waiting} of them wait for their nodes to return",
    ]


def waves(found: DrainOrderDocument) -> Table:
    """A row for each wave."""
    columns = columns_of(">WAVE|>NODES|>GANGS|>GPUS|>AT ONCE??|>WAIT|WHICH NODES~")
    rows = []
    for position, wave in enumerate(found.status.waves, 1):
        held = sum(gang.gpus for gang in wave.gangs)
        waiting = sum(gang.gpus for gang in wave.gangs if gang.restarts == "afterWave")
        rows.append(
            row_of(
                Cell(str(position), "head"),
                number(len(wave.nodes)),
                number(len(wave.gangs)),
                number(held),
                number(held - waiting),
                Cell(number(waiting), "warn" if waiting else None),
                Cell(compress(wave.nodes, " "), "dim"),
            )
        )
    note = (
        "GPUS: of the gangs that the wave interrupts; AT ONCE: on nodes that no later wave drains;"
        " WAIT: for the nodes of the wave to return"
    )
    return Table(columns, tuple(rows), (note,))


def gangs(found: DrainOrderDocument) -> Table:
    """A row for each gang that restarts."""
    columns = columns_of("GANG|>WAVE|>GPUS|STOPPABLE??|EXPECTED END??|RESTARTS|WHERE~")
    rows = [
        row_of(
            Cell(f"{gang.namespace}/{gang.name}", "head"),
            str(position),
            number(gang.gpus),
            Cell("yes" if gang.stoppable else "no", None if gang.stoppable else "warn"),
            "-" if gang.expected_end is None else time_text(gang.expected_end),
            RESTARTS[gang.restarts],
            Cell(compress(gang.nodes, " "), "dim"),
        )
        for position, wave in enumerate(found.status.waves, 1)
        for gang in wave.gangs
    ]
    return Table(columns, tuple(rows))


def ending(found: DrainOrderDocument) -> list[str]:
    """Notes, and what to do."""
    notes = [f"note: {note}" for note in found.status.notes]
    return [
        *notes,
        "cordon all of these nodes; then, wave by wave, drain its nodes and uncordon them when they are done",
    ]
