"""A trace file, ours or a published table, to a Trace; with every fault at its place.

Raises only InputError (65) and MissingPathError (66).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.lab.formats import NODE_GPUS, JobReader, format_of
from benchmarks.lab.rows import read_table
from benchmarks.lab.trace import Job, Trace
from benchmarks.lab.trace_document import ObservedDocument, TraceDocument
from models.documents.base import API_VERSION, FieldError, within
from models.units import described, shown
from planner.errors import Fault, InputError
from planner.read.findings import MAX_FAULTS, Findings
from planner.read.parser import parse
from planner.read.sources import MAX_BYTES, Malformed, Source, open_sources
from planner.read.validation import Entry, validate

_DOCUMENT = re.compile(r"\s*[\[{]|\s*(---|#|apiVersion\s*:|kind\s*:|metadata\s*:|spec\s*:)")
_HINT = "a trace is a document of kind Trace, or a table of jobs: see benchmarks/lab/README.md"


def read_trace(path: str, *, node_gpus: int = NODE_GPUS) -> Trace:
    """The trace of a file, packed or not.

    ``node_gpus``: GPUs of a pod at most, for tables, which say only how many GPUs a job has. Raises
    InputError, MissingPathError.
    """
    if Path(path).is_dir():
        raise InputError(Fault("a trace is one file, this is a folder", _HINT, path))
    for source in open_sources([path], None):
        if isinstance(source, Fault):
            raise InputError(source)
        return _read(source, node_gpus)
    raise AssertionError("one path is one source")


def _read(source: Source, node_gpus: int) -> Trace:
    findings = Findings()
    try:
        if _DOCUMENT.match(source.text):
            return _of_document(_whole(source), findings)
        return _of_table(source, node_gpus, findings)
    except Malformed as fault:
        findings.malformed(source, fault)
        findings.raise_all()


def _whole(source: Source) -> Source:
    """The source with all of its text. Raises Malformed for a long one."""
    if source.rest is None:
        return source
    pieces, size = [source.text], len(source.text)
    for piece in source.rest:
        pieces.append(piece)
        size += len(piece)
        if size > MAX_BYTES:
            what = f"more than {MAX_BYTES // 2**20} MiB in one Trace"
            raise Malformed(what, 1, 1, "cut it to the weeks you replay")
    return replace(source, text="".join(pieces), rest=None)


def _of_table(source: Source, node_gpus: int, findings: Findings) -> Trace:
    table = read_table(source)
    reader = JobReader(format_of(table.columns), node_gpus)
    jobs: list[Job] = []
    for row in table.rows:
        try:
            job = reader.job(row)
        except Malformed as fault:
            findings.malformed(source, fault)
            if len(findings.placed) >= MAX_FAULTS:
                break
        else:
            jobs += [job] if job is not None else []
    if findings:
        findings.raise_all()
    if not jobs:
        gone = ", ".join(f"{count:,} {why}" for why, count in reader.left_out.items())
        what = "no job of this table can be replayed" + (f": {gone}" if gone else "")
        raise InputError(Fault(what, "give a table of jobs with times", source.name))
    starts_at = None
    if reader.dated:
        starts_at = min(job.submit_s for job in jobs)
        jobs = [_since(job, starts_at) for job in jobs]
    return Trace.of(
        reader.format.title, jobs, source=reader.format.source, starts_at=starts_at,
        left_out=sorted(reader.left_out.items()),
    )  # fmt: skip


def _since(job: Job, start: int) -> Job:
    """The job with seconds since ``start`` in place of seconds since 1970."""
    observed = job.observed
    if observed is not None:
        observed = ObservedDocument.of(observed, started_seconds=observed.started_seconds - start)
    return replace(job, submit_s=job.submit_s - start, observed=observed)


def _of_document(source: Source, findings: Findings) -> Trace:
    parsed = parse(source)
    for fault in parsed.faults:
        findings.malformed(source, fault)
    if findings:
        findings.raise_all()
    if len(parsed.documents) != 1 or not isinstance(parsed.documents[0], dict):
        what = f"expected one Trace, not {described(parsed.documents[0] if parsed.documents else None)}"
        if len(parsed.documents) > 1:
            what = f"{len(parsed.documents)} documents in a trace"
        raise Malformed(what, 1, 1, _HINT)
    tree = parsed.documents[0]
    if tree.get("kind") != "Trace" or tree.get("apiVersion") != API_VERSION:
        kind, version = tree.get("kind"), tree.get("apiVersion")
        if kind != "Trace":
            what = f"not a Trace: kind is {shown(kind)}" if kind else "not a Trace: it has no kind"
        else:
            what = f"apiVersion: {described(version)} is not read for kind Trace"
        raise Malformed(what, 1, 1, f"write kind: Trace and apiVersion: {API_VERSION}")
    entry = validate(TraceDocument, tree, source, (0,), findings)
    if entry is not None:
        entry.report_errors(trace_errors(entry))
    if entry is None or findings:
        findings.raise_all()
    document = entry.document
    return Trace.of(
        document.metadata.name,
        (Job.of(job) for job in document.spec.jobs),
        source=document.metadata.source,
        starts_at=document.metadata.starts_at,
    )


def trace_errors(entry: Entry[TraceDocument]) -> Iterator[FieldError]:
    """Contradictions of single jobs, and two of one name."""
    names: Counter[tuple[str, str]] = Counter()
    for i, job in enumerate(entry.document.spec.jobs):
        yield from within(("spec", "jobs", i), job.field_errors())
        key = (job.namespace, job.name)
        names[key] += 1
        if names[key] == 2:  # a third one is no news
            what = f"two jobs are named {shown('/'.join(key))}"
            yield FieldError(("spec", "jobs", i, "name"), what, "rename one")
