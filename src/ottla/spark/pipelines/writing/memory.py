"""Arrow's memory in the processes of Spark's tasks."""

from __future__ import annotations


def take_memory_of_the_system() -> None:
    """Have Arrow allocate by the C library from now on, in this process.

    Arrow's own allocator keeps what was freed for the next columns: with those of a task, which come and go by the
    megabyte, and much other memory that Python takes, a worker was a quarter larger by it, and no faster.
    """
    import pyarrow

    pyarrow.set_memory_pool(pyarrow.system_memory_pool())
