"""The image of a cluster: its topics by name, by id and by their names in metrics."""

from __future__ import annotations

from uuid import UUID

from ottla.cluster.image import ClusterImage, ImageDelta, TopicImage


def topic(name: str, number: int) -> TopicImage:
    return TopicImage(name, UUID(int=number), (), {}, is_internal=False)


def test_it_begins_with_the_topics_it_is_given() -> None:
    image = ClusterImage("c", 1, {}, {"a.b": topic("a.b", 1), "a_b": topic("a_b", 2)}, version=7)
    assert image.version == 7
    assert image.topics == {"a.b": topic("a.b", 1), "a_b": topic("a_b", 2)}
    assert image.topic_names == {UUID(int=1): "a.b", UUID(int=2): "a_b"}
    assert image.topics_of_metric_name("a.b") == ["a.b", "a_b"]


def test_a_topic_that_was_made_again_has_its_new_id_only() -> None:
    image = ClusterImage(topics={"t": topic("t", 1)})
    image.apply(ImageDelta((image.delta_of("t", topic("t", 2)),)))
    assert image.topic_names == {UUID(int=2): "t"}
    image.apply(ImageDelta((image.delta_of("t", None),)))
    assert (image.topics, image.topic_names, image.topics_of_metric_name("t")) == ({}, {}, [])
