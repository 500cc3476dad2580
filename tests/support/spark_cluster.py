"""A standalone Spark cluster on this machine: a master and workers, each a process, and Spark's programs against it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import CompletedProcess
from typing import Self

import psutil

from support.java import java_executable
from support.ports import LOOPBACK, free_port
from support.processes import ServerProcess, command_of, run_tool

START_TIMEOUT_S = 240.0
PROGRAM_TIMEOUT_S = 500.0
#: The most memory of the master, of each worker, of a server of Spark Connect; and of each executor.
DAEMON_MEMORY = "512m"
EXECUTOR_MEMORY = "512m"
CONNECT_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
#: For Java that starts quickly and computes little.
JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
#: What every job here is run with.
SMALL = {
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.executor.memory": EXECUTOR_MEMORY,
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def spark_home() -> Path:
    """Where the installed PySpark has Spark's programs."""
    import pyspark

    return Path(pyspark.__file__).parent


def spark_environment(folder: Path) -> dict[str, str]:
    """The environment of Spark's programs, with scratch files in `folder` and this Python for drivers and workers."""
    java = java_executable()
    assert java is not None
    return {
        "JAVA_HOME": str(Path(java).resolve().parent.parent),
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_DAEMON_MEMORY": DAEMON_MEMORY,
        "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        # Spark puts folders of its own before it; a Python that is started in a test finds ottla's sources here.
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }


def spark_program(name: str) -> str:
    """The path of one of Spark's programs, such as `spark-submit`."""
    return str(spark_home() / "bin" / name)


def conf_arguments(conf: Mapping[str, str]) -> list[str]:
    """Settings as arguments of spark-submit."""
    return [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]


class SparkCluster:
    """A master and workers of one core each. A context manager; its processes end with it.

    `worker_prefix` goes before the command of each worker: a program that runs it somewhere else.
    """

    def __init__(self, folder: Path, workers: int = 2, worker_prefix: Sequence[str] = ()) -> None:
        self._folder = folder
        self._environment = spark_environment(folder)
        self._worker_prefix = worker_prefix
        self._port = free_port()
        self.master = self._start("master", "master.Master", "--port", str(self._port))
        self._servers = [self.master]
        self._replaced = 0
        self.workers = [self._start_worker(number) for number in range(workers)]

    @property
    def url(self) -> str:
        """The master's address."""
        return f"spark://{LOOPBACK}:{self._port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait_until_ready(self) -> None:
        """Until all workers are registered."""
        count = len(self.workers) + self._replaced
        self.master.wait_until_ready(
            lambda: self.master.stderr.count("Registering worker") >= count, timeout_s=START_TIMEOUT_S
        )

    def submit(
        self, script: Path, *arguments: str, conf: Mapping[str, str] | None = None, check: bool = True
    ) -> CompletedProcess[str]:
        """Run a script by spark-submit on the cluster, to its end."""
        command = [*self._submit(conf or {}), str(script), *arguments]
        return run_tool(command, env=self._environment, cwd=self._folder, timeout_s=PROGRAM_TIMEOUT_S, check=check)

    def start_submit(
        self, name: str, script: Path, *arguments: str, conf: Mapping[str, str] | None = None
    ) -> ServerProcess:
        """Start a script by spark-submit on the cluster; the caller waits for it."""
        return self._serve(name, [*self._submit(conf or {}), str(script), *arguments])

    @contextmanager
    def connect_server(self, conf: Mapping[str, str] | None = None) -> Iterator[str]:
        """A server of Spark Connect by its address. Its executors are the cluster's, and take all cores meanwhile."""
        port = free_port()
        address = {"spark.connect.grpc.binding.address": LOOPBACK, "spark.connect.grpc.binding.port": str(port)}
        conf = {**address, **(conf or {})}
        server = self._serve("connect", [*self._submit(conf), "--class", CONNECT_SERVER])
        server.wait_until_ready(lambda: f"server started at: {LOOPBACK}" in server.stderr, START_TIMEOUT_S)
        try:
            yield f"sc://{LOOPBACK}:{port}"
        finally:
            server.terminate_group()

    def replace_worker(self, number: int) -> int:
        """Kill a worker with its executors and their Python, as the loss of a machine does; then start another one.

        Gives how many executors it had.
        """
        worker = self.workers[number]
        processes = [psutil.Process(worker.pid), *psutil.Process(worker.pid).children(recursive=True)]
        executors = sum(EXECUTOR in command_of(each) for each in processes)
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        worker.wait()
        self._servers.remove(worker)
        self._replaced += 1
        self.workers[number] = self._start_worker(number)
        return executors

    def close(self) -> None:
        """End all processes."""
        for server in reversed(self._servers):
            server.terminate_group()

    def _submit(self, conf: Mapping[str, str]) -> list[str]:
        return [spark_program("spark-submit"), "--master", self.url, *conf_arguments({**SMALL, **conf})]

    def _start_worker(self, number: int) -> ServerProcess:
        arguments = ["--cores", "1", "--memory", "1g", "--work-dir", str(self._folder / f"work-{number}"), self.url]
        name = f"worker-{number}-{self._replaced}"
        worker = self._start(name, "worker.Worker", *arguments, prefix=self._worker_prefix)
        self._servers.append(worker)
        return worker

    def _start(self, name: str, kind: str, *arguments: str, prefix: Sequence[str] = ()) -> ServerProcess:
        where = ["--host", LOOPBACK, "--webui-port", "0"]
        command = [*prefix, spark_program("spark-class"), f"org.apache.spark.deploy.{kind}", *where, *arguments]
        return ServerProcess(name, command, self._folder, self._environment)

    def _serve(self, name: str, command: Sequence[str]) -> ServerProcess:
        server = ServerProcess(name, command, self._folder, self._environment)
        self._servers.append(server)
        return server
