"""Texts that people pipe by mistake: nothing, error messages, tables, web pages. Each has one clear error.

Only the beginning of a text is looked at. What may be a document is left to the parser.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress

from models.units import shortened
from planner.errors import Fault
from planner.read.sources import KUBECTL, STDIN, Source, printable

_START = 4_096
"""Characters that are looked at, more than an error message has."""

_LONGEST = 160
"""Characters of a text that an error repeats."""

_FORBIDDEN = re.compile(
    r"forbidden|unauthorized|must be logged in|permission denied", re.IGNORECASE
)
_MESSAGE = re.compile(
    r"(?:Error from server|error: |Error: |The connection to the server |Unable to connect |"
    r"Get \"?https?://|You must be logged in |Please (?:enter|log)|[IWEF][0-9]{4} |"
    r"[^\n{}#][^\n{}]{0,200}: "
    r"(?:command not found|not found|[Pp]ermission denied|No such file or directory)$)",
    re.MULTILINE,
)
_WARNING = re.compile(r"(?:Warning: |[IWE][0-9]{4} )[^\n]*\n(?:[^\n{]*\n)*\{")
_PAGE = re.compile(r"<(?:!doctype|html|head|body|\?xml)\b", re.IGNORECASE)
_TABLE = re.compile(r"(?:(?:NAMESPACE +)?NAME +[A-Z][A-Z0-9 ()-]+|Name: {3,}\S.*)$", re.MULTILINE)
_SLURM_ERROR = re.compile(
    r"(?:slurm_\w+ error|(?:squeue|scontrol|sinfo|slurm\w*): (?:fatal|error)): ?[^\n]*$",
    re.MULTILINE,
)
_SLURM = re.compile(
    r"(?P<squeue>JOBID +(?:PARTITION|NAME)\b)"
    r"|(?P<jobs>JobId=[0-9]+ )"
    r"|(?P<sinfo>(?:PARTITION +AVAIL|NODELIST +NODES|HOSTNAMES)\b)"
    r"|(?P<conf>(?:#[^\n]*\n|\s)*(?:ClusterName|SlurmctldHost|NodeName|PartitionName)=)",
    re.IGNORECASE,
)
_OF_SLURM = {
    "squeue": "a table of squeue",
    "jobs": "the output of scontrol show jobs",
    "sinfo": "a table of sinfo",
    "conf": "a slurm.conf",
}
"""Texts of Slurm that are not read."""

_SLURM_HINT = "write scontrol show nodes --json > nodes.json and squeue --json > queue.json"

_NAMES = re.compile(r"[a-z][a-z.]*/[a-z0-9][a-z0-9.-]*$", re.MULTILINE)
_STATUS = re.compile(r'\{(?:"metadata":\{\},|\s|"apiVersion":\s*"v1",)*"kind":\s*"Status"')


def mistaken(source: Source) -> Fault | None:
    """What is wrong with a text that is no document, and what to do; None if it may be one."""
    start = source.text[:_START].lstrip("\ufeff \t\r\n")
    if not start:
        if source.name != STDIN or source.text[_START:]:
            return None
        hint = (
            f"run the command before the pipe alone: it printed no data. For Kubernetes: {KUBECTL}"
        )
        return Fault("standard input is empty", hint)
    what, hint = _of_slurm(start) or _kind(source, start)
    return None if what is None else Fault(what, hint, source.name, 1, 1)


def _kind(source: Source, start: str) -> tuple[str | None, str]:
    line = _line(start)
    if _WARNING.match(start):
        return f"messages before the JSON: {line}", "leave out 2>&1"
    if _PAGE.match(start):
        return (
            f"a web page, not documents: {line}",
            "a proxy or a login page answered; log in first",
        )
    if _MESSAGE.match(start):
        return f"an error message, not documents: {line}", _advice(start)
    if _TABLE.match(start) or _NAMES.match(start):
        return f"a table or text for people, not documents: {line}", f"add -o json: {KUBECTL}"
    if _STATUS.match(start) and source.rest is None:
        with suppress(
            ValueError, RecursionError
        ):  # cut off, or nested too deep: the parser says so
            message = json.loads(source.text).get("message")
            return f"a refusal of the API server, not documents: {_line(str(message))}", _advice(
                start
            )
    return None, ""


def _of_slurm(start: str) -> tuple[str, str] | None:
    """What is wrong with a text of Slurm, and what to do; None for any other text."""
    line = _line(start)
    if _SLURM_ERROR.match(start):
        return f"an error message of Slurm: {line}", "run the command where Slurm's own tools work"
    found = _SLURM.match(start)
    if found is None or found.lastgroup is None:
        return None
    return f"{_OF_SLURM[found.lastgroup]}: {line}", _SLURM_HINT


def _line(text: str) -> str:
    """The first line of a text, printable and bounded."""
    return shortened(printable(text.strip().partition("\n")[0].rstrip()), _LONGEST)


def _advice(message: str) -> str:
    if _FORBIDDEN.search(message):
        return "kubectl auth can-i list nodes -A must say yes; ask for that right, or change the context"
    return "run the command before the pipe alone; kubectl cluster-info checks the connection"
