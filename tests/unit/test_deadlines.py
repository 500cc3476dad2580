"""Named deadlines: replaced, cancelled, and moved back without growing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.deadlines import Deadlines


def test_the_earliest_comes_first():
    deadlines: Deadlines[str] = Deadlines()
    assert (deadlines.next(), deadlines.pop_due(10**9)) == (None, None)
    for name, at in (("b", 20), ("a", 10), ("c", 30)):
        deadlines.set(name, at)
    assert (deadlines.next(), len(deadlines), "a" in deadlines, deadlines.get("b")) == (10, 3, True, 20)
    assert deadlines.pop_due(9) is None
    assert [deadlines.pop_due(25), deadlines.pop_due(25), deadlines.pop_due(25)] == ["a", "b", None]
    assert deadlines.names() == {"c"}


def test_setting_again_replaces():
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 10)
    deadlines.set("a", 50)
    assert deadlines.next() == 50
    deadlines.set("a", 5)
    assert deadlines.next() == 5
    deadlines.set("a", 7)
    deadlines.cancel("a")
    deadlines.cancel("a")
    assert (deadlines.next(), len(deadlines)) == (None, 0)


def test_a_million_heartbeats_do_not_grow_the_heap():
    deadlines: Deadlines[str] = Deadlines()
    for beat in range(1000):
        for member in ("a", "b"):
            deadlines.set(member, beat + 10)
    assert len(deadlines._heap) == 2


@given(
    st.lists(
        st.tuples(st.sampled_from(["set", "cancel", "pop"]), st.sampled_from("abcd"), st.integers(0, 30)), max_size=60
    )
)
def test_equal_to_a_plain_dictionary(operations: list[tuple[str, str, int]]):
    deadlines: Deadlines[str] = Deadlines()
    plain: dict[str, int] = {}
    for operation, name, at in operations:
        if operation == "set":
            deadlines.set(name, at)
            plain[name] = at
        elif operation == "cancel":
            deadlines.cancel(name)
            plain.pop(name, None)
        else:
            earliest = min(plain.values(), default=99)
            popped = deadlines.pop_due(at)
            assert (popped is None) == (earliest > at)
            if popped is not None:
                assert plain.pop(popped) == earliest
        assert deadlines.next() == min(plain.values(), default=None)
        assert deadlines.names() == plain.keys()
