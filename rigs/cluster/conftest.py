"""A standalone Spark cluster of two workers, in a network of their own: 127.0.0.1 is another
machine to them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest

import icekit
from icekit.api import Lake
from icekit.engine import session
from tests.serving import free_port, serving

SPARK_HOME = Path(pyspark.__file__).parent
HOST, WITHIN = "10.213.77.1", "10.213.77.2"
#: Cores and memory of each worker: room for an executor of the tests' own session and one of a
# process that a test starts.
CORES, MEMORY = 2, "6g"


@dataclass(frozen=True)
class Cluster:
    """A master's address, and what its workers have started."""

    master: str
    work: Path

    def executors(self) -> list[int]:
        """Process ids of the executors that run now, of all applications."""
        found = []
        for process in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                if (process / "cwd").resolve().is_relative_to(
                    self.work
                ) and "CoarseGrainedExecutorBackend" in (process / "cmdline").read_text():
                    found.append(int(process.name))
        return found

    def settings(self, executor_memory: str = "1g") -> str:
        """What ``ICEKIT_SPARK_CONF`` says to run on two of its executors, of one core each."""
        return (
            f"spark.master={self.master} spark.executor.memory={executor_memory} "
            "spark.executor.cores=1 spark.cores.max=2 spark.sql.shuffle.partitions=4 "
            "spark.driver.memory=1g spark.ui.enabled=false"
        )


@contextlib.contextmanager
def other_network() -> Iterator[Sequence[str]]:
    """What to put before a command that runs in a network namespace of its own, with a way to this
    machine.
    """
    name = f"icekit-{os.getpid()}"
    outer, inner = f"ik{os.getpid()}o", f"ik{os.getpid()}i"
    steps = [
        f"netns add {name}",
        f"link add {outer} type veth peer name {inner}",
        f"link set {inner} netns {name}",
        f"addr add {HOST}/30 dev {outer}",
        f"link set {outer} up",
        f"-n {name} addr add {WITHIN}/30 dev {inner}",
        f"-n {name} link set {inner} up",
        f"-n {name} link set lo up",
        f"-n {name} route add default via {HOST}",
    ]
    try:
        for step in steps:
            subprocess.run(["ip", *step.split()], check=True, capture_output=True)
        yield ["ip", "netns", "exec", name]
    finally:
        # Its end of the pair goes with the namespace.
        subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster, with two workers."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("a network namespace needs root and the command ip")
    folder, port = tmp_path_factory.mktemp("cluster"), free_port()
    start = [SPARK_HOME / "bin" / "spark-class"]
    environment = {"SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_DIRS": str(folder / "local")}
    deploy = "org.apache.spark.deploy"
    with contextlib.ExitStack() as running:
        within = running.enter_context(other_network())
        master = [
            *start,
            f"{deploy}.master.Master",
            "--host",
            HOST,
            "--port",
            port,
            "--webui-port",
            0,
        ]
        running.enter_context(serving(master, port, folder / "master.log", environment, host=HOST))
        for number in range(2):
            (work := folder / f"worker-{number}").mkdir()
            of_worker = [
                "--cores",
                CORES,
                "--memory",
                MEMORY,
                "--port",
                7078 + number,
                "--webui-port",
                0,
                "--work-dir",
                work,
            ]
            worker = [
                *within,
                *start,
                f"{deploy}.worker.Worker",
                *of_worker,
                f"spark://{HOST}:{port}",
            ]
            running.enter_context(
                serving(
                    worker,
                    7078 + number,
                    folder / f"worker-{number}.log",
                    {**environment, "SPARK_LOCAL_IP": WITHIN},
                    host=WITHIN,
                )
            )
        yield Cluster(f"spark://{HOST}:{port}", folder)


@pytest.fixture(scope="module")
def on_cluster(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """An embedded lake and icekit's own session on the cluster."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("on-cluster")
        patch.setenv("ICEKIT_SPARK_CONF", cluster.settings())
        patch.setenv("ICEKIT_LAKE", str(folder / "lake"))
        patch.setenv("ICEKIT_LEDGER", str(folder / "ledger.db"))
        session.stop_own_session()
        lake = icekit.connect()
        lake.spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.db")
        yield lake
        lake.close()
        session.stop_own_session()
