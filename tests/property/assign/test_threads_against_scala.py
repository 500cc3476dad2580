"""The assignors over threads give random groups what those of Apache Kafka 0.8.2 give them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from ottla.assign.threads import THREAD_ASSIGNORS, ConsumerThread, ThreadAssignments, UnequalSubscriptionsError
from support.java import older_client_command
from support.processes import run_tool

PROGRAM = Path(__file__).with_name("ThreadAssignors.java")
CASES = 2000

Case = tuple[str, dict[str, int], dict[str, list[ConsumerThread]]]


def random_case(seed: int) -> Case:
    chance = random.Random(seed)
    topics = {name: chance.randint(0, 14) for name in chance.sample(["a", "b", "orders", "t-1", "T_2"], 3)}
    consumers = [f"{chance.choice(['g_host', 'G', 'c'])}-{number}" for number in range(chance.randint(1, 12))]
    equal = chance.random() < 0.8
    threads: dict[str, list[ConsumerThread]] = {}
    for consumer in consumers:
        usual = chance.randint(1, 12 if chance.random() < 0.1 else 3)
        for topic in topics if equal else chance.sample(sorted(topics), chance.randint(1, len(topics))):
            count = usual if equal else chance.randint(1, 3)
            threads.setdefault(topic, []).extend(ConsumerThread(consumer, number) for number in range(count))
    for of_topic in threads.values():
        chance.shuffle(of_topic)
    return chance.choice(["range", "roundrobin"]), {name: topics[name] for name in threads}, threads


def line(case: Case) -> str:
    name, topics, threads = case
    counts = ",".join(f"{topic}={count}" for topic, count in topics.items())
    owners = ",".join(
        f"{topic}={'+'.join(f'{one.consumer}/{one.thread}' for one in of_topic)}" for topic, of_topic in threads.items()
    )
    return f"{name} {counts} {owners}"


def owners(assigned: ThreadAssignments) -> set[str]:
    return {
        f"{topic}:{number}={thread}"
        for thread, partitions in assigned.items()
        for topic, numbers in partitions.items()
        for number in numbers
    }


def ours(name: str, topics: Mapping[str, int], threads: Mapping[str, list[ConsumerThread]]) -> set[str]:
    partitions = {topic: range(count) for topic, count in topics.items()}
    try:
        return owners(THREAD_ASSIGNORS[name](partitions, threads))
    except UnequalSubscriptionsError:
        return {"refused"}


@pytest.mark.slow
@pytest.mark.needs_older
@pytest.mark.spec("A7")
def test_random_groups_of_threads():
    cases = [random_case(seed) for seed in range(CASES)]
    command = older_client_command("0.8.2.2", str(PROGRAM))
    answers = run_tool(command, stdin="\n".join(map(line, cases)) + "\n").stdout.split("\n")[:-1]
    assert len(answers) == CASES
    for case, answer in zip(cases, answers, strict=True):
        assert ours(*case) == set(answer.split()), line(case)
    assert answers.count("refused") > CASES // 20
    assert sum(case[0] == "roundrobin" for case in cases) - answers.count("refused") > CASES // 3
