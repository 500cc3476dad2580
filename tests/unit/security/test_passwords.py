"""Passwords as Kafka's PasswordEncoder keeps them: read in both directions, and what cannot be decoded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ottla.security.passwords import CBC, GCM, KEY_FACTORIES, PasswordEncoder, PasswordError
from support.java import java_tool

pytestmark = pytest.mark.spec("S2", "S6")

PROGRAM = Path(__file__).with_name("EncodedPasswords.java")
PASSWORDS = ("x", "changeit", "a long one, with: ümlauts and \U0001f512 " * 3)


def encoder(secret: str = "s3cret", factory: str = "PBKDF2WithHmacSHA512", cipher: str = CBC) -> PasswordEncoder:
    return PasswordEncoder(secret, factory, cipher, 128, 1024, os.urandom)


@pytest.mark.parametrize("factory", KEY_FACTORIES)
@pytest.mark.parametrize("cipher", [CBC, GCM])
def test_what_is_encoded_can_be_decoded(factory: str, cipher: str) -> None:
    for password in PASSWORDS:
        text = encoder(factory=factory, cipher=cipher).encode(password)
        assert password not in text or password == "x"
        assert encoder().decode(text) == password, "the text has its parameters"
        assert encoder().encode(password) != text
        with pytest.raises(PasswordError):
            encoder("another").decode(text)


@pytest.mark.parametrize("damage", ["", "plain", "salt:,iterations:x", "keyLength:7"])
def test_what_is_no_encoded_password_is_refused(damage: str) -> None:
    with pytest.raises(PasswordError, match="could not be decoded"):
        encoder().decode(damage)
    whole = encoder().encode("changeit")
    for name in ("salt", "initializationVector", "encryptedPassword", "passwordLength", "cipherAlgorithm"):
        with pytest.raises(PasswordError):
            encoder().decode(whole.replace(f"{name}:", f"{name}:1"))
    with pytest.raises(PasswordError):
        encoder().decode(whole.replace("iterations:1024", "iterations:1000000000"))


def test_it_shows_no_secret() -> None:
    assert "s3cret" not in repr(encoder())


@pytest.mark.slow
@pytest.mark.needs_kafka
def test_apache_kafka_reads_ours_and_we_read_its() -> None:
    lines = []
    for cipher in (CBC, GCM):
        for factory in ("PBKDF2WithHmacSHA512", "PBKDF2WithHmacSHA1"):
            lines += [f"decode\t{cipher}\t{encoder(factory=factory, cipher=cipher).encode(each)}" for each in PASSWORDS]
            lines += [f"encode\t{factory}\t{cipher}\t{each}" for each in PASSWORDS]
    answers = java_tool(str(PROGRAM), "s3cret", stdin="\n".join(lines) + "\n").stdout.splitlines()
    assert len(answers) == len(lines)
    for line, answer in zip(lines, answers, strict=True):
        kind, *words = line.split("\t")
        if kind == "decode":
            assert answer == encoder().decode(words[1])
        else:
            assert encoder().decode(answer) == words[2]
            assert {part.partition(":")[0] for part in answer.split(",")} == {
                part.partition(":")[0] for part in encoder(words[0], words[0], words[1]).encode("x").split(",")
            }
