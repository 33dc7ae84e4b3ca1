"""`make cluster`: a decoder's block by a Dask cluster of which a worker is killed, and without a cluster."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from dask_cluster import running
from partition_graphs import block

from wsopt.machine import load_machine
from wsopt.partition.make import build_cut
from wsopt.pool.cluster import workers_at

WORKERS = 3


def main() -> int:
    """Compile twice and compare; the exit status is 0 where the bytes are the same."""
    graph, machine = block(tokens=128, heads=2, groups=1, depth=64, inner=256), load_machine("h200")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["WSOPT_CACHE_DIR"] = str(folder / "here")
        with running(folder, WORKERS, WSOPT_CACHE_DIR=str(folder / "there")) as cluster:
            timer = threading.Timer(2.0, cluster.workers[0].kill)

            def told(stage: str, done: int, total: int) -> None:
                if stage in ("bound", "kernels"):
                    sys.stderr.write(f"\r{stage}: {done} of {total}   ")
                if stage == "kernels" and timer.ident is None:
                    timer.start()

            began = time.monotonic()
            with workers_at(cluster.address) as workers:
                found = build_cut(graph, machine, workers=workers, progress=told)
            lost = [worker.poll() for worker in cluster.workers]
            print(f"\ncluster: {time.monotonic() - began:.1f} s, ends of workers {lost}")
        os.environ["WSOPT_CACHE_DIR"] = str(folder / "alone")
        began = time.monotonic()
        alone = build_cut(graph, machine)
        print(f"alone: {time.monotonic() - began:.1f} s, {len(alone.files)} files")
        same = alone.files == found.files
        print("the same bytes" if same else "other bytes")
        return 0 if same and lost[0] is not None else 1


if __name__ == "__main__":
    sys.exit(main())
