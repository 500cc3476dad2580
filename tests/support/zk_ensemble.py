"""Several Apache ZooKeeper servers that are one: what is written to one is at the others, and a session may move."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from support.apache import ApacheZooKeeper, four_letter_word
from support.ports import LOOPBACK, free_port

MEMBERS = 3
#: Sessions that are to move live through the election of a leader on a busy machine.
MOST_SESSION_MS = "60000"


class ApacheEnsemble:
    """Three servers, of which two must be there. `members` can be killed and started one by one."""

    def __init__(self, folder: Path) -> None:
        ports = [(free_port(), free_port(), free_port()) for _ in range(MEMBERS)]
        servers = {f"server.{at}": f"{LOOPBACK}:{ports[at][1]}:{ports[at][2]}" for at in range(MEMBERS)}
        self.members: list[ApacheZooKeeper] = []
        for number in range(MEMBERS):
            own = folder / f"member-{number}"
            (own / "zookeeper").mkdir(parents=True)
            (own / "zookeeper" / "myid").write_text(str(number))
            settings = {**servers, "initLimit": "20", "syncLimit": "10", "maxSessionTimeout": MOST_SESSION_MS}
            member = ApacheZooKeeper(own, heap="128m", overrides=settings)
            member.port = ports[number][0]
            self.members.append(member)

    @property
    def connect(self) -> str:
        """The `zookeeper.connect` address: all of them."""
        return ",".join(member.connect for member in self.members)

    def start(self) -> ApacheEnsemble:
        """Start all; none of them serves before two are there."""
        with ThreadPoolExecutor(MEMBERS) as threads:
            list(threads.map(lambda member: member.start(), self.members))
        return self

    def stop(self) -> None:
        """Kill all."""
        for member in self.members:
            member.stop()

    def member_of(self, session_id: int) -> ApacheZooKeeper | None:
        """The server that a session is connected to just now."""
        for member in self.members:
            try:
                found = four_letter_word(member.port, b"cons")
            except OSError:
                continue
            if f"sid=0x{session_id:x}".encode() in found:
                return member
        return None
