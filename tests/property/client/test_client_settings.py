"""Whatever is given as settings: a configuration with values of the declared types, or errors that name the setting."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ottla.client.configs import parse_admin_config, parse_consumer_config, parse_producer_config
from ottla.client.configs.settings import SETTINGS_OF, attribute_of
from ottla.client.errors import InvalidConfigError

PARSERS: dict[str, Any] = {
    "producer": parse_producer_config,
    "consumer": parse_consumer_config,
    "admin": parse_admin_config,
}
TYPES = {"boolean": bool, "int": int, "short": int, "long": int, "double": float, "list": tuple}


class Unequal:
    """Its comparison gives nothing that is true or false, as that of arrays."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise ValueError("ambiguous")


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=20),
    st.binary(max_size=5),
    st.lists(st.one_of(st.text(max_size=5), st.integers()), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    st.sampled_from(["all", "true", "1", "-1", "gzip", "latest", "none", "a:1", "INFO", object, print]),
    st.builds(Unequal),
)


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, dict[Any, Any], dict[str, Any]]:
    kind = draw(st.sampled_from(sorted(PARSERS)))
    known = st.sampled_from(sorted(SETTINGS_OF[kind]))
    names = st.one_of(known, known.map(attribute_of), st.text(max_size=30), st.integers())
    config = draw(st.dictionaries(names, VALUES, max_size=5))
    keywords = draw(st.dictionaries(known.map(attribute_of), VALUES, max_size=3))
    if draw(st.booleans()):
        config["bootstrap.servers"] = "a:1"
    return kind, config, keywords


@given(cases())
def test_settings_give_a_configuration_or_errors_that_name_them(
    case: tuple[str, dict[Any, Any], dict[str, Any]],
) -> None:
    kind, config, keywords = case
    try:
        made = PARSERS[kind](config, keywords)
    except InvalidConfigError as error:
        names = {str(name).replace("_", ".") for name in (*config, *keywords)} | {"bootstrap.servers"}
        for problem in error.problems:
            assert any(name in problem.replace("_", ".") for name in names), problem
        return
    for name, setting in SETTINGS_OF[kind].items():
        value = getattr(made, attribute_of(name), None)
        if setting.type in TYPES and value is not None:
            assert type(value) is TYPES[setting.type], name
    assert made.client_settings.client_id
    assert set(made.originals) <= set(SETTINGS_OF[kind])
