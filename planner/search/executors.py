"""Where the neighbourhoods of a round are solved: threads, processes, or a Dask cluster.

Results come in the order of the tasks, so that the number of workers does not change them. A lost worker
costs time, not the result: its task is solved here.
"""

from __future__ import annotations

import logging
import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from contextlib import suppress
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from typing import Protocol, TypeVar

from planner import __version__
from planner.errors import Fault, UsageError
from planner.search.budget import Budget
from planner.signals import CAUGHT, kept_from_children

THREADS, PROCESSES, DASK = "threads", "processes", "dask://"

TICK_S = 0.05
"""How often a wait looks at the clock and the stop signal."""

CONNECT_S = 10
"""Seconds to reach a Dask scheduler."""

T = TypeVar("T")
R = TypeVar("R")


class _Client(Protocol):
    """What is used of Dask's Client."""

    status: str

    def get_executor(self, *, pure: bool) -> Executor: ...

    def submit(self, task: Callable[[], str], *, pure: bool) -> Future[str]: ...

    def close(self) -> None: ...


class Workers:
    """``spec``: ``threads``, ``processes`` or ``dask://HOST:PORT``. Workers start with the first task.

    If the scheduler of a Dask cluster goes away, threads take its place.

    Raises UsageError for another spec, a Dask cluster without its package, and one that does not answer.
    """

    def __init__(self, spec: str, count: int) -> None:
        self._spec = spec
        self._count = count
        self._executor: Executor | None = None
        self._close: Callable[[], None] = lambda: None
        self._lost: tuple[type[Exception], ...] = (BrokenExecutor, CancelledError, OSError)
        self._client: _Client | None = None
        if spec.startswith(DASK):
            self._client = _dask_client(spec)
            self._close = self._client.close
            from distributed.scheduler import KilledWorker

            self._lost = (*self._lost, KilledWorker)
        elif spec not in (THREADS, PROCESSES):
            raise UsageError(
                Fault(f"unknown executor {spec!r}", "use threads, processes or dask://HOST:PORT")
            )

    def run(
        self, solve: Callable[[T, float], R], tasks: Sequence[T], budget: Budget
    ) -> Iterator[R]:
        """``solve(task, seconds)`` of every task, in order, as far as the time goes."""
        return self.begin(solve, tasks, budget)()

    def begin(
        self, solve: Callable[[T, float], R], tasks: Sequence[T], budget: Budget
    ) -> Callable[[], Iterator[R]]:
        """The same, begun at once: the call that is returned waits for the results.

        A single thread begins only then.
        """
        if self._spec == THREADS and self._count == 1:
            return partial(self._in_turn, solve, tasks, budget)
        executor, seconds = self._started(), budget.seconds_left()
        futures = [executor.submit(solve, task, seconds) for task in tasks]
        return partial(self._collected, solve, tasks, futures, budget)

    def _in_turn(
        self, solve: Callable[[T, float], R], tasks: Sequence[T], budget: Budget
    ) -> Iterator[R]:
        for task in tasks:
            if budget.exhausted():
                return
            yield solve(task, budget.seconds_left())

    def _collected(
        self,
        solve: Callable[[T, float], R],
        tasks: Sequence[T],
        futures: Sequence[Future[R]],
        budget: Budget,
    ) -> Iterator[R]:
        try:
            for task, future in zip(tasks, futures, strict=True):
                if not _finished(future, budget):
                    return
                yield self._result(future, solve, task, budget)
        finally:
            for future in futures:
                future.cancel()

    def _result(
        self, future: Future[R], solve: Callable[[T, float], R], task: T, budget: Budget
    ) -> R:
        try:
            return future.result()
        except self._lost as lost:
            logging.getLogger(__name__).warning("a worker was lost: %s", lost)
            if self._client is None:
                self._executor = None
            return solve(task, budget.seconds_left())

    def _started(self) -> Executor:
        if self._client is not None and self._client.status == "closed":  # the scheduler is gone
            self._client = self._executor = None
        if self._executor is None and self._client is not None:
            self._executor = self._client.get_executor(pure=False)
        elif self._executor is None and self._spec == PROCESSES:
            self._executor, self._close = _processes(self._count)
        elif self._executor is None:
            self._executor, self._close = _threads(self._count)
        return self._executor

    def close(self) -> None:
        """Let go of the workers without waiting for what they do."""
        self._close()
        self._executor, self._close = None, lambda: None


def _finished(future: Future[R], budget: Budget) -> bool:
    """Wait for a task; False if the time is up or a signal came first."""
    while not future.done() and not budget.exhausted():
        with suppress(TimeoutError, CancelledError):
            future.exception(TICK_S)
    return future.done()


def _threads(count: int) -> tuple[Executor, Callable[[], None]]:
    executor = ThreadPoolExecutor(count)
    return executor, lambda: executor.shutdown(wait=False, cancel_futures=True)


def _processes(count: int) -> tuple[Executor, Callable[[], None]]:
    """Processes that are started afresh: this one has threads, which a fork would not copy."""
    context = multiprocessing.get_context("spawn")
    with kept_from_children():
        resource_tracker.ensure_running()  # a process of its own, which must outlive all others
    executor = _Processes(count, mp_context=context, initializer=_begin)
    return executor, executor.close


class _Processes(ProcessPoolExecutor):
    """Signals do not reach its processes, not even while they start: a terminal sends them to all."""

    def submit(self, fn: Callable[..., R], /, *args: object, **named: object) -> Future[R]:
        with kept_from_children():
            return super().submit(fn, *args, **named)

    def close(self) -> None:
        """Kill the processes, whatever they do."""
        manager: object = self._executor_manager_thread
        # Before the kill: the manager would report dead workers to cancelled tasks, which raises.
        self.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.kill()
        if isinstance(manager, threading.Thread):
            manager.join()


def _begin() -> None:
    """A worker leaves signals to its parent, and ends with it."""
    for number in CAUGHT:
        signal.signal(number, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        sentinel = parent.sentinel

        def follow() -> None:
            wait([sentinel])
            signal.raise_signal(signal.SIGKILL)

        threading.Thread(target=follow, daemon=True).start()


def _dask_client(spec: str) -> _Client:
    address = f"tcp://{spec.removeprefix(DASK)}"
    try:
        from distributed import Client
    except ImportError:
        raise UsageError(
            Fault("dask is not installed", "install it with: pip install 'gangplan[dask]'")
        ) from None
    try:
        client: _Client = Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as failed:
        what = f"no Dask scheduler at {address}: {failed}".splitlines()[0]
        raise UsageError(Fault(what, "start one with: dask scheduler")) from None
    try:
        found = client.submit(_version, pure=False).result(CONNECT_S)
    except TimeoutError:
        client.close()
        what = f"no worker of the Dask scheduler at {address} answers"
        raise UsageError(Fault(what, f"start one with: dask worker {address}")) from None
    except (ImportError, RuntimeError):  # what Dask raises if it cannot read the task
        found = "none"
    if found != __version__:
        client.close()
        what = f"the Dask cluster at {address} has gangplan {found}, not {__version__}"
        raise UsageError(
            Fault(what, f"install gangplan {__version__} where its scheduler and workers run")
        )
    return client


def _version() -> str:
    """Asked of a worker."""
    return __version__
