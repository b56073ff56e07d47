"""Where work on clients runs: threads of this process, processes, or a Ray cluster.

Every engine takes the same pure function over the same parts and hands its results back in the
order of the parts, a bounded number ahead; so the bytes that are written do not depend on it.
"""

from __future__ import annotations

import os
import pickle
import socket
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any, Literal, TypeVar

from feda4fair.errors import Feda4FairError, OutputError

__all__ = ["EngineName", "default_workers", "run"]

EngineName = Literal["local", "ray"]
Part = TypeVar("Part")
Result = TypeVar("Result")

ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS"), "1"
)
"""Environment of a worker: one thread each, since the workers share the cores."""

MOST_WORKERS = 2
"""Default bound of processes: the one that writes is busy with what two of them federate."""


def default_workers() -> int:
    """Return how many processes are used unless told otherwise: half of the cores, up to 2.

    Even one keeps more than one core busy, since parsing and encoding have threads of their own.
    """
    return max(1, min(MOST_WORKERS, (os.cpu_count() or 1) // 2))


def run(
    parts: Sequence[Part],
    read: Callable[[Part], Any],
    work: Callable[[Part, Any], Result],
    *,
    workers: int = 1,
    engine: EngineName = "local",
    near: bool = False,
    scratch: Path | None = None,
) -> Iterator[Result]:
    """Yield ``work(part, read(part))`` for each part, in order.

    Parameters
    ----------
    parts : sequence
        What is worked on, one after the other.
    read, work : callable
        Picklable where there are processes.
    workers : int, default 1
        Processes; one works in threads of this process.
    engine : {"local", "ray"}
        Ray takes its workers from the cluster that ``RAY_ADDRESS`` names, or from this machine.
    near : bool, default False
        With Ray, read where the work is done and not in this process; processes always do.
    scratch : Path, optional
        Where processes leave results for a moment; by default the system's folder for that.

    Raises
    ------
    OutputError
        If a worker process died, or Ray is missing or cannot be reached.
    """
    if engine == "ray":
        return _on_ray(parts, read, work, workers=workers, near=near)
    if workers == 1 or len(parts) < 2:
        return _in_threads(parts, read, work)
    return _in_processes(parts, read, work, workers=min(workers, len(parts)), scratch=scratch)


def _in_threads(
    parts: Sequence[Part], read: Callable[[Part], Any], work: Callable[[Part, Any], Result]
) -> Iterator[Result]:
    """Read here, where Ctrl-C can end a download, while a thread works on the part before."""
    with ThreadPoolExecutor(1) as thread:
        pending: Future[Result] | None = None
        for part in parts:
            content = read(part)
            done = [] if pending is None else [pending.result()]
            pending = thread.submit(work, part, content)
            yield from done  # while the thread goes on
        if pending is not None:
            yield pending.result()


def _in_processes(
    parts: Sequence[Part],
    read: Callable[[Part], Any],
    work: Callable[[Part, Any], Result],
    *,
    workers: int,
    scratch: Path | None,
) -> Iterator[Result]:
    """Read and work in processes, which leave their results in files.

    A pool waits for ever where a process dies in the middle of a large message, so only the names
    of files go through its pipes.
    """
    try:
        with (
            TemporaryDirectory(prefix="feda4fair-results-", dir=scratch) as folder,
            ProcessPoolExecutor(
                workers, mp_context=get_context("spawn"), initializer=_start_worker
            ) as pool,
        ):
            place = Path(folder)
            try:
                yield from _ahead(
                    list(enumerate(parts)),
                    lambda part: pool.submit(_to_file, read, work, part[1], place / f"{part[0]}"),
                    _from_file,
                    most=workers + 1,
                )
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
    except BrokenProcessPool:
        raise OutputError(
            "a worker process died, perhaps for want of memory; use fewer --workers."
        ) from None


def _to_file(
    read: Callable[[Part], Any], work: Callable[[Part, Any], Any], part: Part, path: Path
) -> Path:
    with path.open("wb") as file:
        pickle.dump(work(part, read(part)), file, protocol=5)
    return path


def _from_file(done: Future[Path]) -> Any:
    path = done.result()
    with path.open("rb") as file:
        result = pickle.load(file)
    path.unlink()
    return result


def _ahead(
    parts: Sequence[Part],
    submit: Callable[[Part], Any],
    result: Callable[[Any], Result],
    *,
    most: int,
) -> Iterator[Result]:
    """Yield results in order, with a bounded number of parts submitted ahead."""
    waiting: deque[Any] = deque()
    for part in parts:
        waiting.append(submit(part))
        if len(waiting) >= most:
            yield result(waiting.popleft())
    while waiting:
        yield result(waiting.popleft())


def _start_worker() -> None:
    """Take one thread, and end when the process that started this one was killed."""
    _take_one_thread()

    def wait() -> None:
        if (parent := parent_process()) is not None:
            parent.join()
            os._exit(1)

    Thread(target=wait, daemon=True).start()


def _take_one_thread() -> None:
    import pyarrow as pa

    os.environ.update(ONE_THREAD)
    pa.set_cpu_count(1)


def _on_ray(
    parts: Sequence[Part],
    read: Callable[[Part], Any],
    work: Callable[[Part, Any], Result],
    *,
    workers: int,
    near: bool,
) -> Iterator[Result]:
    """Run as Ray tasks of one CPU each; Ray runs a task again whose worker died."""
    try:
        import ray
    except ImportError:
        raise OutputError(
            "--engine ray: Ray is not installed; install it with pip install 'feda4fair[ray]'."
        ) from None
    started = not ray.is_initialized()
    if started:
        _start_ray(workers)
    try:
        job = ray.remote(num_cpus=1, max_retries=3, runtime_env={"env_vars": ONE_THREAD})(_job)
        steps = ray.put((read, work))
        most = int(ray.cluster_resources().get("CPU", 1)) + 1
        yield from _ahead(
            parts,
            lambda part: job.remote(steps, part, None if near else ray.put(read(part)), near),
            _ray_result,
            most=most,
        )
    finally:
        if started:
            ray.shutdown()


def _start_ray(workers: int) -> None:
    import ray

    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    address = os.environ.get("RAY_ADDRESS", "")
    try:
        if address:
            _knock(address)
            ray.init(**quiet)
        else:
            ray.init(num_cpus=workers, include_dashboard=False, **quiet)
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise OutputError(
            f"--engine ray: the cluster cannot be reached ({reason}); check RAY_ADDRESS."
        ) from None


def _knock(address: str) -> None:
    """Find out within seconds whether anyone listens, where Ray would wait for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()


def _job(steps: Any, part: Any, content: Any, near: bool) -> Any:
    _take_one_thread()
    read, work = steps
    return work(part, read(part) if near else content)


def _ray_result(reference: Any) -> Any:
    import ray

    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, Feda4FairError):
            raise error.cause from None
        raise
    except ray.exceptions.RayError as error:
        reason = str(error).splitlines()[0]
        raise OutputError(
            f"--engine ray: a task failed ({reason}); check the cluster and build again."
        ) from None
